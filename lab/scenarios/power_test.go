package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// everybody are the hosts of the standard fleet.
var everybody = []string{"n1", "n2", "n3", "n4"}

// cut takes the power of all the named hosts at once.
func (s *scenario) cut(names ...string) {
	s.t.Helper()
	failed := make(chan error, len(names))
	for _, name := range names {
		go func() { failed <- s.Host(name).Crash(s.t.Context(), true) }()
	}
	for range names {
		s.must(<-failed)
	}
}

// bootAll boots hosts one after another, in the order given.
func (s *scenario) bootAll(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.must(s.Host(name).Boot(s.t.Context()))
	}
}

// awaitAnswer waits until the API answers a read through a quorum.
func (s *scenario) awaitAnswer(limit time.Duration) {
	s.t.Helper()
	s.eventually(limit, "the cluster to answer", func(ctx context.Context) (bool, string) {
		_, err := s.Members(ctx)
		if err == nil {
			_, err = s.leaseHolder(ctx)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// Safety rules 10, 11, 18, 25: all hosts lose their power at each step of a swap
// and boot in a random order. The swap ends, or is rolled back, and nobody has to help.
func Test_power_cut(t *testing.T) {
	s, out, in := troubled(t)
	s.outage = true
	seed := uint64(time.Now().UnixNano())
	order := rand.New(rand.NewPCG(seed, 0))
	s.Logf("the boots are in the order of seed %d", seed)
	states := []string{"promote", "settle", "step-down", "remove", "finish"}
	if testing.Short() {
		states = []string{"settle", "remove"}
	}
	for _, state := range states {
		began := time.Now()
		before := s.members()
		s.ask(out, in)
		if !s.reaches(state) {
			s.Logf("%s was not seen", state)
		}
		if state == "promote" {
			s.untilMember(in, "listed", listed)
		}
		s.cut(everybody...)
		names := make([]string, len(everybody))
		for i, j := range order.Perm(len(everybody)) {
			names[i] = everybody[j]
		}
		s.Logf("all hosts are down in %s; booting %s", state, strings.Join(names, " "))
		s.bootAll(names...)
		s.awaitAnswer(3 * time.Minute)
		last := s.ended(out, in)
		s.Logf("cut in %s: %s after %.0f s", state, last.Outcome, time.Since(began).Seconds())
		switch last.Outcome {
		case fleet.OutcomeCompleted:
			out, in = in, out
		case fleet.OutcomeRolledBack:
			s.sameMembers(before)
		default:
			t.Fatalf("cut in %s: the swap ended %s: %+v", state, last.Outcome, last.Reasons)
		}
		s.must(s.AwaitNodesReady(t.Context(), 3*time.Minute, everybody...))
		s.checkNoMarks(in)
		s.checkFull(out)
	}
	s.end("n2", "n3", out)
}

// Safety rule 11: all hosts lose their power while the outgoing voter is stepped
// down and still a member, and one voter that stays does not come back. The vote of
// the outgoing host makes the quorum.
func Test_power_cut_leaving(t *testing.T) {
	s, out, in := troubled(t)
	ctx := t.Context()
	s.outage = true
	s.ask(out, in)
	s.awaitFile(out, fleet.FileLeaving)
	s.must(s.controller.Pause()) // so that no removal is asked for
	s.eventually(soon, out+" to be stepped down", func(context.Context) (bool, string) {
		r := s.report(out)
		return r.Step == fleet.StepStepDown && r.Phase == fleet.PhaseDone, string(r.Phase)
	})
	if s.memberOf(s.members(), out) == nil {
		t.Fatalf("%s is no member any more", out)
	}
	s.cut(everybody...)
	// Two of four are no quorum: without the outgoing host nothing is decided.
	s.bootAll("n2", in)
	s.must(cluster.Never(ctx, 20*time.Second, "two of four answer", func(ctx context.Context) (bool, string) {
		list, err := s.MembersAt(ctx, s.Host("n2"))
		return err == nil, list.String()
	}))
	s.bootAll(out)
	s.awaitAnswer(3 * time.Minute)
	s.Logf("with %s the cluster has a quorum again, n3 is still down", out)
	s.must(s.controller.Continue())
	s.writeThrough("n2")
	s.waitsFor("n3", "")
	s.bootAll("n3")
	s.completed(out, in)
}

// Safety rule 16: the outgoing host is away past the finish's deadline. The swap
// ends with the host pending; when it comes back it is finished, cleaned and
// uncordoned.
func Test_pending_returns(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.leaderDies = true
	s.ask(out, in)
	s.awaitState("finish")
	s.cut(out)
	last := s.ends(out, in, fleet.OutcomeCompleted)
	if !last.OutgoingPending {
		t.Fatalf("%s is down and not pending: %+v", out, last)
	}
	if n := s.node(out); !n.Spec.Unschedulable {
		t.Errorf("%s is pending and not cordoned", out)
	}
	// Longer than any bound of the shortened clock.
	time.Sleep(time.Minute)
	if pending := s.status().Pending; len(pending) != 1 || pending[0] != out {
		t.Errorf("pending are %v, want %s", pending, out)
	}
	s.bootAll(out)
	s.backAsAgent(out)
	s.checkNoMarks(out)
	s.checkAgent(out)
	s.eventually(soon, "nobody to be pending", func(context.Context) (bool, string) {
		pending := s.status().Pending
		return len(pending) == 0, fmt.Sprint(pending)
	})
	s.end("n2", "n3", in)
}
