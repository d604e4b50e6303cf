package scenarios

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// R-E2-43, safety rules 12 and 13: the outgoing host freezes, as a paused
// container does, once IN votes. It is removed in that state, and when it goes on
// it does not come back as a member, and becomes an agent by itself.
func Test_swap_paused(t *testing.T) {
	s, out, in := troubled(t)
	s.leaderDies = true
	s.ask(out, in)
	s.awaitState("drain-out", "step-down")
	var mends []fault.Undo
	for _, unit := range []string{cluster.ServerUnit, cluster.HostUnit} {
		mend, err := fault.Pause(s.Host(out), unit)
		s.must(err)
		mends = append(mends, mend)
	}
	s.Logf("%s is frozen", out)
	s.untilMember(out, "removed", func(m *cluster.Member) bool { return m == nil })
	// A learner stall later it still is frozen.
	s.neverAMember(out, 20*time.Second)
	for _, mend := range mends {
		s.must(mend())
	}
	s.Logf("%s goes on", out)
	s.neverAMember(out, 20*time.Second)
	s.completed(out, in)
}

// R-E2-44: the candidate's peer port is cut before its etcd starts. k3s evicts the
// learner that never started; members and voters are those of before.
func Test_swap_blocked_peer(t *testing.T) {
	s, out, in := troubled(t)
	before := s.members()
	s.ask(out, in)
	s.awaitFile(in, fleet.FileJoining)
	mend, err := fault.DropPort(t.Context(), s.Host(in), cluster.PeerPort)
	s.must(err)
	s.untilMember(in, "listed", listed)
	s.rolledBack(out, in, before)
	s.must(mend())
	s.backAsAgent(in)
	s.checkAgent(in)
	s.end("n2", "n3", out)
}
