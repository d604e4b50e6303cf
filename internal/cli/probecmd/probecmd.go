package probecmd

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/reach"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/probe"
	"github.com/exadev/regrade/internal/probe/sensor"
	"github.com/exadev/regrade/internal/web"
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

	cluster      reach.Cluster
	shown        reach.Shown
	node, prefix string
	period       time.Duration
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
	env.Root(cmd.PersistentFlags(), &c.root)
	c.sensing.windowFlag(cmd.PersistentFlags())
	fs := cmd.Flags()
	fs.StringVar(&c.node, "node", "", "this host's Node; the DaemonSet gives it")
	env.Bind(fs, "node", "FLEET_ROLE_NODE")
	c.cluster.Flags(fs)
	fs.StringVar(&c.prefix, "label-prefix", fleet.DefaultPrefix, "prefix of regrade's labels, annotations and taint")
	env.Bind(fs, "label-prefix", "FLEET_ROLE_LABEL_PREFIX")
	fs.Var(env.Seconds{Value: &c.period, Min: time.Second, Max: maxPeriod}, "period", "time between two samples")
	env.Bind(fs, "period", "FLEET_ROLE_PERIOD_SECONDS")
	c.shown.Flags(fs, ":9465")
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
	if c.node == "" {
		return env.Usage("--node, or FLEET_ROLE_NODE, must name this host's Node")
	}
	if err := fleet.CheckName(c.node); err != nil {
		return env.Usage("%v", err)
	}
	access, err := c.cluster.Access("regrade-probe/" + c.d.Version)
	if err != nil {
		return err
	}
	log, err := c.shown.Logger(c.e.Err)
	if err != nil {
		return err
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
	// An address in use ends the probe, as it ends the controller, though it is one of
	// the host's own and a stranger may hold it. The kubelet asks there whether the
	// probe lives: the stranger's answers would end it again and again, and its
	// readings would be scraped as the probe's. So it ends at once and says why. A host
	// that nobody measures is unknown, and an unknown host is never swapped.
	l, err := c.shown.Listen()
	if err != nil {
		return err
	}
	if l != nil {
		defer func() { _ = l.Close() }()
	}
	cluster, err := c.d.Connect(access, kube.ProbeOptions{Node: c.node, Namespace: c.cluster.Namespace, Keys: keys})
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
	var requests func() int64
	if r, ok := cluster.(interface{ Requests() int64 }); ok {
		requests = r.Requests
	}
	shown := web.NewProbe(c.d.Version, c.node, long(c.period), requests, time.Now)
	return reach.Watched(cmd.Context(), l, shown.Pages(), func(ctx context.Context) {
		p.Run(ctx, func(t probe.Turn) { shown.Passed(web.ProbePass(t)) })
	})
}

// requestsOfAPass is how many requests a pass makes at most, each with its own
// bound: two lists of Nodes, the entry read and written, the heartbeat made and
// written.
const requestsOfAPass = 6

// long is how long a process that measures may be without a pass: three periods,
// and what a pass takes when nothing answers.
func long(period time.Duration) time.Duration {
	return 3*period + requestsOfAPass*kube.RequestTimeout + probe.Bound(period)
}
