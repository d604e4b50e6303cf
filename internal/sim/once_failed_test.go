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
