package status

import (
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// Event is one line of a Node's history, as `kubectl describe node` shows it.
type Event struct {
	Node, UID string
	// Warning is something a person may have to look at.
	Warning bool
	Reason  string // a word, as of an Event's reason
	Message string // at most MaxEventMessage bytes
}

// Reasons of events.
const (
	EventSwapStep       = "SwapStep"
	EventSwapCompleted  = "SwapCompleted"
	EventSwapRolledBack = "SwapRolledBack"
	EventSwapAbandoned  = "SwapAbandoned"
	EventFit            = "Fit"
	EventUnfit          = "Unfit"
	EventUnknown        = "FitnessUnknown"
)

// MaxEventMessage is the API's bound.
const MaxEventMessage = 1024

// Events are what has come between two published statuses: each state that a
// swap reached, and how it ended, on both of its Nodes; and each verdict that
// has become another one, on its Node. A controller that
// begins with a status somebody else published tells nothing twice. Without a
// status before there is no news: what stands there may be old.
func Events(prev, now *Status) []Event {
	if prev == nil {
		return nil
	}
	var all []Event
	if s := now.Swap; s != nil && (prev.Swap == nil || prev.Swap.ID != s.ID || prev.Swap.Step != s.Step) {
		all = append(all, pair(s.Out, s.In, Event{Reason: EventSwapStep, Message: fmt.Sprintf("swap %s of %s for %s: %s", s.ID, s.Out, s.In, s.Step)})...)
	}
	if l := now.LastSwap; l != nil && (prev.LastSwap == nil || prev.LastSwap.ID != l.ID) {
		all = append(all, pair(l.Out, l.In, ended(l))...)
	}
	all = append(all, turned(prev.Verdicts, now.Verdicts)...)
	for i := range all {
		all[i].Message = Short(all[i].Message, MaxEventMessage)
	}
	return all
}

// turned are the verdicts that have become another one. The first verdict on a
// host is news only when it is not good.
func turned(prev, now []fitness.Verdict) []Event {
	before := make(map[string]fitness.Fitness, len(prev))
	for _, v := range prev {
		before[v.Node] = v.Fitness
	}
	var all []Event
	for _, v := range now {
		was, known := before[v.Node]
		if v.Fitness == was || !known && v.Fitness != fitness.Unfit {
			continue
		}
		e := Event{Node: v.Node}
		switch v.Fitness {
		case fitness.Fit:
			e.Reason, e.Message = EventFit, v.Node+" is fit"
		case fitness.Unfit:
			e.Reason, e.Warning, e.Message = EventUnfit, true, v.Node+" is unfit"
		default:
			e.Reason, e.Message = EventUnknown, "whether "+v.Node+" is fit is not known"
		}
		var words []string
		for _, r := range v.Reasons {
			if r.Weight != fitness.Note {
				words = append(words, r.Sentence)
			}
		}
		if len(words) > 0 {
			e.Message += ": " + strings.Join(words, "; ")
		}
		all = append(all, e)
	}
	return all
}

func pair(out, in string, e Event) []Event {
	onOut, onIn := e, e
	onOut.Node, onIn.Node = out, in
	return []Event{onOut, onIn}
}

func ended(l *LastSwap) Event {
	e := Event{Message: fmt.Sprintf("swap %s: %s out, %s in, %s", l.ID, l.Out, l.In, l.Outcome)}
	switch l.Outcome {
	case fleet.OutcomeCompleted:
		e.Reason = EventSwapCompleted
	case fleet.OutcomeRolledBack:
		e.Reason, e.Warning = EventSwapRolledBack, true
	default:
		e.Reason, e.Warning = EventSwapAbandoned, true
	}
	words := make([]string, 0, len(l.Reasons)+2)
	for _, r := range l.Reasons {
		words = append(words, r.Sentence)
	}
	if l.OutgoingPending {
		words = append(words, l.Out+" has not come back as an agent yet")
	}
	if l.IncomingPending {
		words = append(words, "the clean-up of "+l.In+" is still owed")
	}
	if len(words) > 0 {
		e.Message += ": " + strings.Join(words, "; ")
	}
	return e
}

// Short cuts a text to a limit of bytes, at a rune's beginning.
func Short(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const dots = "…"
	cut := limit - len(dots)
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + dots
}
