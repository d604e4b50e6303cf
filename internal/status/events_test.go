package status_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Issue 4: an event on both Nodes for each state a swap reaches, and for its end.
func TestEvents(t *testing.T) {
	swap := func(step string) *status.Status {
		return &status.Status{Swap: &status.Swap{ID: "id-1", Out: "n1", In: "n4", Step: step}}
	}
	ended := func(outcome fleet.Outcome, change func(*status.LastSwap)) *status.Status {
		l := &status.LastSwap{ID: "id-1", Out: "n1", In: "n4", Outcome: outcome}
		if change != nil {
			change(l)
		}
		return &status.Status{LastSwap: l}
	}
	verdict := func(f fitness.Fitness) *status.Status {
		return &status.Status{Verdicts: []fitness.Verdict{{Node: "n1", Fitness: f, Reasons: []fitness.Reason{
			{Weight: fitness.Ground, Sentence: "n1 to n2 is slow"}, {Weight: fitness.Note, Sentence: "n1 saw a change of the leader"},
		}}}}
	}
	both := func(e status.Event) []status.Event {
		out, in := e, e
		out.Node, in.Node = "n1", "n4"
		return []status.Event{out, in}
	}
	for name, test := range map[string]struct {
		prev, now *status.Status
		want      []status.Event
	}{
		"without a status before, what stands there is no news": {nil, swap("promote"), nil},
		"nothing has changed": {swap("promote"), swap("promote"), nil},
		"a swap begins":       {&status.Status{}, swap("begin"), both(status.Event{Reason: status.EventSwapStep, Message: "swap id-1 of n1 for n4: begin"})},
		"a swap goes on":      {swap("begin"), swap("promote"), both(status.Event{Reason: status.EventSwapStep, Message: "swap id-1 of n1 for n4: promote"})},
		"a swap completes":    {swap("end"), ended(fleet.OutcomeCompleted, nil), both(status.Event{Reason: status.EventSwapCompleted, Message: "swap id-1: n1 out, n4 in, completed"})},
		"a swap completes and its host is not back": {
			swap("end"), ended(fleet.OutcomeCompleted, func(l *status.LastSwap) { l.OutgoingPending = true }),
			both(status.Event{Reason: status.EventSwapCompleted, Message: "swap id-1: n1 out, n4 in, completed: n1 has not come back as an agent yet"}),
		},
		"a swap is rolled back, with its reasons": {
			swap("rollback"), ended(fleet.OutcomeRolledBack, func(l *status.LastSwap) {
				l.Reasons = []status.Reason{{Sentence: "n4 did not join"}, {Sentence: "its port is shut"}}
				l.IncomingPending = true
			}),
			both(status.Event{Warning: true, Reason: status.EventSwapRolledBack, Message: "swap id-1: n1 out, n4 in, rolled-back: n4 did not join; its port is shut; the clean-up of n4 is still owed"}),
		},
		"a swap is abandoned": {swap("wait"), ended(fleet.OutcomeAbandoned, nil), both(status.Event{Warning: true, Reason: status.EventSwapAbandoned, Message: "swap id-1: n1 out, n4 in, abandoned"})},
		"a host turns unfit, with its reasons": {verdict(fitness.Fit), verdict(fitness.Unfit), []status.Event{
			{Node: "n1", Warning: true, Reason: status.EventUnfit, Message: "n1 is unfit: n1 to n2 is slow"},
		}},
		"a host turns fit again":           {verdict(fitness.Unknown), verdict(fitness.Fit), []status.Event{{Node: "n1", Reason: status.EventFit, Message: "n1 is fit: n1 to n2 is slow"}}},
		"a host turns unknown":             {verdict(fitness.Fit), verdict(fitness.Unknown), []status.Event{{Node: "n1", Reason: status.EventUnknown, Message: "whether n1 is fit is not known: n1 to n2 is slow"}}},
		"a verdict that stays is no news":  {verdict(fitness.Unfit), verdict(fitness.Unfit), nil},
		"a first verdict is news when bad": {&status.Status{}, verdict(fitness.Unfit), []status.Event{{Node: "n1", Warning: true, Reason: status.EventUnfit, Message: "n1 is unfit: n1 to n2 is slow"}}},
		"a first good verdict is no news":  {&status.Status{}, verdict(fitness.Fit), nil},
		"an ended swap is told once":       {ended(fleet.OutcomeAbandoned, nil), ended(fleet.OutcomeAbandoned, nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, status.Events(test.prev, test.now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnEventsMessageIsBounded(t *testing.T) {
	now := &status.Status{LastSwap: &status.LastSwap{ID: "id-1", Out: "n1", In: "n4", Reasons: []status.Reason{{Sentence: strings.Repeat("ü", 2000)}}}}
	for _, e := range status.Events(&status.Status{}, now) {
		if len(e.Message) > status.MaxEventMessage || !strings.HasSuffix(e.Message, "ü…") {
			t.Errorf("%d bytes, ends with %q", len(e.Message), e.Message[len(e.Message)-8:])
		}
	}
}
