package hostd_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/status"
)

// Found by auto_swap: while the slow host that goes out led etcd, each pass of the
// controller took half a minute (safety rule 8).
func TestTheOutgoingHostHandsLeadershipOverBeforeAnyStep(t *testing.T) {
	r := newRig(t, "a")
	r.order("")
	r.until("handed over", func() bool { return r.leader == idB })
	if calls := r.calls(); len(calls) != 0 {
		t.Errorf("more than that was done: %q", calls)
	}
	if j := r.journal(); j.Step != "" {
		t.Errorf("a step was begun: %+v", j)
	}
}

func TestLeadershipIsHandedOverEarlyOnlyWhereItIsAskedFor(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"the Lease is not held":     func(r *rig) { r.lease.Holder = "" },
		"the target is no voter":    func(r *rig) { r.self.Annotations[keys().LeadTo()] = "d" },
		"the target is this host":   func(r *rig) { r.self.Annotations[keys().LeadTo()] = "a" },
		"there is no record":        func(r *rig) { delete(r.self.Annotations, keys().Record()) },
		"nobody is named":           func(r *rig) { delete(r.self.Annotations, keys().LeadTo()) },
		"the record is of another":  func(r *rig) { r.self.Annotations[keys().Record()] = "{}" },
		"this host is not the one ": func(r *rig) { r.node = "b"; r.leader = idB; r.ownID = idB; r.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a")
			r.order("")
			change(r)
			before := r.leader
			for range 5 {
				r.pass()
			}
			if r.leader != before || r.moves != 0 {
				t.Errorf("leadership was asked to move %d times, the leader is %s", r.moves, r.leader)
			}
		})
	}
}

// With a target that cannot be reached nothing is written for an election timeout
// each time: it is not tried for ever (safety rule 8).
func TestAnEarlyHandOverIsTriedOnce(t *testing.T) {
	r := newRig(t, "a")
	r.stuck = true
	r.order("")
	for range 20 {
		r.pass()
	}
	if r.moves != 1 {
		t.Errorf("leadership was asked to move %d times, want once", r.moves)
	}
	r.stuck = false
	r.order(fleet.StepStepDown) // which asks by itself
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	if r.leader != idB {
		t.Errorf("leader is %s", r.leader)
	}
}

func TestAJoinHostThatFaltersIsWaitedForAMinute(t *testing.T) { // safety rule 17
	falters := []status.Problem{{Code: status.CodeJoinHostFalters, Sentence: "https://10.0.0.2:6443: /db/info says status 500"}}
	t.Run("and the promotion goes on when it answers", func(t *testing.T) {
		r := newRig(t, "d")
		r.pre = falters
		r.order(fleet.StepPromote)
		r.until("it says so", func() bool { return len(r.reports) > 0 && r.report().Code == status.CodeJoinHostFalters })
		for range 10 {
			r.pass()
		}
		if calls := r.calls(); len(calls) != 0 {
			t.Errorf("something was done: %q", calls)
		}
		r.pre = nil
		r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
	})
	t.Run("and then it is refused", func(t *testing.T) {
		r := newRig(t, "d")
		r.pre = falters
		r.order(fleet.StepPromote)
		began := r.now
		r.until("refused", r.settled(fleet.StepPromote, fleet.PhaseRefused))
		if took := r.now.Sub(began); took < status.JoinPatience || took > status.JoinPatience+time.Minute {
			t.Errorf("refused after %s", took)
		}
		if calls := r.calls(); len(calls) != 0 {
			t.Errorf("something was done: %q", calls)
		}
	})
	t.Run("but not when something else speaks against it", func(t *testing.T) {
		r := newRig(t, "d")
		r.pre = append([]status.Problem{{Code: "LowDisk", Sentence: "1 MiB is free"}}, falters...)
		r.order(fleet.StepPromote)
		began := r.now
		r.until("refused", r.settled(fleet.StepPromote, fleet.PhaseRefused))
		if r.now.Sub(began) > 10*time.Second {
			t.Errorf("refused after %s", r.now.Sub(began))
		}
	})
}

// Found by a breaker on the lab: the voter that a stepped-down host's order names had
// lost its power, which is how this host came to lead again. It handed leadership to
// the dead voter at each look, and nothing was written meanwhile (safety rule 8).
func TestLeadershipIsNotHandedToAVoterThatDoesNotAnswer(t *testing.T) {
	down := func(t *testing.T) *rig {
		r := newRig(t, "a")
		r.order(fleet.StepStepDown)
		r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
		r.moves = 0
		return r
	}
	t.Run("another voter takes it", func(t *testing.T) {
		r := down(t)
		r.leader, r.silent = idA, []fleet.MemberID{idB}
		r.until("handed over", func() bool { return r.leader == idC })
		if r.moves != 1 {
			t.Errorf("leadership was asked to move %d times", r.moves)
		}
	})
	t.Run("nobody does, and it waits", func(t *testing.T) {
		r := down(t)
		r.leader, r.silent = idA, []fleet.MemberID{idB, idC}
		for range 20 {
			r.pass()
		}
		if r.moves != 0 {
			t.Errorf("leadership was asked to move %d times", r.moves)
		}
		r.silent = nil
		r.until("handed over", func() bool { return r.leader == idB })
	})
	t.Run("never the newcomer", func(t *testing.T) {
		r := down(t)
		r.members = append(r.members, member("d", idD, 4))
		r.leader, r.silent = idA, []fleet.MemberID{idB, idC}
		for range 20 {
			r.pass()
		}
		if r.moves != 0 {
			t.Errorf("leadership went to %s", r.leader)
		}
	})
	t.Run("one that answers and does not take it is asked again after a while", func(t *testing.T) {
		r := down(t)
		r.leader, r.stuck = idA, true
		began := r.now
		r.until("asked twice", func() bool { return r.moves == 2 })
		if took := r.now.Sub(began); took < hostd.HandOverAgain || took > hostd.HandOverAgain+10*time.Second {
			t.Errorf("asked again after %s", took)
		}
	})
	t.Run("an early hand-over waits for the voter that is named", func(t *testing.T) {
		r := newRig(t, "a")
		r.silent = []fleet.MemberID{idB}
		r.order("")
		for range 5 {
			r.pass()
		}
		if r.moves != 0 {
			t.Errorf("leadership was asked to move %d times", r.moves)
		}
		r.silent = nil
		r.until("handed over", func() bool { return r.leader == idB })
	})
}
