package scenarios

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// Safety rule 12: a host that crashed once IN voted is removed while it is down,
// so it finds no tombstone when it comes back. It ends as an agent by itself.
func Test_host_crashed(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.leaderDies = true
	ctx := t.Context()
	s.ask(out, in)
	s.awaitState("drain-out", "step-down")
	s.must(s.Host(out).Crash(ctx, true))
	s.Logf("%s is down", out)
	s.untilMember(out, "removed", func(m *cluster.Member) bool { return m == nil })
	if s.exists(out, fleet.DefaultDataDir+"/server/db/etcd/tombstone") {
		t.Error("there is a tombstone: the scenario proves nothing")
	}
	s.must(s.Host(out).Boot(ctx))
	s.Logf("%s is up again", out)
	s.neverAMember(out, 15*time.Second)
	s.completed(out, in)
}

// Safety rules 6, 10 and 18: the candidate loses its power at four moments of its
// join. Each time the voters are exactly those of before, by id, with no step by
// hand; it comes back and stays an agent (candidate_returns); and in the end the
// same standby is promoted.
func Test_candidate_crashed(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	ctx := t.Context()
	for _, moment := range []struct {
		name string
		come func() (mend fault.Undo)
	}{
		{"before it is listed", func() fault.Undo {
			s.awaitFile(in, fleet.FileJoining)
			return nil
		}},
		{"an unstarted learner", func() fault.Undo {
			s.awaitFile(in, fleet.FileJoining)
			mend, err := fault.DropPort(ctx, s.Host(in), cluster.PeerPort)
			s.must(err)
			s.untilMember(in, "listed", listed)
			return mend
		}},
		{"one second after it is a started learner", func() fault.Undo {
			s.untilMember(in, "a started learner", learner)
			time.Sleep(time.Second)
			return nil
		}},
		{"just after its promotion", func() fault.Undo {
			s.untilMember(in, "a voter", voter)
			return nil
		}},
	} {
		began := time.Now()
		s.Logf("%s", moment.name)
		before := s.members()
		s.ask(out, in)
		mend := moment.come()
		s.must(s.Host(in).Crash(ctx, true))
		s.Logf("%s is down: %s", in, s.members())
		last := s.rolledBack(out, in, before)
		s.Logf("rolled back after %.0f s, pending %v", time.Since(began).Seconds(), last.IncomingPending)
		if mend != nil {
			s.must(mend())
		}
		s.must(s.Host(in).Boot(ctx))
		s.neverAMember(in, 10*time.Second)
		s.backAsAgent(in)
		s.checkNoMarks(in)
		s.sameMembers(before)
	}
	s.mustSwap(out, in)
	s.end("n2", "n3", in)
}
