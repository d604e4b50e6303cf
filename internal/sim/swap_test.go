package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sim"
)

// show prints what happened when a test failed.
func show(t *testing.T, r *run) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, e := range r.w.Log() {
		t.Log(e)
	}
	d := r.turn.Decision
	t.Logf("last turn: state %s row %s action %s %s: %s; waits %v; error %v", d.State, d.Row, d.Action.Kind, d.Action.Node, d.Sentence, d.Waits, r.turn.Err)
}

func TestASwapWithoutTroubleIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := newRun(sim.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer show(t, r)
		r.w.Guard()
		r.spend(time.Minute)
		began := time.Now()
		r.request("v1", "s1")
		if !r.settle(10 * time.Minute) {
			t.Error("the swap did not end")
		}
		t.Logf("took %s", time.Since(began))
		for _, v := range r.w.Violations() {
			t.Error(v)
		}
		for _, s := range r.w.Clean() {
			t.Error(s)
		}
		st := r.status()
		if st == nil || st.LastSwap == nil || st.LastSwap.Outcome != fleet.OutcomeCompleted {
			t.Fatalf("status: %+v", st)
		}
	})
}
