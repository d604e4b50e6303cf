package sim_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// A newcomer whose etcd votes and is too slow for its own daemon is taken back. Before
// its daemon comes to the order, another voter has fallen: the newcomer's vote is what
// makes the quorum by then (safety rule 2).
func TestANewcomerThatVotesTooSlowlyToSaySoIsNotStoppedWhileItMakesTheQuorum(t *testing.T) {
	faults["etcd is too slow for its daemon"] = func(r *run, f fault) { r.mute(f.Host, f.For) }
	defer delete(faults, "etcd is too slow for its daemon")
	play(t, plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
		{At: swap.Settle, Kind: "etcd is too slow for its daemon", Host: "s1", For: 30 * time.Minute},
		{At: swap.Rollback, Kind: "daemon down", Host: "s1", For: 90 * time.Second},
		{After: 2, Kind: "crash", Host: "v2", For: 6 * time.Minute},
		{Kind: "quiet", For: 10 * time.Minute},
	}})
}

// The same of the outgoing voter on its way back up: it would be restarted while its
// vote makes the quorum.
func TestAnOutgoingVoterThatVotesTooSlowlyToSaySoIsNotRestartedWhileItMakesTheQuorum(t *testing.T) {
	faults["etcd is too slow for its daemon"] = func(r *run, f fault) { r.mute(f.Host, f.For) }
	defer delete(faults, "etcd is too slow for its daemon")
	play(t, plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
		{At: swap.StepDown, Kind: "member controller backs off", For: 100 * time.Second},
		{At: swap.Remove, Kind: "crash", Host: "s1", For: 400 * time.Second},
		{At: swap.Rollback, Kind: "etcd is too slow for its daemon", Host: "v1", For: 30 * time.Minute},
		{At: swap.Restore, Kind: "daemon down", Host: "v1", For: 90 * time.Second},
		{After: 2, Kind: "crash", Host: "v2", For: 6 * time.Minute},
		{Kind: "quiet", For: 10 * time.Minute},
	}})
}
