package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Answer is what swap -o json prints.
type Answer struct {
	Out string `json:"out"`
	In  string `json:"in"`
	// Accepted: every gate held and the request was recorded.
	Accepted bool `json:"accepted"`
	// Outcome is completed, rolled-back or abandoned with --wait; empty when the
	// swap is still under way.
	Outcome fleet.Outcome   `json:"outcome,omitempty"`
	Reasons []status.Reason `json:"reasons,omitempty"`

	asked time.Time // the request's time
}

// CodeRequestPending is the command's own gate: somebody else's request waits.
const CodeRequestPending = "RequestPending"

func newSwap(e env.Env, d Deps) *cobra.Command {
	var s settings
	var wait bool
	var timeout time.Duration
	var out output
	cmd := &cobra.Command{
		Use:   "swap OUT IN",
		Short: "Ask for one swap: standby IN becomes a voter, voter OUT an agent",
		Long: `Swap judges every gate now and, when all hold, records the request for the
controller, which carries it out even in a dry run. A request that no pass takes
up within ten minutes expires.

Servers to join that falter for a moment (JoinHostFalters) are waited for, a minute
at most.

Exit status 0: accepted, every gate holds. 1: refused, with each reason. 2: wrong
usage, or a node that is unknown, ineligible or pinned, or the same node twice.

With --wait it follows the swap. 0: completed. 1: refused, abandoned or rolled
back, with the reasons; or no controller has taken the request up in its life. 3:
still under way at --timeout, or when interrupted.`,
		Example: "  regrade swap nas-2 mini-4 --wait --timeout 1h",
		Args:    exactly("OUT", "IN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.read(cmd, e); err != nil {
				return err
			}
			if err := out.check(); err != nil {
				return err
			}
			if timeout != 0 && !wait {
				return env.Usage("--timeout goes with --wait")
			}
			protected, err := s.protected()
			if err != nil {
				return err
			}
			pair := swap.Pair{Out: args[0], In: args[1]}
			if pair.Out == "" || pair.In == "" {
				return env.Usage("a node name is empty")
			}
			if pair.Out == pair.In {
				return env.Usage("%s cannot be swapped for itself", pair.In)
			}
			cluster, err := s.connect(d)
			if err != nil {
				return failed(err)
			}
			a := asker{e: e, d: d, s: &s, cluster: cluster, protected: protected, pair: pair, out: out}
			return failed(a.run(cmd.Context(), wait, timeout))
		},
	}
	s.flags(cmd.Flags())
	out.flags(cmd.Flags())
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the swap to its end")
	cmd.Flags().Var(env.Seconds{Value: &timeout}, "timeout", "with --wait: end with exit status 3 after this long; 0 waits for ever")
	return cmd
}

// asker makes one request.
type asker struct {
	e         env.Env
	d         Deps
	s         *settings
	cluster   Cluster
	protected func(map[string]string) bool
	pair      swap.Pair
	out       output
}

func (a *asker) run(ctx context.Context, wait bool, timeout time.Duration) error {
	started := time.Now()
	b := observe.New(a.cluster, observe.Settings{
		Self: "swap command", Policy: a.s.policy, ActuatorConfigMap: a.s.actuators, Protected: a.protected,
	})
	for tries := 1; ; tries++ {
		answer, before, err := a.ask(ctx, b)
		if errors.Is(err, execute.ErrConflict) && tries < askTries {
			continue // the map has changed since it was judged: another request, or just a status
		}
		switch {
		case err != nil:
			return err
		case !answer.Accepted:
			code := fleet.ExitFailed
			if usage(answer.Reasons) {
				code = fleet.ExitRefused
			}
			return a.end(answer, code, fmt.Sprintf("refused: %s is not swapped for %s", a.pair.Out, a.pair.In))
		case !wait:
			return a.end(answer, fleet.ExitDone, fmt.Sprintf("accepted: %s out, %s in; every gate holds now", a.pair.Out, a.pair.In))
		}
		a.say("accepted: %s out, %s in", a.pair.Out, a.pair.In)
		return a.follow(ctx, answer, before, started, timeout)
	}
}

