package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// A rollback is begun on the newcomer and its daemon falls; somebody removes the
// outgoing voter's member, so that the swap goes forward and is completed without a
// word of the newcomer's daemon. When that comes back, its note is of a rollback that
// nobody wants: the server it would stop votes (safety rules 2 and 12).
func TestADaemonThatComesBackWithARollbackOfACompletedSwapStopsNoVoter(t *testing.T) {
	for _, effects := range []int{1, 2, 3, 4} { // it falls before the stop, or once it is noted
		t.Run(fmt.Sprint("falls after ", effects), func(t *testing.T) {
			faults["etcd is too slow for its daemon"] = func(r *run, f fault) { r.mute(f.Host, f.For) }
			defer delete(faults, "etcd is too slow for its daemon")
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
					{At: swap.StepDown, Kind: "member controller backs off", For: 300 * time.Second},
					{At: swap.Remove, Kind: "etcd is too slow for its daemon", Host: "s1", For: 3 * time.Minute},
					{At: swap.Rollback, Kind: "daemon dies", Host: "s1", Effect: effects},
					{After: 6, Kind: "daemon down", Host: "s1", For: 20 * time.Minute},
					{Kind: "member removed", Host: "v1"},
					{Kind: "quiet", For: 30 * time.Minute},
				}})
				for _, s := range wrong {
					t.Error(s)
				}
				if up := serving(t, r); up != 3 {
					t.Errorf("%d voters serve; %s", up, r.words())
					show(t, r)
				}
			})
		})
	}
}

// It goes forward again, has noted so and falls before it has started its server; the
// swap is completed meanwhile.
func TestADaemonThatFallsAsItGoesForwardStartsItsServerWhenItComesBack(t *testing.T) {
	faults["etcd is too slow for its daemon"] = func(r *run, f fault) { r.mute(f.Host, f.For) }
	faults["falls as it goes forward"] = func(r *run, f fault) {
		for range 2000 {
			log, ordered := r.w.Log(), false
			for _, e := range log[max(0, len(log)-40):] {
				ordered = ordered || e.Node == f.Host && strings.Contains(e.What, "role-step=promote")
				if ordered && e.By == f.Host && e.What == "journal written" {
					r.w.DaemonDied(f.Host)
					r.newDaemon(f.Host)
					r.daemons[f.Host].due = time.Now().Add(f.For)
					return
				}
			}
			r.step()
		}
	}
	defer delete(faults, "etcd is too slow for its daemon")
	defer delete(faults, "falls as it goes forward")
	synctest.Test(t, func(t *testing.T) {
		r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
			{At: swap.StepDown, Kind: "member controller backs off", For: 300 * time.Second},
			{At: swap.Remove, Kind: "etcd is too slow for its daemon", Host: "s1", For: 3 * time.Minute},
			{At: swap.Rollback, After: 10, Kind: "member removed", Host: "v1"},
			{Kind: "falls as it goes forward", Host: "s1", For: 10 * time.Minute},
			{Kind: "quiet", For: 30 * time.Minute},
		}})
		for _, s := range wrong {
			t.Error(s)
		}
		if up := serving(t, r); up != 3 {
			t.Errorf("%d voters serve; %s", up, r.words())
			show(t, r)
		}
	})
}

// serving is how many voters answer a linearizable read.
func serving(t *testing.T, r *run) (up int) {
	t.Helper()
	for name := range r.w.Voters() {
		if r.w.HostEtcd(name).Local(t.Context()).View.Linearizable {
			up++
		}
	}
	return up
}
