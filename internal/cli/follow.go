package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// goneFor is how many looks in a row a request must be gone, with no swap to
// show for it, before it counts as dropped: the request goes a moment before
// the status names the swap.
const goneFor = 3

// follow reads the published status until the swap that the request asked for
// has ended. before is the last swap when the request was recorded: a later one
// of this pair is ours, whatever any clock says.
func (a *asker) follow(ctx context.Context, answer Answer, before fleet.SwapID, started time.Time, timeout time.Duration) error {
	var step, waits string
	gone := 0
	for {
		cm, err := a.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
		if err == nil {
			_, pending := cm.Data[fleet.KeyRequest]
			st, err := status.ParseStatus([]byte(cm.Data[fleet.KeyStatus]))
			if err == nil {
				if l := st.LastSwap; l != nil && l.ID != before && l.Out == a.pair.Out && l.In == a.pair.In {
					return a.ended(answer, *l)
				}
				sw := st.Swap
				ours := sw != nil && sw.Out == a.pair.Out && sw.In == a.pair.In
				switch {
				case ours:
					gone = 0
					if sw.Step != step {
						step = sw.Step
						a.say("%s  %s", st.At.UTC().Format(time.TimeOnly), step)
					}
					answer.Reasons = sw.Reasons
				case pending:
					gone = 0
					answer.Reasons = st.Next.Waits
				default:
					gone++
				}
				if now := words(answer.Reasons); now != waits && now != "" {
					a.say("%s  waits: %s", st.At.UTC().Format(time.TimeOnly), now)
					waits = now
				}
			}
		}
		if gone >= goneFor {
			return a.end(answer, fleet.ExitFailed, "refused: the request was dropped before a pass took it up")
		}
		if timeout > 0 && time.Since(started) >= timeout {
			return a.end(answer, fleet.ExitNotYet, fmt.Sprintf("not ended after %s; the controller goes on", timeout))
		}
		if !pause(ctx, a.d.Look) {
			return ctx.Err()
		}
	}
}

func (a *asker) ended(answer Answer, l status.LastSwap) error {
	answer.Outcome, answer.Reasons = l.Outcome, l.Reasons
	code := fleet.ExitFailed
	if l.Outcome == fleet.OutcomeCompleted {
		code = fleet.ExitDone
	}
	took := l.EndedAt.Sub(l.ID.Started())
	return a.end(answer, code, fmt.Sprintf("%s: %s out, %s in, after %s", l.Outcome, l.Out, l.In, took.Round(time.Second)))
}
