package sim_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

// lateLists is a history in which the candidate falls in the moment after its
// member was added, and every voter's report is written long after its list was
// read: no list that the controller sees holds the candidate.
func lateLists(t *testing.T, alter func(swap.Decision) swap.Decision) *run {
	t.Helper()
	r, err := newRun(sim.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	r.alter = alter
	r.w.Guard()
	r.spend(40 * time.Second)
	r.request("v1", "s1")
	until := func(what string, ok func() bool) {
		t.Helper()
		for range 4000 {
			if ok() {
				return
			}
			r.step()
		}
		t.Fatalf("never came: %s", what)
	}
	until("the promotion", func() bool { return r.turn.Decision.State == swap.Promote && r.daemons["s1"] != nil })
	for _, n := range []string{"v1", "v2", "v3"} {
		r.daemons[n].stall(0, "write report", 40*time.Second)
	}
	until("the candidate's member", func() bool {
		return slices.ContainsFunc(r.w.Log(), func(e sim.Event) bool { return e.What == "added as a learner" })
	})
	r.w.Reboot("s1")
	r.spend(50 * time.Second)
	r.heal()
	if !r.settle(40 * time.Minute) {
		t.Error("nothing ended: " + r.words())
	}
	return r
}

// Safety rule 6.
func TestAListReadBeforeTheCandidateWasAddedEndsNoRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lateLists(t, nil)
		defer show(t, r)
		for _, v := range r.w.Violations() {
			t.Error(v)
		}
		for _, s := range r.left() {
			t.Error(s)
		}
		if st := r.status(); st == nil || st.LastSwap == nil || st.LastSwap.Outcome != fleet.OutcomeRolledBack {
			t.Errorf("status: %+v", st)
		}
	})
}

// The break check of the row that holds it: without it the swap is published as
// rolled back while the candidate's member stands in the true list.
func TestTheInvariantNoticesARollbackThatEndsOnOldLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lateLists(t, func(d swap.Decision) swap.Decision {
			if d.Row == "RollbackListsOld" {
				d.Action = swap.Action{Kind: swap.MarkMemberGone, Node: "s1", Swap: d.Swap.ID}
			}
			return d
		})
		for _, v := range r.w.Violations() {
			if v.Invariant == sim.AsBefore && strings.Contains(v.Sentence, string(fleet.OutcomeRolledBack)) {
				return
			}
		}
		show(t, r)
		for _, e := range r.w.Log() {
			t.Log(e)
		}
		t.Errorf("not noticed; noticed were %v", r.w.Violations())
	})
}