// askTries is how often a request is judged and recorded anew because somebody
// else wrote in between.
const askTries = 10

// ask judges the request and records it on the very map that it was judged by, so
// that of two at once the later one finds the first and is refused. before is the
// last swap then.
func (a *asker) ask(ctx context.Context, b *observe.Observer) (answer Answer, before fleet.SwapID, err error) {
	var reasons []status.Reason
	l := looker{observe: observing(b, a.pair.Out, a.pair.In), limit: 2 * a.s.policy.Period, look: a.d.Look, server: server(a.cluster), errs: a.e.Err}
	sight, err := l.until(ctx, func(o *swap.Observation) bool {
		reasons = a.judge(o)
		return len(reasons) == 0 || usage(reasons) || settled(o)
	})
	if err == nil && swap.Falters(reasons) {
		// It passes by itself, mostly within seconds; nothing is recorded meanwhile.
		a.say("%s (%s); waited for up to %s", reasons[0].Sentence, reasons[0].Code, status.JoinPatience)
		l.limit = status.JoinPatience
		sight, err = l.until(ctx, func(o *swap.Observation) bool {
			reasons = a.judge(o)
			return !swap.Falters(reasons)
		})
	}
	if err != nil {
		return answer, "", err
	}
	answer = Answer{Out: a.pair.Out, In: a.pair.In, Reasons: reasons}
	if len(reasons) > 0 {
		return answer, "", nil
	}
	raw, err := json.Marshal(status.Request{Protocol: status.Protocol, Out: a.pair.Out, In: a.pair.In, At: sight.Now})
	if err != nil {
		return answer, "", err
	}
	if err := a.record(ctx, sight.StatusVersion, string(raw)); err != nil {
		return answer, "", fmt.Errorf("record the request: %w", err)
	}
	answer.Accepted, answer.asked = true, sight.Now
	if sight.Status != nil && sight.Status.LastSwap != nil {
		before = sight.Status.LastSwap.ID
	}
	return answer, before, nil
}

// record writes the request. A write whose answer was lost may have been made: then
// the request that stands is this one.
func (a *asker) record(ctx context.Context, version, request string) error {
	err := a.cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, version, map[string]*string{fleet.KeyRequest: &request})
	if err == nil || errors.Is(err, execute.ErrConflict) {
		return err
	}
	cm, again := a.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
	switch {
	case again != nil:
		return fmt.Errorf("%w; whether it stands all the same is not known, `regrade status` shows it", err)
	case cm.Data[fleet.KeyRequest] == request:
		return nil
	}
	return fmt.Errorf("%w; no such request stands now", err)
}

// judge are the gates, and the command's own: one request at a time.
func (a *asker) judge(o *swap.Observation) []status.Reason {
	reasons := swap.Gates(*o, a.s.policy, a.pair)
	r := o.Request
	if r != nil && (r.Out != a.pair.Out || r.In != a.pair.In) && o.Now.Sub(r.At) <= status.RequestLife {
		reasons = append(reasons, status.Reason{
			Code:     CodeRequestPending,
			Sentence: fmt.Sprintf("the request to swap %s for %s has not been taken up yet", r.Out, r.In),
		})
	}
	return reasons
}

func usage(reasons []status.Reason) bool {
	for _, r := range reasons {
		if swap.Usage(r.Code) {
			return true
		}
	}
	return false
}

// say tells a person what happens meanwhile; JSON readers get one document.
func (a *asker) say(format string, args ...any) {
	if !a.out.json() {
		_, _ = fmt.Fprintf(a.e.Out, format+"\n", args...)
	}
}

// end prints the answer and ends with the exit status.
func (a *asker) end(answer Answer, code int, sentence string) error {
	if a.out.json() {
		if err := printJSON(a.e.Out, answer); err != nil {
			return err
		}
	} else {
		w := a.e.Out
		if code != fleet.ExitDone {
			w = a.e.Err
		}
		_, _ = fmt.Fprintln(w, sentence)
		printReasons(w, answer.Reasons)
	}
	if code == fleet.ExitDone {
		return nil
	}
	return &env.Exit{Code: code}
}
