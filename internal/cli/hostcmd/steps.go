package hostcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
)

// learnerStall is how long k3s lets a learner stand still (k3s-facts §4.1); a
// promotion may take that long beside the operation itself (R-E2-18).
const learnerStall = 300 * time.Second

func (h *host) step(use, short string, step fleet.Step) *cobra.Command {
	return &cobra.Command{
		Use:   use + " ID",
		Short: short,
		Long: short + `.

The swap ID must be the one that the Lease kube-system/fleet-regrade is held for,
and the Node's desired-role label must go with the step.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return env.Usage("want the swap's ID")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := fleet.ParseSwapID(args[0])
			if err != nil {
				return env.Usage("%v", err)
			}
			return h.take(cmd.Context(), hostd.Command{Swap: id, Step: step})
		},
	}
}

// holding are the parts of a command that acts, with the host lock and the Nodes
// of now.
func (h *host) holding(ctx context.Context, c hostd.Command) (*parts, error) {
	p, err := h.parts()
	if err != nil {
		return nil, err
	}
	if err := p.take(ctx); err != nil {
		return nil, err
	}
	p.begin(ctx)
	p.daemon.Command = &c
	return p, nil
}

// begin lists the Nodes once; what needs them says what it lacks.
func (p *parts) begin(ctx context.Context) {
	if err := p.api.Begin(ctx, false); err != nil {
		p.log.Warn("nodes not listed", "err", err)
	}
}

// take runs a step to its end.
func (h *host) take(ctx context.Context, c hostd.Command) error {
	p, err := h.holding(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = p.lock.Unlock() }()
	return h.drive(ctx, p, c)
}

// drive passes until the step is settled or has taken too long.
func (h *host) drive(ctx context.Context, p *parts, c hostd.Command) error {
	d := hostd.New(p.daemon)
	// The step has its own bound; the command lets it say so itself.
	bound := time.Duration(p.settings.OperationTimeout) + 30*time.Second
	if c.Step == fleet.StepPromote || c.Step == fleet.StepRollback {
		bound += learnerStall
	}
	end := h.e.Now().Add(bound)
	var last error
	for {
		wake, err := d.Pass(ctx)
		if ctx.Err() != nil {
			return env.Failed(ctx.Err())
		}
		if err != nil {
			last = err
		}
		j, dec := d.Facts().Journal, d.Decision()
		switch {
		case j.Is(c.Swap, c.Step) && j.Ended():
			return h.settled(j)
		case dec.Code != "" && !dec.Acts() && !j.Running(c.Swap, c.Step) && holds[dec.Code]:
			return refused(dec.Code, dec.Sentence)
		}
		if h.e.Now().After(end) {
			return &env.Exit{Code: fleet.ExitNotYet, Err: fmt.Errorf("not yet after %s: %s", bound, waitText(dec, last))}
		}
		if wake.Again {
			continue
		}
		if err := h.d.Wait(ctx, wake.After); err != nil {
			return env.Failed(err)
		}
	}
}

// holds are waits that do not pass by themselves: a command that has changed
// nothing yet ends on them.
var holds = map[string]bool{
	hostd.CodeStaleSwap: true, hostd.CodeLeaseNotHeld: true, hostd.CodeLeaseTaken: true, hostd.CodeBadOrder: true, hostd.CodeBadRecord: true,
	hostd.CodeNoAPI: true, hostd.CodeNoNode: true, hostd.CodeForeignPrefix: true, hostd.CodeBadJournal: true, hostd.CodeNotServer: true, hostd.CodeNoCondition: true, hostd.CodeNoAgent: true, hostd.CodeTooFewVoters: true,
	hostd.CodeDatastoreMount: true, hostd.CodeNoOwnJoinURL: true, hostd.CodeRoleMismatch: true, hostd.CodeBadRoleFile: true,
}

func (h *host) settled(j hostd.Journal) error {
	switch j.Phase {
	case fleet.PhaseDone:
		_, _ = fmt.Fprintf(h.e.Out, "%s: done\n", j.Step)
		if j.Message != "" {
			_, _ = fmt.Fprintln(h.e.Out, j.Message)
		}
		return nil
	case fleet.PhaseRefused:
		return refused(j.Code, j.Message)
	}
	return env.Failed(fmt.Errorf("%s failed: %s: %s", j.Step, j.Code, j.Message))
}

func refused(code, sentence string) error {
	return &env.Exit{Code: fleet.ExitRefused, Err: fmt.Errorf("refused: %s: %s", code, sentence)}
}

func waitText(d hostd.Decision, last error) string {
	switch {
	case d.Code != "":
		return d.Code + ": " + d.Sentence
	case last != nil:
		return last.Error()
	}
	return "the step is under way"
}

func (h *host) finishDemote() *cobra.Command {
	return &cobra.Command{
		Use:   "finish-demote",
		Short: "Make this removed server an agent, on evidence that its member is gone",
		Long: `Needs no Lease. The evidence is the datastore's tombstone, this host's member id
missing from the list of another voter of the same cluster, or the controller's
word on the Node under a live Lease. Without any: exit status 3, nothing changed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.finish(cmd.Context(), hostd.Command{Step: fleet.StepFinishDemote})
		},
	}
}

