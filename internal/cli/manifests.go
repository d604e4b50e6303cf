package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/alertcmd"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/heartbeatcmd"
	"github.com/exadev/regrade/internal/cli/probecmd"
	"github.com/exadev/regrade/internal/cli/recoverycmd"
	"github.com/exadev/regrade/internal/manifests"
)

// rendering is what regrade's objects are made of: settings as flags, and the objects
// that come of them.
type rendering struct {
	e          env.Env
	s          settings
	sensing    probecmd.Sensing
	beat       heartbeatcmd.Settings
	alert      alertcmd.Settings
	recovering recoverycmd.Settings
	m          manifests.Settings
	// controllers are the same settings without the probes', to tell whose variable is whose.
	controllers *pflag.FlagSet
}

func newRendering(e env.Env) *rendering {
	r := &rendering{e: e, m: manifests.Settings{Controller: true}, controllers: pflag.NewFlagSet("controller", pflag.ContinueOnError)}
	new(settings).flags(r.controllers)
	return r
}

func (r *rendering) flags(fs *pflag.FlagSet) {
	m := &r.m
	r.s.flags(fs)
	r.sensing.Flags(fs)
	fs.StringVar(&m.Image, "image", "ghcr.io/exadev/regrade:"+tag(), "image of controller and probe")
	env.Bind(fs, "image", "FLEET_ROLE_IMAGE")
	fs.BoolVar(&m.ConfigMaps, "configmaps", false, "print the ConfigMaps, too, without data")
	fs.BoolVar(&m.Controller, "deployment", true, "print the controller's Deployment")
	fs.BoolVar(&m.Probe, "probe", true, "print the probes' DaemonSet")
	fs.BoolVar(&m.Heartbeat, "heartbeat", false, "print the heartbeat's Deployment, rights and ConfigMap")
	fs.BoolVar(&m.Alert, "alert", false, "print those of the alert process")
	r.beat.Flags(fs, "heartbeat-")
	r.alert.Flags(fs, "alert-")
	fs.BoolVar(&m.Recovery, "recovery", false, "print the Deployment of node recovery, with its account and rights")
	fs.BoolVar(&m.Levels, "levels", false, "print the account, rights and token of the hosts' levels")
	r.recovering.Flags(fs, "recovery-")
	m.ProbeMetricsPort = manifests.ProbeMetricsPort
	fs.Var(env.Int{Value: &m.ProbeMetricsPort, Max: 65535}, "probe-metrics-port", "port of each host at which its probe serves /metrics, /healthz and /readyz; 0 for not at all")
	env.Bind(fs, "probe-metrics-port", "FLEET_ROLE_PROBE_METRICS_PORT")
}

// objects are what the settings of cmd, whose flags these are, come to.
func (r *rendering) objects(cmd *cobra.Command) ([]manifests.Object, error) {
	m := &r.m
	if err := r.s.read(cmd, r.e); err != nil {
		return nil, err
	}
	if _, err := r.s.protected(); err != nil {
		return nil, err
	}
	r.sensing.Window = r.s.rules.Fitness.Size
	if err := r.sensing.Check(); err != nil {
		return nil, err
	}
	if _, err := r.recovering.Policy(cmd, "recovery-", r.s.policy.Keys); err != nil {
		return nil, err
	}
	m.RecoveryEnv = variables(cmd.Flags(), recoverycmd.Flags())
	m.RecoveryPrunes, m.RecoveryEvidence = r.recovering.Prunes(), r.recovering.Evidence
	m.LabelPrefix, m.FsyncDir = r.s.prefix, r.sensing.FsyncDir
	m.ProbeEnv = variables(cmd.Flags(), probecmd.Flags())
	m.Namespace, m.ActuatorConfigMap = r.s.namespace, r.s.actuators
	m.Env = variables(cmd.Flags(), r.controllers)
	if err := healthEnv(cmd.Flags(), m, &r.beat, &r.alert); err != nil {
		return nil, err
	}
	objects, err := manifests.Objects(*m)
	if err != nil {
		return nil, env.Usage("%v", err)
	}
	return objects, nil
}

