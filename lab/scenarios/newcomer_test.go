package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// Safety rules 2 and 7: the newcomer's etcd fails for good at target plus one,
// before and after the outgoing host was stepped down; and the outgoing host's
// drain is blocked for good. The newcomer goes, the others stay.
func Test_newcomer_fails(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	ctx := t.Context()

	s.Logf("before the step-down")
	before := s.members()
	s.must(s.RunPod(ctx, cluster.PodSpec{Name: "slow", Node: out, Owner: true, Grace: 600}))
	s.ask(out, in)
	s.awaitState("drain-out")
	mend, err := fault.Pause(s.Host(in), cluster.ServerUnit)
	s.must(err)
	s.rolledBack(out, in, before)
	s.must(mend())
	s.backAsAgent(in)
	s.must(s.EndPod(ctx, "slow"))
	s.checkFull(out)

	s.Logf("after the step-down")
	s.ask(out, in)
	s.awaitFile(out, fleet.FileLeaving)
	// The controller is held, so that it cannot ask for the removal before the
	// newcomer has failed.
	s.must(s.controller.Pause())
	s.eventually(soon, out+" to be stepped down", func(context.Context) (bool, string) {
		r := s.report(out)
		return r.Step == fleet.StepStepDown && r.Phase == fleet.PhaseDone, fmt.Sprintf("%s %s", r.Step, r.Phase)
	})
	mend, err = fault.Pause(s.Host(in), cluster.ServerUnit)
	s.must(err)
	s.eventually(soon, in+"'s daemon to see that its etcd is silent", func(context.Context) (bool, string) {
		r := s.report(in)
		return r.Etcd == nil || !r.Etcd.Linearizable, fmt.Sprintf("%+v", r.Etcd)
	})
	s.must(s.controller.Continue())
	s.rolledBack(out, in, before)
	s.must(mend())
	s.backAsAgent(in)
	s.checkFull(out)

	s.Logf("the drain is blocked for good")
	s.must(s.RunPod(ctx, cluster.PodSpec{Name: "guarded", Node: out, Owner: true}))
	s.ask(out, in)
	s.awaitState("promote")
	s.must(s.Budget(ctx, "guard", "guarded"))
	last := s.rolledBack(out, in, before)
	if !named(last.Reasons, "guard") {
		t.Errorf("the reasons do not name the budget: %+v", last.Reasons)
	}
	s.must(s.DeleteBudget(ctx, "guard"))
	if there, err := s.PodIsThere(ctx, "guarded"); err != nil || !there {
		t.Errorf("the guarded pod was evicted (%v)", err)
	}
	s.must(s.EndPod(ctx, "guarded"))
	s.backAsAgent(in)
	s.checkFull(out)
	s.end("n2", "n3", out)
}

// checkFull waits until a voter is a full server again: its API answers, its Node
// is Ready and free.
func (s *scenario) checkFull(name string) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.AwaitNodesReady(ctx, 2*time.Minute, name))
	s.must(s.AwaitAPI(ctx, soon, s.Host(name)))
	s.eventually(soon, name+" to be free", func(context.Context) (bool, string) {
		ps := marks(s.node(name), true)
		return len(ps) == 0, fmt.Sprint(ps)
	})
}

func named(reasons []status.Reason, word string) bool {
	for _, r := range reasons {
		if r.Code == word || r.Node == word || strings.Contains(r.Sentence, word) {
			return true
		}
	}
	return false
}

// Safety rules 2 and 24: a voter that stays is lost in the middle. The swap holds,
// names it, and goes on when it is back.
func Test_second_voter_lost(t *testing.T) {
	long(t)
	s, out, in := troubled(t, "FLEET_ROLE_RUNNER_WAIT_SECONDS=300") // no drain is given up meanwhile
	s.leaderDies = true
	ctx := t.Context()
	s.writeThrough("n2")
	// A voter that falls in the very moment of the outgoing host's restart is nobody's to prevent.
	released := s.heldInDrain(out, in)
	s.must(s.Host("n3").Crash(ctx, true))
	s.waitsFor("n3", "")
	members := s.members()
	if len(members.Voters()) != 4 {
		t.Errorf("somebody was removed while n3 was down: %s", members)
	}
	released()
	s.must(s.Host("n3").Boot(ctx))
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.end("n2", "n3", in)
}

// heldInDrain asks for a swap and leaves it where the outgoing host is drained and not yet told to step down: a
// disruption budget keeps a pod there until released is called.
func (s *scenario) heldInDrain(out, in string) (released func()) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.RunPod(ctx, cluster.PodSpec{Name: "guarded", Node: out, Owner: true}))
	s.ask(out, in)
	s.awaitState("promote")
	s.must(s.Budget(ctx, "guard", "guarded"))
	s.awaitState("drain-out")
	return func() {
		s.t.Helper()
		s.eventually(soon, "the budget to be deleted", func(ctx context.Context) (bool, string) {
			err := s.DeleteBudget(ctx, "guard") // whose answer may have been lost
			return err == nil || apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	}
}

// Safety rule 3: a NOSPACE alarm in the middle holds the swap, is named, and the
// swap goes on when it is cleared. Under it etcd takes no write at all, so no report and no
// status can tell of it: the controller's log and the host's own status do. k3s clears
// its own member's alarm now and then; on a datastore that is full it comes
// back with the next write, so it is raised again and again.
func Test_alarm_mid_swap(t *testing.T) {
	long(t)
	s, out, in := troubled(t, "FLEET_ROLE_RUNNER_WAIT_SECONDS=300") // no drain is given up under the alarm
	ctx := t.Context()
	s.outage = true
	released := s.heldInDrain(out, in)
	cleared := s.fullDatastore("n2")
	before := s.members()
	s.eventually(soon, "the controller to name the full datastore", func(context.Context) (bool, string) {
		log, err := s.controller.Log()
		return err == nil && strings.Contains(log, "database space exceeded"), "its log does not"
	})
	s.eventually(soon, "regrade host status to name the alarm", func(ctx context.Context) (bool, string) {
		o, err := s.HostCLI(ctx, s.Host("n2"), "status")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(o.Stdout, "NOSPACE"), o.Stdout + o.Stderr
	})
	s.must(cluster.Never(ctx, 15*time.Second, out+" is stepped down under an alarm", func(context.Context) (bool, string) {
		return s.exists(out, fleet.FileLeaving), fleet.FileLeaving
	}))
	s.sameMembers(before)
	cleared()
	released()
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.end("n2", "n3", in)
}

// fullDatastore raises an alarm for a host's member, and again whenever it was
// cleared, until the function it gives is called.
func (s *scenario) fullDatastore(name string) (cleared func()) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = s.Alarm(ctx, s.Host(name), true)
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() {
		s.t.Helper()
		stop()
		<-ended
		// Under an alarm no Lease can be renewed: k3s ends and is started again.
		s.eventually(soon, "the alarm to be cleared", func(ctx context.Context) (bool, string) {
			err := s.Alarm(ctx, s.Host(name), false)
			return err == nil, fmt.Sprint(err)
		})
	}
}
