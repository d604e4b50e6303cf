package hostd_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Leadership went, the voter that took it fell before the restart, and this one was
// elected: the step-down waits for that voter as for any other, and goes on when it is
// back. The break check: count the hand-over's bound from the first one.
func TestAStepDownHandsOverAgainWhenItsNewLeaderFell(t *testing.T) { // safety rules 2 and 8
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("leadership has gone", func() bool { return r.leader == idB })
	r.silent = []fleet.MemberID{idB}
	since, elected := r.now, false
	r.until("held for long", func() bool {
		if !elected && r.now.Sub(since) > 15*time.Second {
			elected, r.leader = true, idA
		}
		return r.now.Sub(since) > time.Minute
	})
	if j := r.journal(); j.Phase != fleet.PhaseRunning {
		t.Fatalf("given up: %s %s %s", j.Phase, j.Code, j.Message)
	}
	r.silent = nil
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
}
