package probecmd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/probe"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// Deps are what the commands are made with; tests put fakes here.
type Deps struct {
	Connect func(kube.Access, kube.ProbeOptions) (probe.Cluster, error)
	Dial    sensor.Dial
	// Version is the program's, for the API server's log.
	Version string
}

// Production reaches a real cluster and real peers.
func Production(version string) Deps {
	return Deps{
		Connect: func(a kube.Access, o kube.ProbeOptions) (probe.Cluster, error) {
			conn, err := kube.Connect(a)
			if err != nil {
				return nil, err
			}
			return kube.NewProbeAPI(conn, o), nil
		},
		Dial:    (&net.Dialer{}).DialContext,
		Version: version,
	}
}

// command is one command line.
type command struct {
	e env.Env
	d Deps

	sensing Sensing
	root    string

	node, kubeconfig, context, servers, namespace, prefix string
	period                                                time.Duration
	format, level, metrics                                string
}

// New makes `regrade probe`.
func New(e env.Env, d Deps) *cobra.Command {
	c := &command{e: e, d: d, period: fitness.DefaultPeriod}
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Measure this host: the loop of the fleet-role-probe DaemonSet",
		Long: `Probe takes a sample of this host each period: the way to each voter's peer
port, what a voter's etcd gained in its own metrics, a standby's disk once a
window, memory, and the link of the default route. It keeps the last window of
samples in its own key of the ConfigMap fleet-role-probe, and says each period by
a Lease that it goes on. It judges nothing.

A host that is neither voter nor eligible records nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.sensing.Flags(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&c.root, "root", "/", "folder that stands before every path on the host")
	c.sensing.windowFlag(cmd.PersistentFlags())
	fs := cmd.Flags()
	fs.StringVar(&c.node, "node", "", "this host's Node; the DaemonSet gives it")
	env.Bind(fs, "node", "FLEET_ROLE_NODE")
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the pod's service account, else what kubectl takes")
	fs.StringVar(&c.context, "context", "", "context in the kubeconfig")
	fs.StringVar(&c.servers, "servers", "", "API servers to try in this order, comma-separated, in place of the configured one")
	env.Bind(fs, "servers", "FLEET_ROLE_API_SERVERS")
	fs.StringVar(&c.namespace, "namespace", fleet.DefaultNamespace, "namespace of regrade's own objects")
	env.Bind(fs, "namespace", "FLEET_ROLE_NAMESPACE")
	fs.StringVar(&c.prefix, "label-prefix", fleet.DefaultPrefix, "prefix of regrade's labels, annotations and taint")
	env.Bind(fs, "label-prefix", "FLEET_ROLE_LABEL_PREFIX")
	fs.Var(env.Seconds{Value: &c.period, Min: time.Second, Max: maxPeriod}, "period", "time between two samples")
	env.Bind(fs, "period", "FLEET_ROLE_PERIOD_SECONDS")
	fs.StringVar(&c.metrics, "metrics-address", "", "serve /metrics, /healthz and /readyz here, such as :9465; empty for not at all")
	env.Bind(fs, "metrics-address", "FLEET_ROLE_METRICS_ADDRESS")
	fs.StringVar(&c.format, "log-format", "text", "text or json")
	env.Bind(fs, "log-format", "FLEET_ROLE_LOG_FORMAT")
	fs.StringVar(&c.level, "log-level", "info", "debug, info, warn or error")
	env.Bind(fs, "log-level", "FLEET_ROLE_LOG_LEVEL")
	cmd.AddCommand(c.check())
	return cmd
}

// Flags are all that the probe takes, as a list of names.
func Flags() *pflag.FlagSet {
	cmd := New(env.Env{}, Deps{})
	fs := pflag.NewFlagSet("probe", pflag.ContinueOnError)
	fs.AddFlagSet(cmd.PersistentFlags())
	fs.AddFlagSet(cmd.Flags())
	return fs
}

// maxPeriod is the longest that an entry takes.
const maxPeriod = time.Hour

// read finishes the settings.
func (c *command) read(cmd *cobra.Command) error {
	if err := env.Read(cmd, c.e.Getenv); err != nil {
		return err
	}
	return c.sensing.Check()
}

func (c *command) run(cmd *cobra.Command) error {
	if err := c.read(cmd); err != nil {
		return err
	}
	keys, err := fleet.NewKeys(c.prefix)
	if err != nil {
		return env.Usage("%v", err)
	}
	switch {
	case c.node == "":
		return env.Usage("--node, or FLEET_ROLE_NODE, must name this host's Node")
	}
	if err := errors.Join(fleet.CheckName(c.node), fleet.CheckNamespace(c.namespace)); err != nil {
		return env.Usage("%v", err)
	}
	servers, err := kube.ParseServers(c.servers)
	if err != nil {
		return env.Usage("%v", err)
	}
	log, err := obs.NewLogger(c.e.Err, c.format, c.level)
	if err != nil {
		return env.Usage("%v", err)
	}
	id, err := bootID(c.root)
	if err != nil {
		return env.Failed(err)
	}
	root, err := os.OpenRoot(c.root)
	if err != nil {
		return env.Failed(fmt.Errorf("root: %w", err))
	}
	defer func() { _ = root.Close() }()
	l, err := c.listen()
	if err != nil {
		return env.Failed(err)
	}
	if l != nil {
		defer func() { _ = l.Close() }()
	}
	cluster, err := c.d.Connect(
		kube.Access{Kubeconfig: c.kubeconfig, Context: c.context, Servers: servers, UserAgent: "regrade-probe/" + c.d.Version},
		kube.ProbeOptions{Node: c.node, Namespace: c.namespace, Keys: keys},
	)
	if err != nil {
		return env.Failed(err)
	}
	disk := c.sensing.fsync(c.root)
	if err := sensor.SweepFsync(disk.Dir); err != nil {
		log.Warn("left-over file not removed", obs.Err, err)
	}
	bound := probe.Bound(c.period)
	etcd := &sensor.Etcd{URL: c.sensing.MetricsURL, Client: sensor.NewPageClient(bound)}
	p := probe.New(probe.Settings{
		Node: c.node, BootID: id, Period: c.period, Size: c.sensing.Window, Cluster: cluster, Log: log,
		Sensors: probe.Real(c.d.Dial, root.FS(), c.sensing.memory(c.root), etcd, disk),
	})
	log.Info("probe started", "version", c.d.Version, obs.Node, c.node, "period", c.period.String(), "window", c.sensing.Window)
	go lean.Stay(cmd.Context(), c.period, log)
	if l != nil {
		return c.watched(cmd.Context(), p, cluster, l)
	}
	p.Run(cmd.Context(), nil)
	return nil
}
