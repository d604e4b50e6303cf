package controller_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Safety rule 25, R-185-19: a deleted status is not "no swap today". Where the cluster
// shows that it has seen swaps the loss is noted, and no cooldown makes up for it.
func TestALostStatusIsNotedWhereTheClusterHasSeenSwaps(t *testing.T) {
	p := swap.DefaultPolicy()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		traces func(*swap.Observation)
		lost   bool
	}{
		"nothing shows a swap":               {func(*swap.Observation) {}, false},
		"a Node was asked for a role":        {func(o *swap.Observation) { o.Hosts[0].Node.Labels = map[string]string{p.Keys.DesiredRole(): "agent"} }, true},
		"a host reports an installer's step": {func(o *swap.Observation) { o.Hosts[0].Report = &status.Report{Swap: "20261130T110000Z-a-b"} }, false},
		"the Lease is there":                 {func(o *swap.Observation) { o.Lease.Exists = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := swap.Observation{Now: now, Hosts: []swap.Host{{Name: "a"}}}
			c.traces(&o)
			st := controller.Compose(nil, &o, swap.Decision{}, p)
			if got := st.HistoryLost.Equal(now); got != c.lost || !st.CooldownUntil.Equal(now.Add(p.Cooldown)) {
				t.Fatalf("lost %s, cooldown until %s", st.HistoryLost, st.CooldownUntil)
			}
			// After the cooldown, and after a swap by hand: it is carried on, and the decision knows.
			o.Now = now.Add(23 * time.Hour)
			st = swap.Concluded(&st, status.LastSwap{ID: "20261201T100000Z-a-b", Out: "a", In: "b", Outcome: fleet.OutcomeAbandoned, Manual: true, EndedAt: o.Now}, p)
			st = controller.Compose(&st, &o, swap.Decision{}, p)
			o.Status = &st
			if d := decide.From(o, p); d.HistoryLost.Equal(now) != c.lost {
				t.Errorf("the decision looks back to %s", d.HistoryLost)
			}
			o.Now = now.Add(swap.HistoryLife)
			if st = controller.Compose(&st, &o, swap.Decision{}, p); !st.HistoryLost.IsZero() {
				t.Errorf("still noted: %s", st.HistoryLost)
			}
		})
	}
}

// A status that went while a swap was under way is missing when that swap ends.
func TestASwapThatEndsWithoutAStatusNotesTheLoss(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, outcome := range []fleet.Outcome{fleet.OutcomeCompleted, fleet.OutcomeRolledBack, fleet.OutcomeAbandoned} {
		st := swap.Concluded(nil, status.LastSwap{ID: "20261130T110000Z-a-b", Out: "a", In: "b", Outcome: outcome, EndedAt: now}, swap.DefaultPolicy())
		if !st.HistoryLost.Equal(now) {
			t.Errorf("%s: lost %s", outcome, st.HistoryLost)
		}
	}
}
