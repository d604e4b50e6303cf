package sim_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Somebody removes the newcomer's member once OUT's is gone: the swap does not end with
// the words that it votes (safety rule 28).
func TestASwapWhoseNewcomerWasRemovedSaysSoAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
			{At: swap.Finish, Kind: "member removed", Host: "s1"}, {Kind: "quiet", For: 4 * time.Minute},
		}})
		for _, s := range wrong {
			t.Error(s)
		}
		st := r.status()
		if st == nil || st.LastSwap == nil || !slices.ContainsFunc(st.LastSwap.Reasons, func(x status.Reason) bool { return x.Node == "s1" && x.Code == swap.CodeVoterCount }) {
			t.Errorf("the end of the swap names nothing: %+v; %s", st.LastSwap, r.words())
		}
	})
}
