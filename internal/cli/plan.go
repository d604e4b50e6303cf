package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Plan is what plan -o json prints.
type Plan struct {
	Decision swap.Decision `json:"decision"`
	// Missing says what could not be read.
	Missing []string `json:"missing,omitempty"`
	// Observation is all that the decision saw, with --observation: a bug
	// report's attachment, and a golden case once the bug is mended.
	Observation *swap.Observation `json:"observation,omitempty"`
}

func newPlan(e env.Env, d Deps) *cobra.Command {
	var s settings
	var out output
	var whole bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what the next pass would do, and why; change nothing",
		Long: `Plan observes and decides as the controller does, and stops before the action.
It judges as the controller whose id the published status carries. It looks until
the hosts' reports have been seen to change, up to two periods.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.read(cmd, e); err != nil {
				return err
			}
			if err := out.check(); err != nil {
				return err
			}
			if whole && !out.json() {
				return env.Usage("--observation goes with -o json")
			}
			protected, err := s.protected()
			if err != nil {
				return err
			}
			cluster, err := s.connect(d)
			if err != nil {
				return failed(err)
			}
			rules := s.decisions(d)
			b := observe.New(cluster, observe.Settings{
				Policy: s.policy, ActuatorConfigMap: s.actuators, Protected: protected, Judge: rules.Judge, Window: rules.Window,
			})
			sight, err := looker{observe: observing(b), limit: 2 * s.policy.Period, look: d.Look, server: server(cluster), errs: e.Err}.until(cmd.Context(), settled)
			if err != nil {
				return failed(err)
			}
			o := sight.Observation
			o.Self = controllerOf(&o)
			p := Plan{Decision: d.Rules.Next(o, s.policy), Missing: o.Missing}
			if whole {
				p.Observation = &o
			}
			if out.json() {
				return failed(printJSON(e.Out, p))
			}
			printPlan(e.Out, p)
			return nil
		},
	}
	s.flags(cmd.Flags())
	out.flags(cmd.Flags())
	cmd.Flags().BoolVar(&whole, "observation", false, "with -o json: print what was observed, too")
	return cmd
}

// controllerOf is the id of the controller at work: the one in the Lease during
// a swap, else the one that published.
func controllerOf(o *swap.Observation) string {
	if id := o.Lease.Annotations[fleet.LeaseController]; o.Lease.SwapID() != "" && id != "" {
		return id
	}
	if o.Status != nil {
		return o.Status.Controller
	}
	return ""
}

func printPlan(w io.Writer, p Plan) {
	d := p.Decision
	action := "nothing"
	if d.Acts() {
		action = string(d.Action.Kind)
		if d.Action.Node != "" {
			action += " on " + d.Action.Node
		}
		if d.Action.Step != "" {
			action += " (" + string(d.Action.Step) + ")"
		}
	}
	_, _ = fmt.Fprintf(w, "state   %s\naction  %s\nwhy     %s (%s)\n", d.State, action, d.Sentence, d.Code)
	for _, f := range d.Facts {
		_, _ = fmt.Fprintf(w, "fact    %s: %s\n", f.Name, f.Value)
	}
	for _, m := range p.Missing {
		_, _ = fmt.Fprintf(w, "missing %s\n", m)
	}
	printReasons(w, append([]status.Reason(nil), d.Waits...))
}
