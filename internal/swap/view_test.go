package swap

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Safety rule 25: marks that cannot be read for a while cost a swap none of its
// times, nor the knowledge of how far it was.
func TestAContradictionKeepsTheTimesOfTheSwap(t *testing.T) {
	g := settledIn().with(func(g *given) { g.host(1).Node.Annotations["example.org/role-swap"] = "x" })
	d := Next(g.Observation, policy())
	if d.State != Contradiction || d.Swap == nil || len(d.Swap.Steps) != len(g.Status.Swap.Steps) || len(d.Swap.Reasons) == 0 {
		t.Errorf("state %s, swap %+v", d.State, d.Swap)
	}
}

// Safety rules 7 and 24: lists that are missing for a moment neither start the
// newcomer's failing anew nor take it back.
func TestBlindnessKeepsTheTimeOfAFailingNewcomer(t *testing.T) {
	since := t0.Add(50 * time.Minute)
	g := voting().with(func(g *given) {
		g.Status.Swap.FailingSince = since
		g.host(2).Fresh = false
	})
	d := Next(g.Observation, policy())
	if !d.Swap.FailingSince.Equal(since) || d.Action.Step == fleet.StepRollback {
		t.Errorf("failing since %s, action %+v", d.Swap.FailingSince, d.Action)
	}
}
