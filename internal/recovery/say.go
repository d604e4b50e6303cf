package recovery

import (
	"context"
	"log/slog"

	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/status"
)

// Reasons of events on Nodes.
const (
	EventTainted = "OutOfServiceTainted"
	EventCleared = "OutOfServiceCleared"
	EventPruned  = "NodePruned"
	EventHeld    = "OutOfServiceHeld"
)

// most is how many events a pass writes: each is a request, and a fleet that falls
// silent as a whole would have one for every node. The log has them all.
const most = 20

// said is what was said last of each node and of the pass: a wait of an hour is one
// line, and what is said again is something else.
type said struct {
	nodes map[string]string
	err   string
	muted bool
}

// say logs a turn and writes its events, of each node once a change.
func (r *Recovery) say(ctx context.Context, t Turn) {
	text := ""
	if t.Err != nil {
		text = t.Err.Error()
	}
	if text != r.said.err {
		if t.Err != nil {
			r.log.Warn("pass cut short", slog.Any(obs.Err, t.Err))
		} else {
			r.log.Info("passes are whole again")
		}
	}
	r.said.err = text
	if t.Decision == nil {
		return
	}
	done := make(map[string]Done, len(t.Done))
	for _, d := range t.Done {
		done[d.Node] = d
	}
	now := make(map[string]string, len(t.Decision.Verdicts))
	told := 0
	for i := range t.Decision.Verdicts {
		v := &t.Decision.Verdicts[i]
		d := done[v.Node]
		now[v.Node] = key(v, d)
		if now[v.Node] == r.said.nodes[v.Node] {
			continue
		}
		r.logOne(v, d)
		if told < most && r.tell(ctx, v, d) {
			told++
		}
	}
	for node := range r.said.nodes {
		if _, still := now[node]; !still {
			r.log.Info("node needs nothing", slog.String(obs.Node, node))
		}
	}
	r.said.nodes = now
}

// key is what makes a verdict news: not how many seconds it speaks of.
func key(v *recover.Verdict, d Done) string {
	k := string(v.Action) + " " + v.Codes()
	if d.Err != nil {
		k += " " + d.Err.Error()
	}
	return k
}

func (r *Recovery) logOne(v *recover.Verdict, d Done) {
	attrs := []any{slog.String(obs.Node, v.Node)}
	if v.Action != recover.ActNone {
		attrs = append(attrs, slog.String(obs.Action, string(v.Action)))
	}
	for _, reason := range v.Reasons {
		attrs = append(attrs, slog.String(obs.Wait+"."+reason.Code, reason.Sentence))
	}
	switch {
	case v.Action == recover.ActNone:
		r.log.Info("node left alone", attrs...)
	case d.Err != nil:
		r.log.Warn("node not changed, decided anew in the next pass", append(attrs, slog.Any(obs.Err, d.Err))...)
	case d.DryRun:
		r.log.Info("node would be changed", attrs...)
	default:
		r.log.Info("node changed", attrs...)
	}
}

func (r *Recovery) tell(ctx context.Context, v *recover.Verdict, d Done) bool {
	// That it stays out of service is no news beside the event of its taint.
	if r.s.Teller == nil || d.Err != nil || v.Codes() == recover.CodeOutOfService {
		return false
	}
	e := status.Event{Node: v.Node, UID: v.UID, Message: sentences(v)}
	switch v.Action {
	case recover.ActTaint:
		e.Reason, e.Warning = EventTainted, true
	case recover.ActClear:
		e.Reason = EventCleared
	case recover.ActPrune:
		e.Reason, e.Warning = EventPruned, true
	default:
		e.Reason = EventHeld
	}
	if d.DryRun {
		e.Message = "a dry run, nothing is written: " + e.Message
	}
	e.Message = status.Short(e.Message, status.MaxEventMessage)
	if err := r.s.Teller.Tell(ctx, e); err != nil {
		if !r.said.muted {
			r.log.Warn("event not written; further ones are not spoken of", slog.String(obs.Node, v.Node), slog.Any(obs.Err, err))
		}
		r.said.muted = true
		return true // it cost a request all the same
	}
	r.said.muted = false
	return true
}

func sentences(v *recover.Verdict) string {
	s := ""
	for i, reason := range v.Reasons {
		if i > 0 {
			s += "; "
		}
		s += reason.Sentence
	}
	return s
}
