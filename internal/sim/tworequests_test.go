package sim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

// Somebody asks k3s to remove the newcomer, or deletes its Node, while k3s backs off: OUT's removal is not
// asked for beside it, or is withdrawn, for k3s would carry both out and leave two
// voters, with the swap published as completed (safety rules 2 and 5).
func TestARequestForTheNewcomerHoldsTheRemovalOfTheOutgoingVoter(t *testing.T) {
	for _, at := range []swap.State{swap.Settle, swap.DrainOut, swap.StepDown, swap.Remove} {
		for _, kind := range []string{"removal asked", "node deleted"} {
			t.Run(fmt.Sprint(at, " ", kind), func(t *testing.T) {
				play(t, plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
					{At: swap.Promote, Kind: "member controller backs off", For: 110 * time.Second},
					{At: at, Kind: kind, Host: "s1", Effect: 1},
					{Kind: "quiet", For: 4 * time.Minute},
				}})
			})
		}
	}
}

// The same where a newcomer is taken back and somebody asks for a voter of before.
func TestARequestForAVoterOfBeforeHoldsTheRemovalOfTheNewcomer(t *testing.T) {
	for _, c := range []struct{ kind, host string }{{"removal asked", "v2"}, {"node deleted", "v2"}, {"node deleted", "v1"}} {
		t.Run(c.kind+" "+c.host, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
					{At: swap.Settle, Kind: "peer port blocked", Host: "s1", For: 400 * time.Second},
					{At: swap.Rollback, Kind: "member controller backs off", For: 90 * time.Second},
					{Kind: c.kind, Host: c.host, Effect: 1},
					{Kind: "quiet", For: 6 * time.Minute},
				}})
				for _, s := range wrong {
					t.Error(s)
				}
				if len(r.w.Voters()) != 3 {
					t.Errorf("%d voters; %s", len(r.w.Voters()), r.words())
				}
			})
		})
	}
}

// k3s takes remove=True for remove=true (k3s-facts §5.1). Somebody asks so for a staying
// voter while k3s backs off: OUT's removal is not asked for beside it, or k3s would
// carry both out and leave two voters (safety rules 2 and 5).
func TestARequestInCapitalsForAStayingVoterHoldsTheRemoval(t *testing.T) {
	for _, word := range []string{"true", "True", "TRUE"} {
		t.Run(word, func(t *testing.T) {
			faults["removal asked so"] = func(r *run, f fault) {
				r.w.OperatorAsksRemoval(f.Host)
				r.person = true
				r.w.Edit(f.Kind, func(a *sim.API) { a.Nodes[f.Host].Annotations[fleet.AnnotationEtcdRemove] = word })
			}
			defer delete(faults, "removal asked so")
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
					{At: swap.DrainOut, Kind: "member controller backs off", For: 90 * time.Second},
					{Kind: "removal asked so", Host: "v2"},
					{Kind: "quiet", For: 4 * time.Minute},
				}})
				for _, s := range wrong {
					t.Error(s)
				}
				if got := fmt.Sprintf("%s with %d voters", r.turn.Decision.Row, len(r.w.Voters())); got != "Frozen with 3 voters" {
					t.Errorf("it ends as %s; %s", got, r.words())
				}
			})
		})
	}
}
