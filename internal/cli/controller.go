package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/swap"
	"github.com/exadev/regrade/internal/web"
)

func newController(e env.Env, d Deps) *cobra.Command {
	var s settings
	var once bool
	var format, level, metrics string
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Decide and carry out swaps: the loop of the fleet-role Deployment",
		Long: `Controller observes the fleet, decides the next step of a swap, carries out at
most one action and publishes the status, again and again. It makes every
change on the API and none on a host.

With --once it ends after one pass. It first looks until the hosts' reports have
been seen to change, which takes up to two periods: a report counts as fresh
only when it changed while somebody looked. It needs --self, the same one each
time: a swap is gone on with by the controller that its Lease names. Its id is that
with "-once" behind it, so that in the pod of a running controller it is another
controller, which leaves that one's swap alone. Two at a time need two --self.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.read(cmd, e); err != nil {
				return err
			}
			if once && s.self == "" {
				// An id made up for each pass is a new controller each time: none would
				// ever have taken over the swap that the one before it began.
				return env.Usage("--once needs --self: the same id in each pass, another one than any other --once's")
			}
			protected, err := s.protected()
			if err != nil {
				return err
			}
			log, err := obs.NewLogger(e.Err, format, level)
			if err != nil {
				return env.Usage("%v", err)
			}
			cluster, err := s.connect(d)
			if err != nil {
				return failed(err)
			}
			id := ownID(s.self)
			if once {
				id = onceID(id)
			}
			teller, _ := cluster.(controller.Teller)
			c := controller.New(cluster, s.decisions(d), controller.Settings{
				Self: id, Policy: s.policy, LeaseDuration: s.lease,
				ActuatorConfigMap: s.actuators, Protected: protected, Log: log, Teller: teller,
			})
			log.Info("controller started", "version", version(), "dry_run", s.policy.DryRun, "target", s.policy.Target, "period", s.policy.Period.String())
			if once {
				return failed(passOnce(cmd.Context(), c, looker{limit: 2 * s.policy.Period, look: d.Look, server: server(cluster), errs: e.Err}))
			}
			go lean.Stay(cmd.Context(), s.policy.Period, log)
			if metrics == "" {
				c.Run(cmd.Context(), cluster, nil)
				return nil
			}
			return failed(runWatched(cmd.Context(), c, cluster, metrics, s.policy))
		},
	}
	s.flags(cmd.Flags())
	cmd.Flags().BoolVar(&once, "once", false, "end after one pass")
	cmd.Flags().StringVar(&s.self, "self", "", "this controller's own id: its pod's UID; default: made up")
	env.Bind(cmd.Flags(), "self", "FLEET_ROLE_SELF")
	cmd.Flags().StringVar(&metrics, "metrics-address", "", "serve /metrics, /healthz and /readyz here, such as :9464; empty for not at all")
	env.Bind(cmd.Flags(), "metrics-address", "FLEET_ROLE_METRICS_ADDRESS")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	env.Bind(cmd.Flags(), "log-format", "FLEET_ROLE_LOG_FORMAT")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	env.Bind(cmd.Flags(), "log-level", "FLEET_ROLE_LOG_LEVEL")
	return cmd
}

// runWatched runs a controller that shows what it does. It ends when the pages
// cannot be served: a controller that nobody can see is not what was asked for.
func runWatched(ctx context.Context, c *controller.Controller, cluster Cluster, address string, p swap.Policy) error {
	l, err := web.Listen(address)
	if err != nil {
		return err
	}
	var requests func() int64
	if r, ok := cluster.(interface{ Requests() int64 }); ok {
		requests = r.Requests
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A pass asks the API some ten times at most, each with its own bound.
	shown := web.NewController(version(), 2*p.Period+2*time.Minute, requests, time.Now)
	served := make(chan error, 1)
	go func() {
		served <- web.Serve(ctx, l, shown.Pages())
		cancel()
	}()
	c.Run(ctx, cluster, func(t controller.Turn) {
		pass := web.Pass{Took: t.Took, Err: t.Err, Status: t.Status}
		if t.Acted {
			pass.Acted = string(t.Decision.Action.Kind)
		}
		shown.Passed(pass)
	})
	cancel()
	return <-served
}

// onceID tells a pass that a person or a timer makes from the controller that runs:
// run in its pod, it is given the same id (safety rule 21).
func onceID(self string) string { return self + "-once" }

// passOnce looks until what the hosts report is fresh, or for the looker's limit,
// and then makes one pass.
func passOnce(ctx context.Context, c *controller.Controller, l looker) error {
	l.observe = c.Look
	if _, err := l.until(ctx, settled); err != nil {
		return err
	}
	t := c.Pass(ctx)
	if t.Err != nil {
		return t.Err
	}
	return t.PublishErr
}
