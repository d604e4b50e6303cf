package sim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// standsStill lives through a swap in which a daemon stands still right before its
// first call of such words.
func standsStill(t *testing.T, p plan, words string) {
	t.Helper()
	faults["stands still"] = func(r *run, f fault) { r.daemons[f.Host].stall(0, words, f.For) }
	defer delete(faults, "stands still")
	p.Voters, p.Standbys, p.Seed, p.Out, p.In = 3, 1, 7, "v1", "s1"
	synctest.Test(t, func(t *testing.T) {
		_, wrong := live(p)
		for _, s := range wrong {
			t.Error(s)
		}
	})
}

// Safety rule 2: a staying voter falls while the outgoing host's daemon, which has
// seen a quorum without it, stands still on its way to the restart. The break
// check: carry the restart out however old the facts are.
func TestADaemonThatStoodStillBeforeTheRestartLooksAgain(t *testing.T) {
	for _, d := range []time.Duration{30 * time.Second, 60 * time.Second, 2 * time.Minute} {
		t.Run(fmt.Sprint("wakes after ", d), func(t *testing.T) {
			standsStill(t, plan{Faults: []fault{
				{At: swap.StepDown, Kind: "stands still", Host: "v1", For: d},
				{After: 5, Kind: "quiet", For: 8 * time.Second},
				{Kind: "crash", Host: "v2", For: 400 * time.Second},
				{Kind: "quiet", For: d + 3*time.Minute},
			}}, "restart k3s server")
		})
	}
}

// Safety rule 18: the swap ends while the candidate's daemon stands still right
// before the start of its server; it wakes at each tenth of a second between two
// ticks of k3s. The break check: carry the start out however old the facts are.
func TestADaemonThatStoodStillBeforeTheStartJoinsNoEndedSwap(t *testing.T) {
	for ms := range 10 {
		d := 10*time.Minute + time.Duration(ms)*100*time.Millisecond
		t.Run(fmt.Sprint("wakes after ", d), func(t *testing.T) {
			standsStill(t, plan{Faults: []fault{
				{At: swap.Promote, Kind: "stands still", Host: "s1", For: d},
				{Kind: "quiet", For: d + 3*time.Minute},
			}}, "start k3s server")
		})
	}
}
