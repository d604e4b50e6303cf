package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/status"
)

// goneFor is how many looks in a row a request must be gone, with no swap to
// show for it, before it counts as dropped: the request goes a moment before
// the status names the swap.
const goneFor = 3

// deniedFor is how many looks in a row the API must refuse before nothing is
// expected of it any more: one that has just started refuses what it will allow.
const deniedFor = 10

// A controller publishes at least each minute, changed or not.
const (
	// quietFor is how long a status may stand still before it is said.
	quietFor = 2 * time.Minute
	// expired is when a request that nobody took up is past its life for any
	// controller that may still come, by whichever clock (safety rule 25).
	expired = status.RequestLife + time.Minute
)

// CodeNoController is the command's own reason: nobody takes the request up.
const CodeNoController = "NoController"

// follow reads the published status until the swap that the request asked for
// has ended. before is the last swap when the request was recorded: a later one
// of this pair is ours, whatever any clock says.
func (a *asker) follow(ctx context.Context, answer Answer, before fleet.SwapID, started time.Time, timeout time.Duration) error {
	var step, waits, shown, failing string
	gone, refused, moved, quiet := 0, 0, time.Now(), false
	for {
		cm, err := a.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
		if ctx.Err() != nil {
			return a.end(answer, fleet.ExitNotYet, "interrupted; the request stands and the controller goes on")
		}
		why := denied(err, server(a.cluster))
		if refused++; why == nil {
			refused = 0
		}
		if refused >= deniedFor {
			return a.end(answer, fleet.ExitNotYet, fmt.Sprintf("no longer followed: %v; the request stands and the controller goes on", why))
		}
		failing = sayOnce(a.e.Err, failing, err)
		if err == nil {
			_, pending := cm.Data[fleet.KeyRequest]
			if raw := cm.Data[fleet.KeyStatus]; raw != shown {
				shown, moved, quiet = raw, time.Now(), false
			}
			still := time.Since(moved).Round(time.Second)
			if pending && still >= expired {
				return a.untaken(ctx, answer)
			}
			if still >= quietFor && !quiet {
				quiet = true
				a.say("no controller has published a status for %s: is the Deployment %s running?", still, fleet.LeaseHolder)
			}
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
					if d := st.Dropped; d != nil && d.Out == a.pair.Out && d.In == a.pair.In && d.Asked.Equal(answer.asked) {
						answer.Reasons = d.Reasons
						return a.end(answer, fleet.ExitFailed, "refused: the controller has dropped the request")
					}
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
			if quiet {
				return a.end(answer, fleet.ExitNotYet, fmt.Sprintf("not ended after %s; no controller has published a status for %s", timeout, time.Since(moved).Round(time.Second)))
			}
			return a.end(answer, fleet.ExitNotYet, fmt.Sprintf("not ended after %s; the controller goes on", timeout))
		}
		sleep.For(ctx, a.d.Look)
	}
}

// untaken ends the wait for a request that no controller has taken up in its
// life: none will now. A Lease that names the swap says that one did and fell
// before it could publish: then the next controller goes on with it.
func (a *asker) untaken(ctx context.Context, answer Answer) error {
	answer.Reasons = []status.Reason{{
		Code:     CodeNoController,
		Sentence: fmt.Sprintf("no controller has published a status for %s: is the Deployment %s running?", expired, fleet.LeaseHolder),
	}}
	l, err := a.cluster.Lease(ctx)
	switch id := l.SwapID(); {
	case err != nil:
		return a.end(answer, fleet.ExitNotYet, fmt.Sprintf("not ended; whether the swap has begun is not known: %v", err))
	case id != "" && id.Is(a.pair.Out, a.pair.In):
		return a.end(answer, fleet.ExitNotYet, fmt.Sprintf("not ended; the swap %s has begun and no controller goes on with it", id))
	}
	return a.end(answer, fleet.ExitFailed, fmt.Sprintf("refused: no controller took the request up within %s, and it has expired", status.RequestLife))
}

// sayOnce prints an error when it is another one than before, so that a loop
// that goes on does not hide it.
func sayOnce(w io.Writer, before string, err error) string {
	if err == nil {
		return ""
	}
	if err.Error() != before {
		_, _ = fmt.Fprintln(w, "regrade:", err)
	}
	return err.Error()
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
