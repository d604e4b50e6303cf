package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// A third party removes the outgoing host's member while the swap is rolled back. The
// voters of before cannot come back by themselves; regrade must not take a further
// vote, and ends with the target number of voters or says what it waits for (safety
// rules 2, 4 and 6).
func TestTheOutgoingMemberIsRemovedByAThirdPartyDuringARollback(t *testing.T) {
	fallen := fault{At: swap.Promote, Kind: "falls as it is added", Host: "s1", For: 40 * time.Second, Effect: 8}
	failing := func(at swap.State, after int) fault {
		return fault{At: at, After: after, Kind: "crash", Host: "s1", For: 400 * time.Second}
	}
	removed := func(at swap.State, after int) fault {
		return fault{At: at, After: after, Kind: "member removed", Host: "v1"}
	}
	asked := func(at swap.State, after int) fault {
		return fault{At: at, After: after, Kind: "removal asked", Host: "v1"}
	}
	for _, c := range []struct {
		name   string
		faults []fault
		// ends is how: the row taken and the number of voters.
		ends string
	}{
		{"as the rollback of a candidate that was added begins", []fault{fallen, removed(swap.Rollback, 0)}, "RestoreWait with 2 voters"},
		{"while the candidate's removal is waited for", []fault{fallen, removed(swap.Rollback, 12)}, "RestoreWait with 2 voters"},
		{"as the rollback of a newcomer that votes begins, nothing stepped down", []fault{failing(swap.DrainOut, 0), removed(swap.Rollback, 0)}, "RestoreWait with 2 voters"},
		{"as the rollback begins, the outgoing voter stepped down", []fault{failing(swap.StepDown, 5), removed(swap.Rollback, 0)}, "RestoreWait with 2 voters"},
		{"in the middle of it, the outgoing voter stepped down", []fault{failing(swap.StepDown, 5), removed(swap.Rollback, 6)}, "RestoreWait with 2 voters"},
		{"once the candidate is gone", []fault{fallen, removed(swap.Restore, 0)}, "VotersEven with 2 voters"},
		{"once the candidate is gone, the outgoing voter on its way up", []fault{failing(swap.StepDown, 5), removed(swap.Restore, 4)}, "RestoreWait with 2 voters"},
		{"by a request that k3s takes up before it is withdrawn", []fault{failing(swap.StepDown, 5), asked(swap.Rollback, 0)}, "NothingToDo with 3 voters"},
		{"by a request once the candidate is gone", []fault{failing(swap.StepDown, 5), asked(swap.Restore, 0)}, "RestoreWait with 2 voters"},
		{"while k3s is slow to take the newcomer back", []fault{
			failing(swap.StepDown, 5), {At: swap.Rollback, Kind: "member controller backs off", For: 400 * time.Second}, removed(swap.Rollback, 3), {Kind: "quiet", For: time.Minute},
		}, "NothingToDo with 3 voters"},
		{"just before k3s would take the newcomer back", []fault{
			failing(swap.StepDown, 5), {At: swap.Rollback, Kind: "member controller backs off", For: 4500 * time.Millisecond}, removed(swap.Rollback, 3), {Kind: "quiet", For: time.Minute},
		}, "NothingToDo with 3 voters"},
		{"of a newcomer that was away, has stopped its server and is needed again", []fault{
			{At: swap.Settle, Kind: "peer port blocked", Host: "s1", For: 95 * time.Second}, removed(swap.Rollback, 2), {Kind: "quiet", For: 3 * time.Minute},
		}, "NothingToDo with 3 voters"},
		// k3s takes the newcomer out in the moment in which the outgoing voter is removed.
		{"of a newcomer that is dead and is removed in the same moment", []fault{
			{At: swap.Settle, Kind: "network lost", Host: "s1", For: 95 * time.Second}, removed(swap.Rollback, 2), {Kind: "quiet", For: 3 * time.Minute},
		}, "RestoreWait with 2 voters"},
		{"and its host is rebooted", []fault{failing(swap.StepDown, 5), removed(swap.Restore, 2), {Kind: "reboot", Host: "v1", After: 20}}, "RestoreWait with 2 voters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: c.faults})
				for _, s := range wrong {
					t.Error(s)
				}
				show(t, r)
				d := r.turn.Decision
				if got := fmt.Sprintf("%s with %d voters", d.Row, len(r.w.Voters())); got != c.ends {
					t.Errorf("it ends as %s, want %s; %s", got, c.ends, r.words())
				}
				if d.Row == "RestoreWait" && !slices.ContainsFunc(d.Waits, func(w status.Reason) bool {
					return w.Node == "v1" && w.Code == swap.CodeVoterCount
				}) {
					t.Errorf("the wait does not name who was removed: %v", d.Waits)
				}
			})
		})
	}
}

// The request to remove the outgoing voter stands while k3s backs off, and a staying
// voter is lost: k3s must not carry it out minutes later (safety rules 2 and 4).
func TestARequestDoesNotOutliveWhatItWasAskedOn(t *testing.T) {
	for _, c := range []struct {
		name string
		lost fault
		// ends is the row taken and the number of voters.
		ends string
	}{
		{"somebody removes a staying voter", fault{At: swap.Remove, Kind: "member removed", Host: "v2"}, "Frozen with 3 voters"},
		{"a staying voter never returns", fault{At: swap.Remove, Kind: "never returns", Host: "v2"}, "RemovalHeld with 4 voters"},
		{"a staying voter is away for a while", fault{At: swap.Remove, Kind: "crash", Host: "v2", For: 400 * time.Second}, "NothingToDo with 3 voters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
					{At: swap.StepDown, Kind: "member controller backs off", For: 90 * time.Second}, c.lost, {Kind: "quiet", For: 3 * time.Minute},
				}})
				for _, s := range wrong {
					t.Error(s)
				}
				show(t, r)
				d := r.turn.Decision
				if got := fmt.Sprintf("%s with %d voters", d.Row, len(r.w.Voters())); got != c.ends {
					t.Errorf("it ends as %s, want %s; %s", got, c.ends, r.words())
				}
				if d.State != swap.Idle && !slices.ContainsFunc(d.Waits, func(w status.Reason) bool { return w.Node == "v2" }) {
					t.Errorf("the wait does not name v2: %v", d.Waits)
				}
			})
		})
	}
}