func (h *host) finish(ctx context.Context, c hostd.Command) error {
	p, err := h.holding(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = p.lock.Unlock() }()
	// Before there is evidence nothing is reported (R-216-23).
	quiet := p.daemon
	quiet.Silent = true
	d := hostd.New(quiet)
	begun := false
	end := h.e.Now().Add(time.Duration(p.settings.OperationTimeout))
	for {
		wake, err := d.Pass(ctx)
		if ctx.Err() != nil {
			return env.Failed(ctx.Err())
		}
		f, dec := d.Facts(), d.Decision()
		running := f.Journal.Step == fleet.StepFinishDemote && f.Journal.Phase == fleet.PhaseRunning
		switch {
		case running && !begun:
			begun = true
			d = hostd.New(p.daemon)
			continue
		case begun && f.Journal.Step == fleet.StepFinishDemote && f.Journal.Phase.Settled():
			return h.settled(f.Journal)
		case !begun && err == nil && !dec.Acts() && hostd.Rest(f):
			_, _ = fmt.Fprintln(h.e.Out, "nothing to finish: this host is an agent")
			return nil
		case !begun && err == nil && !dec.Acts() && holds[dec.Code]:
			return refused(dec.Code, dec.Sentence)
		case !begun && err == nil && !dec.Acts():
			text := "nothing says that this host's member is gone"
			if dec.Code != "" {
				text = dec.Code + ": " + dec.Sentence
			}
			return &env.Exit{Code: fleet.ExitNotYet, Err: fmt.Errorf("not yet: %s", text)}
		case h.e.Now().After(end):
			return &env.Exit{Code: fleet.ExitNotYet, Err: fmt.Errorf("not yet: %s", waitText(dec, err))}
		}
		if wake.Again {
			continue
		}
		if err := h.d.Wait(ctx, wake.After); err != nil {
			return env.Failed(err)
		}
	}
}

func (h *host) promoteLocal() *cobra.Command {
	var join string
	cmd := &cobra.Command{
		Use:   "promote-local",
		Short: "The host half of an installer's promotion; needs a free Lease",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if join == "" {
				return env.Usage("--join: name the voter to join")
			}
			id, err := h.localID(cmd.Context(), join, fleet.StepPromote)
			if err != nil {
				return err
			}
			return h.take(cmd.Context(), hostd.Command{Swap: id, Step: fleet.StepPromote, Local: true, Join: join})
		},
	}
	cmd.Flags().StringVar(&join, "join", "", "node name of the voter to join")
	return cmd
}

func (h *host) demoteLocal() *cobra.Command {
	return &cobra.Command{
		Use:   "demote-local",
		Short: "The host half of an installer's demotion; needs a free Lease and three other Ready voters",
		Long: `The first run marks the host as leaving and ends with status 3: remove the member
then, with the annotation etcd.k3s.cattle.io/remove=true on the Node. The next
run, or the daemon, makes the host an agent once the member is gone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := h.localID(cmd.Context(), "local", fleet.StepFinishDemote)
			if err != nil {
				return err
			}
			return h.finish(cmd.Context(), hostd.Command{Swap: id, Step: fleet.StepFinishDemote, Local: true})
		},
	}
}

// localID is the id of an installer's step: the one under way, else a new one.
func (h *host) localID(ctx context.Context, other string, step fleet.Step) (fleet.SwapID, error) {
	p, err := h.parts()
	if err != nil {
		return "", err
	}
	f, err := p.daemon.Host.Observe(ctx)
	if err != nil {
		return "", env.Failed(err)
	}
	j, err := hostd.ParseJournal(f.Journal)
	if err != nil {
		return "", env.Failed(err)
	}
	switch {
	case step == fleet.StepFinishDemote && f.Files.Leaving != "":
		return f.Files.Leaving, nil
	case step == fleet.StepPromote && j.Local && j.Step == step && j.Phase == fleet.PhaseRunning:
		return j.Swap, nil
	}
	return fleet.NewSwapID(h.e.Now(), other, p.settings.Node), nil
}