func newManifests(e env.Env) *cobra.Command {
	r := newRendering(e)
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print what is installed in the cluster, for kubectl apply -f -",
		Long: `Manifests prints namespace, service accounts, rights, the controller's
Deployment, the probes' DaemonSet and the Secret with the host daemons' token.
Settings given here as flags or variables become the Deployment's and the
DaemonSet's. --heartbeat and --alert print those two processes, too; tokens and
addresses of receivers they take from the Secrets heartbeat-gh-token and
fleet-alert, which a person makes. --recovery prints the Deployment that taints dead
nodes, which is a power of its own; --levels the account, rights and token with which
hosts change their own level, which is the power to patch every Node.

The three ConfigMaps are not among them: the controller makes them where they are
absent, and what they hold is live. --configmaps prints them without data, for
kubectl create.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := r.objects(cmd)
			if err != nil {
				return err
			}
			raw, err := manifests.YAML(objects)
			if err != nil {
				return failed(err)
			}
			_, err = e.Out.Write(raw)
			return failed(err)
		},
	}
	r.flags(cmd.Flags())
	return cmd
}

// healthEnv gives the heartbeat and the alert process their variables: their own, and
// those of the others that they take. In the cluster both go by ConfigMaps.
func healthEnv(fs *pflag.FlagSet, m *manifests.Settings, beat *heartbeatcmd.Settings, alert *alertcmd.Settings) error {
	if m.Heartbeat {
		beat.ConfigMap = true
		if err := beat.Check(); err != nil {
			return err
		}
		m.HeartbeatEnv = append(prefixed(fs, "HEARTBEAT_"), named(m.Env, "FLEET_ROLE_API_SERVERS", "FLEET_ROLE_NAMESPACE", "FLEET_ROLE_LABEL_PREFIX", "FLEET_ROLE_RUNNER_SELECTOR", "FLEET_ROLE_TARGET")...)
		m.Runners = beat.Wants()
	}
	if m.Alert {
		switch {
		case alert.Command != "" || alert.File != "":
			return env.Usage("FLEET_ALERT_COMMAND, FLEET_ALERT_FILE: the image has no other file than regrade")
		case alert.State != "" && alert.State != alertcmd.InConfigMap:
			return env.Usage("FLEET_ALERT_STATE: the pod has no disk of its own, want %s", alertcmd.InConfigMap)
		}
		alert.ConfigMap, alert.State = true, alertcmd.InConfigMap
		if err := alert.Check(); err != nil {
			return err
		}
		if least := beat.Interval + alert.Interval; m.Heartbeat && alert.After < least {
			return env.Usage("FLEET_ALERT_AFTER_SECONDS: within a window of %s no new document need come, with %s between two of them (HEARTBEAT_INTERVAL_SECONDS) and %s between two looks", alert.After, beat.Interval, alert.Interval)
		}
		m.AlertEnv = append(prefixed(fs, "FLEET_ALERT_"), named(m.Env, "FLEET_ROLE_API_SERVERS", "FLEET_ROLE_NAMESPACE")...)
	}
	return nil
}

// prefixed are the settings whose variables begin so.
func prefixed(fs *pflag.FlagSet, prefix string) (vars []manifests.Var) {
	fs.VisitAll(func(f *pflag.Flag) {
		if name := env.Variable(f); strings.HasPrefix(name, prefix) && f.Value.String() != "" {
			vars = append(vars, variable(name, f.Value.String()))
		}
	})
	return vars
}

func named(vars []manifests.Var, names ...string) (out []manifests.Var) {
	for _, v := range vars {
		if slices.Contains(names, v.Name) {
			out = append(out, v)
		}
	}
	return out
}

// tag is the image's: a release names its own.
func tag() string {
	if Version != "" {
		return Version
	}
	return "latest"
}

// variables are a workload's: every setting it takes that has a variable, as it
// stands after flags and environment, lengths of time in seconds.
func variables(fs, takes *pflag.FlagSet) []manifests.Var {
	taken := map[string]bool{}
	takes.VisitAll(func(f *pflag.Flag) { taken[env.Variable(f)] = true })
	var vars []manifests.Var
	fs.VisitAll(func(f *pflag.Flag) {
		name := env.Variable(f)
		value := f.Value.String()
		if name == "" || !taken[name] || value == "" {
			return
		}
		vars = append(vars, variable(name, value))
	})
	return vars
}

// variable is one, lengths of time in seconds.
func variable(name, value string) manifests.Var {
	if strings.HasSuffix(name, "_SECONDS") {
		if d, err := env.ParseSeconds(value); err == nil {
			value = strconv.FormatInt(int64(d/time.Second), 10)
		}
	}
	return manifests.Var{Name: name, Value: value}
}
