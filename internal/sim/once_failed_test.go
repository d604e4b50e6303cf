package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// Each of these histories broke something once.
func TestHistoriesThatOnceFailed(t *testing.T) {
	for name, p := range map[string]plan{
		// The run-out Lease named the swap before, which held the one under way for
		// ever (safety rule 25).
		"the Lease of an ended swap is put back in the middle of the next one": {
			Voters: 3, Standbys: 1, Seed: 5, Out: "v2", In: "s1",
			Back: []fault{
				{At: swap.Prepare, Kind: "old lease put back", Host: "v2", Effect: 3, For: 20 * time.Second},
				{At: swap.Promote, After: 11, Kind: "controller dies", Effect: 3},
			},
		},
		// The held Lease of the swap before the last one began that swap once more.
		"the Lease of the swap before the last one is put back": {
			Voters: 3, Standbys: 1, Seed: 1, Out: "v1", In: "s1",
			Back: []fault{
				{After: 75, Kind: "old lease put back", Host: "v1", Effect: 7, For: time.Minute},
				{After: 117, Kind: "old lease put back", Host: "s1", Effect: 3, For: 400 * time.Second},
			},
		},
		// Its promotion had failed and no rollback was ever ordered: the server's join
		// drop-in stayed (safety rules 16 and 18).
		"the candidate falls, says so, and falls again until the swap has ended": {
			Voters: 3, Standbys: 1, Seed: 4, Out: "v2", In: "s1",
			Faults: []fault{
				{At: swap.Promote, Kind: "falls as it is added", Host: "s1", Effect: 1},
				{At: swap.Promote, After: 6, Kind: "crash", Host: "s1", For: 400 * time.Second},
				{At: swap.End, After: 3, Kind: "quiet", For: time.Second},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(p)
				for _, s := range wrong {
					t.Error(s)
				}
				show(t, r)
			})
		})
	}
}
