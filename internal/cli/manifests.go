package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/probecmd"
	"github.com/exadev/regrade/internal/manifests"
)

func newManifests(e env.Env) *cobra.Command {
	var s settings
	var sensing probecmd.Sensing
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
DaemonSet's.

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
			m.LabelPrefix, m.FsyncDir = s.prefix, sensing.FsyncDir
			m.ProbeEnv = variables(cmd.Flags(), probecmd.Flags())
			m.Namespace, m.ActuatorConfigMap = s.namespace, s.actuators
			m.Env = variables(cmd.Flags(), controllers)
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
	m.ProbeMetricsPort = manifests.ProbeMetricsPort
	cmd.Flags().Var(env.Int{Value: &m.ProbeMetricsPort, Max: 65535}, "probe-metrics-port", "port of each host at which its probe serves /metrics, /healthz and /readyz; 0 for not at all")
	env.Bind(cmd.Flags(), "probe-metrics-port", "FLEET_ROLE_PROBE_METRICS_PORT")
	return cmd
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
	var vars []manifests.Var
	fs.VisitAll(func(f *pflag.Flag) {
		name := env.Variable(f)
		value := f.Value.String()
		if !strings.HasPrefix(name, "FLEET_ROLE_") || takes.Lookup(f.Name) == nil || value == "" {
			return
		}
		if strings.HasSuffix(name, "_SECONDS") {
			if d, err := env.ParseSeconds(value); err == nil {
				value = strconv.FormatInt(int64(d/time.Second), 10)
			}
		}
		vars = append(vars, manifests.Var{Name: name, Value: value})
	})
	return vars
}
