package hostd_test

import (
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// count is how many calls of one name the host has had.
func (r *rig) count(call string) int {
	n := 0
	for _, c := range r.host.Calls {
		if c == call {
			n++
		}
	}
	return n
}

// Safety rule 2: between the answer of the others and the restart a pass writes its
// report, which takes seconds. The break check: take what the pass began with.
func TestAVoterThatFallsWhileThePassReportsIsSeenBeforeTheRestart(t *testing.T) {
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	asked := 0
	r.after = func(what string) {
		if what == "others" && r.host.Facts().Level == fleet.LevelEtcdOnly {
			asked++
			r.silent = []fleet.MemberID{idC}
		}
	}
	r.until("the others were asked", func() bool { return asked > 0 })
	r.until("it waits", func() bool { return r.report().Code == "NoQuorumWithoutMe" })
	if n := r.count("restart server"); n != 0 {
		t.Fatalf("restarted %d times while c is silent", n)
	}
	r.after, r.silent = nil, nil
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
}

// Safety rule 2: the same for a newcomer that votes and is rolled back.
func TestAVoterThatFallsWhileThePassReportsIsSeenBeforeARollbackStopsTheServer(t *testing.T) {
	r := newRig(t, "d")
	r.order(fleet.StepPromote)
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
	r.order(fleet.StepRollback)
	asked := 0
	r.after = func(what string) {
		if what == "others" {
			asked++
			r.silent = []fleet.MemberID{idB}
		}
	}
	r.until("the others were asked", func() bool { return asked > 0 })
	r.until("it waits", func() bool { return r.report().Code == "NoQuorumWithoutMe" })
	if !r.host.Facts().Server.Process || r.count("stop server") != 0 {
		t.Fatal("the server was stopped while b is silent")
	}
	r.after, r.silent = nil, nil
	r.until("its server has ended", func() bool { return r.journal().Stopped })
}

// Safety rule 2: what the others said is of seconds. The break check: leave
// OthersAt out of what is left.
func TestADaemonThatStandsStillAfterTheOthersAnsweredAsksThemAgain(t *testing.T) {
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	times := 0
	r.after = func(what string) {
		if what == "others" {
			times++
			r.now = r.now.Add(hostd.OthersFor + time.Second)
		}
	}
	r.until("it stood still at each of ten questions", func() bool { return times >= 10 })
	if n := r.count("restart server"); n != 0 {
		t.Fatalf("restarted %d times on old answers", n)
	}
	r.after = nil
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
}

// candidate is a standby right before its server is started: prepared, its agent gone.
func candidate(t *testing.T) *rig {
	r := newRig(t, "d")
	r.order(fleet.StepPromote)
	r.until("the agent is gone", func() bool { return r.host.Facts().Agent.Gone() })
	if r.host.Facts().Files.Joining == (rolefile.Joining{}) || r.count("start server") != 0 {
		t.Fatalf("not right before the start: %v", r.host.Calls)
	}
	return r
}

// Safety rule 18: a server without a WAL joins when it starts, and its swap may have
// ended while the pass wrote its report. The break check: take what the pass began
// with.
func TestNoServerWithoutAWALStartsWhenTheLeaseWentWhileThePassReported(t *testing.T) {
	r := candidate(t)
	r.after = func(what string) {
		if what == "view" {
			r.lease = lease.Lease{Exists: true}
		}
	}
	for range 20 {
		r.pass()
	}
	if n := r.count("start server"); n != 0 {
		t.Fatalf("started %d times without the Lease", n)
	}
}

// Safety rule 18. The break check: carry it out on facts of any age.
func TestNoServerStartsOnFactsFromBeforeTheDaemonStoodStill(t *testing.T) {
	r := candidate(t)
	times := 0
	r.after = func(what string) {
		if what == "view" {
			times++
			r.now = r.now.Add(time.Minute)
			r.hold()
		}
	}
	r.until("it stood still twenty times", func() bool { return times >= 20 })
	if n := r.count("start server"); n != 0 {
		t.Fatalf("started %d times on a Lease read a minute before", n)
	}
	r.after = nil
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
}

// Safety rule 28: the bounds of a look are within the age of its facts, so what is
// slow for ever keeps no host from its step.
func TestRequestsThatTakeAllTheirTimeKeepNoStepFromItsEnd(t *testing.T) {
	takes := map[string]time.Duration{"view": 10 * time.Second, "own etcd": 6 * time.Second, "others": 2 * time.Second, "report": 5 * time.Second}
	slow := func(r *rig) { r.after = func(what string) { r.now = r.now.Add(takes[what]) } }

	out := newRig(t, "a")
	out.leader = idB // the time to hand over is less than such a pass
	slow(out)
	out.order(fleet.StepStepDown)
	out.until("stepped down", out.settled(fleet.StepStepDown, fleet.PhaseDone))
	out.order(fleet.StepStepUp)
	out.until("stepped up", out.settled(fleet.StepStepUp, fleet.PhaseDone))

	in := newRig(t, "d")
	slow(in)
	in.order(fleet.StepPromote)
	in.until("promoted", in.settled(fleet.StepPromote, fleet.PhaseDone))
	in.order(fleet.StepRollback)
	in.until("its server has ended", func() bool { return in.journal().Stopped })
	if !slices.Contains(in.host.Calls, "stop server") {
		t.Errorf("calls %v", in.host.Calls)
	}
}
