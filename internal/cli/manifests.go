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

func newManifests(e env.Env) *cobra.Command {
	var s settings
	var sensing probecmd.Sensing
	var beat heartbeatcmd.Settings
	var alert alertcmd.Settings
	var recovering recoverycmd.Settings
	m := manifests.Settings{Controller: true}
	// The same settings without the probes', to tell whose variable is whose.
	controllers := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	new(settings).flags(controllers)
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
			if err := s.read(cmd, e); err != nil {
				return err
			}
			if _, err := s.protected(); err != nil {
				return err
			}
			sensing.Window = s.rules.Fitness.Size
			if err := sensing.Check(); err != nil {
				return err
			}
			if _, err := recovering.Policy(cmd, "recovery-", s.policy.Keys); err != nil {
				return err
			}
			m.RecoveryEnv = variables(cmd.Flags(), recoverycmd.Flags())
			m.RecoveryPrunes, m.RecoveryEvidence = recovering.Prunes(), recovering.Evidence
			m.LabelPrefix, m.FsyncDir = s.prefix, sensing.FsyncDir
			m.ProbeEnv = variables(cmd.Flags(), probecmd.Flags())
			m.Namespace, m.ActuatorConfigMap = s.namespace, s.actuators
			m.Env = variables(cmd.Flags(), controllers)
			if err := healthEnv(cmd.Flags(), &m, &beat, &alert); err != nil {
				return err
			}
			objects, err := manifests.Objects(m)
			if err != nil {
				return env.Usage("%v", err)
			}
			raw, err := manifests.YAML(objects)
			if err != nil {
				return failed(err)
			}
			_, err = e.Out.Write(raw)
			return failed(err)
		},
	}
	s.flags(cmd.Flags())
	sensing.Flags(cmd.Flags())
	cmd.Flags().StringVar(&m.Image, "image", "ghcr.io/exadev/regrade:"+tag(), "image of controller and probe")
	env.Bind(cmd.Flags(), "image", "FLEET_ROLE_IMAGE")
	cmd.Flags().BoolVar(&m.ConfigMaps, "configmaps", false, "print the ConfigMaps, too, without data")
	cmd.Flags().BoolVar(&m.Controller, "deployment", true, "print the controller's Deployment")
	cmd.Flags().BoolVar(&m.Probe, "probe", true, "print the probes' DaemonSet")
	cmd.Flags().BoolVar(&m.Heartbeat, "heartbeat", false, "print the heartbeat's Deployment, rights and ConfigMap")
	cmd.Flags().BoolVar(&m.Alert, "alert", false, "print those of the alert process")
	beat.Flags(cmd.Flags(), "heartbeat-")
	alert.Flags(cmd.Flags(), "alert-")
	cmd.Flags().BoolVar(&m.Recovery, "recovery", false, "print the Deployment of node recovery, with its account and rights")
	cmd.Flags().BoolVar(&m.Levels, "levels", false, "print the account, rights and token of the hosts' levels")
	recovering.Flags(cmd.Flags(), "recovery-")
	m.ProbeMetricsPort = manifests.ProbeMetricsPort
	cmd.Flags().Var(env.Int{Value: &m.ProbeMetricsPort, Max: 65535}, "probe-metrics-port", "port of each host at which its probe serves /metrics, /healthz and /readyz; 0 for not at all")
	env.Bind(cmd.Flags(), "probe-metrics-port", "FLEET_ROLE_PROBE_METRICS_PORT")
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
