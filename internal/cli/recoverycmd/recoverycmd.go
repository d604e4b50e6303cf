package recoverycmd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/reach"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/recovery"
	"github.com/exadev/regrade/internal/web"
)

// Deps are what the commands are made with; tests put a cluster in memory here.
type Deps struct {
	Connect func(a kube.Access, namespace string, marks []string) (recovery.Cluster, error)
	// Look is how often `recovery status` looks again.
	Look time.Duration
	// Version is the program's, for the API server's log.
	Version string
}

// Production reaches a real cluster.
func Production(version string) Deps {
	return Deps{
		Connect: func(a kube.Access, namespace string, marks []string) (recovery.Cluster, error) {
			conn, err := kube.Connect(a)
			if err != nil {
				return nil, err
			}
			return kube.NewRecoveryAPI(conn, namespace, marks...), nil
		},
		Look: 2 * time.Second, Version: version,
	}
}

// command is one command line.
type command struct {
	e env.Env
	d Deps
	s Settings

	cluster      reach.Cluster
	shown        reach.Shown
	self, prefix string
	period       time.Duration
}

// New makes `regrade recovery`.
func New(e env.Env, d Deps) *cobra.Command {
	c := &command{e: e, d: d, period: fitness.DefaultPeriod}
	cmd := &cobra.Command{
		Use:   "recovery",
		Short: "Taint nodes that are dead as out of service, and clear them: the loop of the fleet-node-recovery Deployment",
		Long: `Recovery looks at the Nodes each poll. One whose kubelet has been silent for the
threshold (Ready Unknown, as this process saw it by its own clock) gets the taint
node.kubernetes.io/out-of-service, so that Kubernetes makes its pods anew elsewhere;
Ready again it loses it. Left alone are the own node, nodes of a swap or of a held
Lease, servers at a level, and taints that are not this program's.

The taint says that a host is dead: on one that still runs, a volume of it can be
given to another host. So a host is left alone while its own probe, its host daemon
or its kubelet's Lease was seen to go on within the threshold. Where the cluster has
probes, a voter is tainted only when those of two other hosts get no answer from it
any more; one that it refuses is an answer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	fs := cmd.PersistentFlags()
	c.s.Flags(fs, "")
	fs.StringVar(&c.self, "self-node", "", "the Node that this process runs on, which it never taints; the Deployment gives it")
	env.Bind(fs, "self-node", "NODE_RECOVERY_SELF_NODE")
	c.cluster.Flags(fs)
	fs.StringVar(&c.prefix, "label-prefix", fleet.DefaultPrefix, "prefix of regrade's labels, annotations and taint")
	env.Bind(fs, "label-prefix", "FLEET_ROLE_LABEL_PREFIX")
	fs.Var(env.Seconds{Value: &c.period, Min: time.Second, Max: time.Hour}, "period", "period of the fleet's probes and host daemons: one that was heard of within four is alive")
	env.Bind(fs, "period", "FLEET_ROLE_PERIOD_SECONDS")
	c.shown.Flags(cmd.Flags(), ":9466")
	cmd.AddCommand(c.status())
	return cmd
}

// Flags are all that recovery takes, as a list of names.
func Flags() *pflag.FlagSet {
	cmd := New(env.Env{}, Deps{})
	fs := pflag.NewFlagSet("recovery", pflag.ContinueOnError)
	fs.AddFlagSet(cmd.PersistentFlags())
	fs.AddFlagSet(cmd.Flags())
	return fs
}

// read finishes the settings; nothing has been asked of an API yet.
func (c *command) read(cmd *cobra.Command) (p recover.Policy, access kube.Access, err error) {
	if err := env.Read(cmd, c.e.Getenv); err != nil {
		return p, access, err
	}
	keys, err := fleet.NewKeys(c.prefix)
	if err != nil {
		return p, access, env.Usage("%v", err)
	}
	if p, err = c.s.Policy(cmd, "", keys); err != nil {
		return p, access, err
	}
	if c.self != "" {
		if err := fleet.CheckName(c.self); err != nil {
			return p, access, env.Usage("%s: %v", name(cmd, "self-node"), err)
		}
	}
	if access, err = c.cluster.Access("regrade-recovery/" + c.d.Version); err != nil {
		return p, access, err
	}
	access.Plain = true
	p.Self, p.Period = c.self, c.period
	return p, access, nil
}

func (c *command) run(cmd *cobra.Command) error {
	p, access, err := c.read(cmd)
	if err != nil {
		return err
	}
	log, err := c.shown.Logger(c.e.Err)
	if err != nil {
		return err
	}
	l, err := c.shown.Listen()
	if err != nil {
		return err
	}
	if l != nil {
		defer func() { _ = l.Close() }()
	}
	cluster, err := c.d.Connect(access, c.cluster.Namespace, p.Marks())
	if err != nil {
		return env.Failed(err)
	}
	teller, _ := cluster.(recovery.Teller)
	r := recovery.New(cluster, recovery.Settings{Policy: p, Poll: c.s.poll, DryRun: c.s.DryRun, Teller: teller, Log: log})
	log.Info("recovery started", "version", c.d.Version, "after", p.After.String(), "poll", c.s.poll.String(), "evidence", p.Evidence, "prune", p.Prune.String(), "dry_run", c.s.DryRun)
	if p.Self == "" {
		log.Warn("the own node is not known, so that nothing keeps it from being tainted", slog.String("setting", "NODE_RECOVERY_SELF_NODE"))
	}
	go lean.Stay(cmd.Context(), c.s.poll, log)
	var requests func() int64
	if q, ok := cluster.(interface{ Requests() int64 }); ok {
		requests = q.Requests
	}
	// A pass reads five times at most and writes some, each with its own bound.
	shown := web.NewRecovery(c.d.Version, 3*c.s.poll+2*time.Minute, requests, time.Now)
	return reach.Watched(cmd.Context(), l, shown.Pages(), func(ctx context.Context) {
		r.Run(ctx, func(t recovery.Turn) { shown.Passed(pass(t)) })
	})
}

// pass is a turn as the metrics take it.
func pass(t recovery.Turn) web.RecoveryPass {
	p := web.RecoveryPass{Took: t.Took, Date: t.Date, Decision: t.Decision, Err: t.Err}
	for _, d := range t.Done {
		w := web.RecoveryWrite{Action: d.Action, Result: "ok"}
		switch {
		case d.DryRun:
			w.Result = "dry-run"
		case errors.Is(d.Err, execute.ErrConflict):
			w.Result = "conflict"
		case d.Err != nil:
			w.Result = "error"
		}
		p.Writes = append(p.Writes, w)
	}
	return p
}
