package hostd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

func TestPromoteMakesAStandbyAVoter(t *testing.T) { // R-D1-21..24, R-216-05
	r := newRig(t, "d")
	r.pass()
	r.pass()
	if !r.host.Facts().PeerPort {
		t.Error("the standby does not listen on its peer port (safety rule 17)")
	}
	r.order(fleet.StepPromote)
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
	want := []string{
		"join server https://10.0.0.2:6443", "joining " + string(id), "stop agent", "start server", "role server", "joining off",
	}
	if d := cmp.Diff(want, r.calls()); d != "" {
		t.Errorf("effects (-want +got):\n%s", d)
	}
	r.pass()
	rep := r.report()
	if rep.Phase != fleet.PhaseDone || rep.StartedAt.IsZero() || rep.MemberID != idD || rep.Role != fleet.RoleServer || rep.Etcd == nil || !rep.Etcd.Linearizable || rep.Preflight != nil {
		t.Errorf("report: %+v", rep)
	}
	if got := r.host.Facts().Files.Identity; got.ClusterID != clusterID || got.MemberID != idD || len(got.Voters) != 3 {
		t.Errorf("identity files: %+v", got)
	}
}

func TestStepDownKeepsTheVoteAndNamesTheAgentLast(t *testing.T) { // R-D1-25, R-N-12, R-216-06
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	want := []string{"leaving " + string(id), "level etcd-only", "restart server", "kill-shims", "role agent"}
	if d := cmp.Diff(want, r.calls()); d != "" {
		t.Errorf("effects (-want +got):\n%s", d)
	}
	if r.leader != idB {
		t.Errorf("leader is %s, want that of role-lead-to (safety rule 8)", r.leader)
	}
	r.pass()
	rep := r.report()
	if !rep.Leaving || rep.Level != fleet.LevelEtcdOnly || rep.Etcd == nil || !rep.Etcd.Linearizable || rep.Etcd.Leader == idA || rep.Role != fleet.RoleAgent {
		t.Errorf("report: %+v", rep)
	}
	if !r.avoided {
		t.Error("a leaving host still asks its own API server (safety rule 23)")
	}
	f := r.host.Facts().Files
	if !rolefile.MayStart(f, fleet.RoleServer).May || rolefile.MayStart(f, fleet.RoleAgent).May {
		t.Error("a leaving voter starts its server on its WAL and never its agent (safety rule 11)")
	}
}

func TestStepDownWhoseEtcdDoesNotComeBackFailsWithTheServerRole(t *testing.T) { // R-216-07
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("restarting", func() bool { return r.host.Facts().Server.Job == platform.JobOther })
	r.etcdDown = true
	r.until("failed", r.settled(fleet.StepStepDown, fleet.PhaseFailed))
	if f := r.host.Facts().Files; f.Role != fleet.RoleServer || f.Leaving != id {
		t.Errorf("role %q leaving %q, want server and the swap", f.Role, f.Leaving)
	}
	if j := r.journal(); j.Code != "EtcdNotBack" {
		t.Errorf("code %q", j.Code)
	}
	// R-216-10: a failure is not repeated.
	calls := len(r.host.Calls)
	r.etcdDown = false
	for range 10 {
		r.pass()
	}
	for _, c := range r.host.Calls[calls:] {
		if c == "restart server" || c == "role agent" {
			t.Errorf("a failed step was taken again: %s", c)
		}
	}
	// R-228-36: once its member is gone it is finished nevertheless.
	r.remove(idA)
	r.gone()
	r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
}

func TestStepDownFailsWhenLeadershipDoesNotArrive(t *testing.T) { // safety rule 8
	r := newRig(t, "a")
	r.stuck = true
	r.order(fleet.StepStepDown)
	r.until("failed", r.settled(fleet.StepStepDown, fleet.PhaseFailed))
	if j := r.journal(); j.Code != "HandOverFailed" {
		t.Errorf("code %q", j.Code)
	}
	if f := r.host.Facts(); f.Level != fleet.LevelFull || f.Server.Job != platform.JobNone {
		t.Errorf("the server was touched: %+v", f.Server)
	}
}

// Safety rule 2: the controller's reports may be seconds old; the host asks the
// others itself right before it restarts.
func TestNoRestartThatWouldTakeTheQuorum(t *testing.T) {
	r := newRig(t, "a")
	r.silent = []fleet.MemberID{idC}
	r.order(fleet.StepStepDown)
	r.until("it waits for the others", func() bool { return len(r.reports) > 0 && r.report().Code == "NoQuorumWithoutMe" })
	for range 5 {
		r.pass()
	}
	if f := r.host.Facts(); f.Server.Level != fleet.LevelFull || f.Server.Job != platform.JobNone {
		t.Errorf("the server was restarted while c is silent: %+v", f.Server)
	}
	if m := r.report().Message; !strings.Contains(m, "c-00000003") {
		t.Errorf("the wait does not name who is silent: %q", m)
	}
	r.silent = nil
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))

	r.silent = []fleet.MemberID{idB}
	r.order(fleet.StepStepUp)
	r.until("the way back waits too", func() bool { return len(r.reports) > 0 && r.report().Code == "NoQuorumWithoutMe" })
	r.silent = nil
	r.until("stepped up", r.settled(fleet.StepStepUp, fleet.PhaseDone))
}

// A voter that is silent for the whole bound is not this host's etcd that does not
// come back: its server was never restarted (safety rule 28).
func TestAStepDownThatIsNeverSparedFailsByThatName(t *testing.T) {
	r := newRig(t, "a")
	r.silent = []fleet.MemberID{idC}
	r.order(fleet.StepStepDown)
	r.until("failed", r.settled(fleet.StepStepDown, fleet.PhaseFailed))
	j, f := r.journal(), r.host.Facts()
	if j.Code != "NoQuorumWithoutMe" || !strings.Contains(j.Message, "not restarted within 5m0s") || !strings.Contains(j.Message, "c-00000003") {
		t.Errorf("it failed with %s %q", j.Code, j.Message)
	}
	if f.Server.Level != fleet.LevelFull || f.Files.Role != fleet.RoleServer {
		t.Errorf("the server is at %s, the role is %s", f.Server.Level, f.Files.Role)
	}
}

// Safety rule 2: a newcomer that votes is one of four, and its server ends in a
// rollback on an order that may be seconds old as well.
func TestNoRollbackThatWouldTakeTheQuorum(t *testing.T) {
	r := newRig(t, "d")
	r.order(fleet.StepPromote)
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
	r.silent = []fleet.MemberID{idB}
	r.order(fleet.StepRollback)
	r.until("it waits for the others", func() bool { return r.report().Code == "NoQuorumWithoutMe" })
	for range 5 {
		r.pass()
	}
	if f := r.host.Facts(); !f.Server.Process || f.Server.Job != platform.JobNone {
		t.Errorf("the server was stopped while b is silent: %+v", f.Server)
	}
	r.silent = nil
	r.until("its server has ended", func() bool { return r.journal().Stopped })
}

// Safety rule 2: k3s makes a voter of a learner at any moment, one whose server has
// just ended as well. With a voter down, that voter and this one would be two of four.
func TestNoRollbackOfALearnerThatWouldTakeTheQuorum(t *testing.T) {
	for name, c := range map[string]struct{ answers, unnamed bool }{
		"it answers":                        {answers: true},
		"its etcd is too slow to answer":    {},
		"nor has told the cluster its name": {unnamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.learns = true
			r.order(fleet.StepPromote)
			r.until("it is a learner", func() bool { return r.ownID != 0 && r.host.Facts().Files.Role == fleet.RoleServer })
			r.silent, r.etcdDown = []fleet.MemberID{idA}, !c.answers
			if c.unnamed {
				r.members[r.index(idD)].Name = ""
			}
			r.order(fleet.StepRollback)
			r.until("it waits for the others", func() bool { return r.report().Code == "NoQuorumWithoutMe" })
			for range 5 {
				r.pass()
			}
			if f := r.host.Facts(); !f.Server.Process || f.Server.Job != platform.JobNone {
				t.Errorf("the server of a learner was stopped while a is silent: %+v", f.Server)
			}
			if m := r.report().Message; !strings.Contains(m, "a-00000001") {
				t.Errorf("the wait does not name who is silent: %q", m)
			}
			r.silent = nil
			r.until("its server has ended", func() bool { return r.journal().Stopped })
		})
	}
}

// A rollback whose server waits for the others does not wait for them for ever: k3s
// removes the learner meanwhile, and nothing depends on its server then.
func TestARollbackOfALearnerEndsWithItsMember(t *testing.T) {
	r := newRig(t, "d")
	r.learns = true
	r.order(fleet.StepPromote)
	r.until("it is a learner", func() bool { return r.ownID != 0 && r.host.Facts().Files.Role == fleet.RoleServer })
	r.silent = []fleet.MemberID{idA}
	r.order(fleet.StepRollback)
	r.until("it waits for the others", func() bool { return r.report().Code == "NoQuorumWithoutMe" })
	r.remove(idD)
	r.until("an agent again", r.settled(fleet.StepRollback, fleet.PhaseDone))
}

// Safety rule 7: a step-up that settled as failed would keep its swap from ever
// ending, and the outgoing voter at etcd alone.
func TestAStepUpIsNeverGivenUp(t *testing.T) {
	for name, c := range map[string]struct{ fall, rise func(*rig) }{
		"another voter was silent": {
			func(r *rig) { r.silent = []fleet.MemberID{idB} }, func(r *rig) { r.silent = nil }},
		"its own etcd did not answer": {
			func(r *rig) { r.etcdDown = true }, func(r *rig) { r.etcdDown = false }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a")
			r.order(fleet.StepStepDown)
			r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
			c.fall(r)
			r.order(fleet.StepStepUp)
			for end := r.now.Add(3 * hostd.DefaultPolicy().OperationTimeout); r.now.Before(end); {
				r.pass()
			}
			if rep := r.report(); rep.Phase != fleet.PhaseRunning || rep.Code == "" {
				t.Errorf("phase %q, code %q: want a named wait", rep.Phase, rep.Code)
			}
			c.rise(r)
			r.until("stepped up", r.settled(fleet.StepStepUp, fleet.PhaseDone))
		})
	}
}

func TestStepUpBringsTheOutgoingVoterBack(t *testing.T) { // safety rule 7
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	r.order(fleet.StepStepUp)
	r.until("stepped up", r.settled(fleet.StepStepUp, fleet.PhaseDone))
	f := r.host.Facts()
	if f.Files.Role != fleet.RoleServer || f.Files.Leaving != "" || f.Level != fleet.LevelFull || f.Server.Level != fleet.LevelFull {
		t.Errorf("facts: %+v", f)
	}
}

func TestFinishOnEachEvidence(t *testing.T) { // R-D1-20 as safety rule 5 has it, R-228-19, R-228-36, R-228-40
	for name, c := range map[string]struct {
		evidence func(r *rig)
		wantLive bool // it must stay a server
	}{
		"the tombstone, with no API to ask": {evidence: func(r *rig) { // R-216-21
			r.apiDown = true
			r.remove(idA)
			r.host.Change(func(f *platform.Facts) { f.Files.Tombstone = true })
		}},
		"role-member-gone under the Lease": {evidence: func(r *rig) { r.remove(idA); r.gone() }},
		"its own id in no list": {evidence: func(r *rig) {
			r.remove(idA)
			r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
		}},
		"its own id in no list, after a reboot": {evidence: func(r *rig) {
			r.remove(idA)
			r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
			r.reboot()
		}},
		"role-member-gone of another swap": {wantLive: true, evidence: func(r *rig) {
			r.etcdDown = true
			r.self.Annotations[keys().MemberGone()] = "20260101T000000Z-a-d"
		}},
		"role-member-gone with the Lease expired": {wantLive: true, evidence: func(r *rig) {
			r.etcdDown = true
			r.gone()
			r.lease.Duration = time.Nanosecond
			r.lease.RenewTime = start.Add(-time.Hour)
		}},
		"a missing etcd label": {wantLive: true, evidence: func(r *rig) { delete(r.self.Labels, fleet.LabelEtcd) }},
		"removed-node-name":    {wantLive: true, evidence: func(r *rig) { r.self.Annotations[fleet.AnnotationEtcdRemovedName] = "a-00000001" }},
		"role-member-gone while its etcd votes": {wantLive: true, evidence: func(r *rig) {
			r.gone()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a")
			r.order(fleet.StepStepDown)
			r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
			r.host.Calls = nil
			c.evidence(r)
			if c.wantLive {
				for range 30 {
					r.pass()
				}
				if j := r.journal(); j.Step == fleet.StepFinishDemote || r.host.Facts().Files.Leaving == "" {
					t.Errorf("finished on that: %+v", j)
				}
				return
			}
			if r.apiDown {
				// The agent cannot be given a server before one is known to be up.
				r.until("datastore aside", func() bool { return !r.host.Facts().Datastore })
				r.apiDown = false
			}
			r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
			want := []string{"stop server", "leaving off", "aside", "level full", "join agent https://10.0.0.2:6443", "start agent"}
			if d := cmp.Diff(want, r.calls()); d != "" {
				t.Errorf("effects (-want +got):\n%s", d)
			}
			f := r.host.Facts()
			if f.Files.Identity.ClusterID != clusterID || f.Files.Identity.MemberID != 0 {
				t.Errorf("identity %+v: the cluster id stays, the member id goes", f.Files.Identity)
			}
			r.pass()
			if rep := r.report(); !rep.Stopped || rep.StartedAt.IsZero() || rep.Role != fleet.RoleAgent || rep.Leaving {
				t.Errorf("report: %+v", rep)
			}
		})
	}
}

func TestFinishOfAServerInNoSwap(t *testing.T) { // R-228-19: a tombstone, whatever the role file says
	r := newRig(t, "a")
	r.remove(idA)
	r.host.Change(func(f *platform.Facts) { f.Files.Tombstone = true })
	r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
	if f := r.host.Facts(); f.Files.Role != fleet.RoleAgent || !f.Agent.Process {
		t.Errorf("facts: %+v", f)
	}
}

func TestAMemberWhoseEtcdIsDownAsksAndStays(t *testing.T) { // safety rule 12
	r := newRig(t, "a")
	r.etcdDown = true
	for range 20 {
		r.pass()
	}
	if r.asked == 0 {
		t.Error("nobody was asked")
	}
	if f := r.host.Facts(); f.Files.Role != fleet.RoleServer || !f.Server.Process {
		t.Errorf("a listed member was touched: %+v", f.Server)
	}
}

func TestRollbackFromEachHalfState(t *testing.T) { // R-I-21, safety rule 6
	for name, at := range map[string]func(r *rig) bool{
		"before anything":           func(*rig) bool { return true },
		"with the join drop-in":     func(r *rig) bool { return r.host.Facts().ServerJoin != "" },
		"confirmed to join":         func(r *rig) bool { return r.host.Facts().Files.Joining.Swap != "" },
		"with the agent stopped":    func(r *rig) bool { return r.host.Facts().Agent.Gone() },
		"with the start queued":     func(r *rig) bool { return r.host.Facts().Server.Job == platform.JobStart },
		"with the server starting":  func(r *rig) bool { return r.host.Facts().Server.Process },
		"with a WAL, still agent":   func(r *rig) bool { return r.host.Facts().Files.WAL },
		"as a learner, role server": func(r *rig) bool { return r.host.Facts().Files.Role == fleet.RoleServer },
		"as a voter":                func(r *rig) bool { i := r.index(idD); return i >= 0 && !r.members[i].Learner },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.order(fleet.StepPromote)
			r.until(name, func() bool { return at(r) })
			role := r.host.Facts().Files.Role
			r.order(fleet.StepRollback)
			r.until("stopped or done", func() bool { j := r.journal(); return j.Step == fleet.StepRollback && j.Stopped })
			r.pass()
			if i := r.index(idD); i >= 0 {
				// The member is listed: the role file stays until it is gone.
				for range 10 {
					r.pass()
				}
				f := r.host.Facts()
				if f.Files.Role != role || !f.Datastore || f.Agent.Process {
					t.Errorf("before the member was gone: role %q, datastore %t, agent %t", f.Files.Role, f.Datastore, f.Agent.Process)
				}
				if rep := r.report(); !rep.Stopped || rep.Phase != fleet.PhaseRunning {
					t.Errorf("report: %+v", rep)
				}
				r.remove(idD)
				r.gone()
			}
			r.until("rolled back", r.settled(fleet.StepRollback, fleet.PhaseDone))
			f := r.host.Facts()
			if f.Files.Role != fleet.RoleAgent || f.Datastore || f.ServerJoin != "" || f.Files.Joining.Swap != "" || !f.Agent.Process || f.Server.Process {
				t.Errorf("left behind: %+v", f)
			}
		})
	}
}

// The swap goes forward after all when somebody has removed the outgoing voter: the
// newcomer's vote is needed (safety rule 6).
func TestARollbackThatIsCalledOffStartsTheServerAgain(t *testing.T) {
	for name, member := range map[string]bool{"its member is listed": true, "its member is gone": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.order(fleet.StepPromote)
			r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
			r.order(fleet.StepRollback)
			r.until("stopped", func() bool { j := r.journal(); return j.Step == fleet.StepRollback && j.Stopped })
			if !member {
				r.remove(idD)
			}
			r.order(fleet.StepPromote)
			want := map[bool]fleet.Phase{true: fleet.PhaseDone, false: fleet.PhaseFailed}[member]
			r.until(string(want), r.settled(fleet.StepPromote, want))
			if f := r.host.Facts(); f.Agent.Process || member && (!f.Server.Process || f.Files.Role != fleet.RoleServer) {
				t.Errorf("role %q, server %t, agent %t", f.Files.Role, f.Server.Process, f.Agent.Process)
			}
		})
	}
}

func TestAPromotionThatARebootInterruptedFails(t *testing.T) { // design §4.1: agent again
	r := newRig(t, "d")
	r.neverWAL = true
	r.order(fleet.StepPromote)
	r.until("server starting", func() bool { return r.host.Facts().Server.Process })
	r.reboot()
	r.check()
	if f := r.host.Facts(); !f.Agent.Process || f.Server.Process {
		t.Fatalf("after the reboot: agent %t, server %t", f.Agent.Process, f.Server.Process)
	}
	r.until("failed", r.settled(fleet.StepPromote, fleet.PhaseFailed))
	if j := r.journal(); j.Code != "Rebooted" {
		t.Errorf("code %q", j.Code)
	}
	if f := r.host.Facts(); !f.Agent.Process {
		t.Error("the agent was stopped again")
	}
}

// An engine brings back what ran and nothing else: the agent had been stopped.
func TestAPromotionThatARebootInterruptedLeavesNoHostWithoutARole(t *testing.T) { // design §4.1: agent again
	for _, api := range []bool{true, false} {
		for _, at := range []string{"agent gone", "server starting"} {
			t.Run(fmt.Sprintf("%s, an API answers: %t", at, api), func(t *testing.T) {
				r := newRig(t, "d")
				r.host.Engine, r.neverWAL = true, true
				r.order(fleet.StepPromote)
				r.until(at, func() bool {
					f := r.host.Facts()
					return f.Agent.Gone() && (at == "agent gone" || f.Server.Process)
				})
				r.apiDown = !api
				r.reboot()
				r.until("agent again", func() bool { return r.host.Facts().Agent.Process })
				r.check()
				if j := r.journal(); api && j.Code != "Rebooted" {
					t.Errorf("code %q", j.Code)
				}
				// What a person stops afterwards stays stopped.
				r.host.Change(func(f *platform.Facts) { f.Agent = platform.Unit{State: platform.StateInactive, Conditioned: true} })
				for range 10 {
					r.pass()
				}
				if r.host.Facts().Agent.Process {
					t.Error("started against a person's will")
				}
			})
		}
	}
}

func TestACandidateThatIsAMemberJoinsOnAfterAReboot(t *testing.T) { // safety rule 18
	r := newRig(t, "d")
	r.order(fleet.StepPromote)
	r.until("role server", func() bool { return r.host.Facts().Files.Role == fleet.RoleServer })
	r.reboot()
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
}

// k3s makes the datastore, and the cluster a voter of it, while the daemon waits for a
// slow API server: the role file still says agent when the host is rebooted. Then the
// quorum is lost, and no API server tells this host anything before its vote is back.
func TestAVoterWhoseRoleFileIsNotWrittenYetStartsItsServerAfterAReboot(t *testing.T) { // safety rule 18
	r := newRig(t, "d")
	r.order(fleet.StepPromote)
	r.until("a datastore", func() bool { return r.host.Facts().Files.WAL })
	if role := r.host.Facts().Files.Role; role != fleet.RoleAgent {
		t.Fatalf("the role file says %s already", role)
	}
	r.apiDown = true
	r.reboot()
	for range 20 {
		r.pass()
	}
	if f := r.host.Facts(); !f.Server.Process || f.Agent.Process {
		t.Fatalf("server %t, agent %t", f.Server.Process, f.Agent.Process)
	}
	r.apiDown = false
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
	if f := r.host.Facts(); f.Files.Role != fleet.RoleServer || f.Files.Joining.Swap != "" {
		t.Errorf("role %q, joining %+v", f.Files.Role, f.Files.Joining)
	}
}

// Crash points: a daemon killed between any two effects, with the host up or
// rebooted, converges to the same end.
func TestKilledBetweenAnyTwoEffectsItConverges(t *testing.T) {
	steps := map[string]func(t *testing.T, kill func(r *rig)){
		"promote": func(t *testing.T, kill func(r *rig)) {
			r := newRig(t, "d")
			r.order(fleet.StepPromote)
			r.until("promoted", func() bool { kill(r); return r.settled(fleet.StepPromote, fleet.PhaseDone)() })
		},
		"step down and finish": func(t *testing.T, kill func(r *rig)) {
			r := newRig(t, "a")
			r.order(fleet.StepStepDown)
			r.until("stepped down", func() bool { kill(r); return r.settled(fleet.StepStepDown, fleet.PhaseDone)() })
			r.remove(idA)
			r.gone()
			r.until("finished", func() bool { kill(r); return r.settled(fleet.StepFinishDemote, fleet.PhaseDone)() })
			if f := r.host.Facts(); f.Files.Role != fleet.RoleAgent || f.Datastore || f.Level != fleet.LevelFull || !f.Agent.Process {
				t.Errorf("end: %+v", f)
			}
		},
		"promote and roll back": func(t *testing.T, kill func(r *rig)) {
			r := newRig(t, "d")
			r.order(fleet.StepPromote)
			r.until("a member", func() bool { kill(r); return r.index(idD) >= 0 })
			r.order(fleet.StepRollback)
			r.until("stopped", func() bool { kill(r); return r.journal().Stopped })
			r.remove(idD)
			r.gone()
			r.until("rolled back", func() bool { kill(r); return r.settled(fleet.StepRollback, fleet.PhaseDone)() })
			if f := r.host.Facts(); f.Files.Role != fleet.RoleAgent || f.Datastore || !f.Agent.Process {
				t.Errorf("end: %+v", f)
			}
		},
	}
	for name, run := range steps {
		t.Run(name+", the daemon killed after every effect", func(t *testing.T) {
			seen := 0
			run(t, func(r *rig) {
				if len(r.host.Calls) > seen {
					seen = len(r.host.Calls)
					r.restart()
				}
			})
		})
	}
	// A reboot at each effect in turn; in a promotion without a WAL the answer is
	// another one, tested above.
	for n := range 12 {
		for how, engine := range map[string]bool{"": false, " with an engine": true} {
			t.Run("step down and finish, rebooted"+how+" after effect "+string(rune('a'+n)), func(t *testing.T) {
				steps["step down and finish"](t, func(r *rig) {
					r.host.Engine = engine
					if r.boots == 0 && len(r.calls()) == n {
						r.reboot()
					}
				})
			})
		}
	}
}

func TestRefusals(t *testing.T) { // R-D1-17, R-D1-32, R-216-12, R-228-15
	for name, c := range map[string]struct {
		node   string
		step   fleet.Step
		change func(r *rig)
		code   string
	}{
		"promote without the Lease":             {"d", fleet.StepPromote, func(r *rig) { r.lease = lease.Lease{} }, "LeaseNotHeld"},
		"promote with an expired Lease":         {"d", fleet.StepPromote, func(r *rig) { r.lease.Duration, r.lease.RenewTime = time.Second, start.Add(-time.Hour) }, "LeaseNotHeld"},
		"promote with the Lease of a node":      {"d", fleet.StepPromote, func(r *rig) { r.lease.Holder = "b" }, "LeaseNotHeld"},
		"promote with a stale id":               {"d", fleet.StepPromote, func(r *rig) { r.lease.Annotations[fleet.LeaseSwapID] = "20260101T000000Z-a-d" }, "StaleSwap"},
		"promote with the label agent":          {"d", fleet.StepPromote, func(r *rig) { r.self.Labels[keys().DesiredRole()] = "agent" }, "RoleMismatch"},
		"promote of a host not staged":          {"d", fleet.StepPromote, func(r *rig) { r.pre = []status.Problem{{Code: "NotStaged", Sentence: "no server.yaml"}} }, "NotStaged"},
		"promote with another preflight lack":   {"d", fleet.StepPromote, func(r *rig) { r.pre = []status.Problem{{Code: "WrongToken", Sentence: "refused"}} }, "PreflightFailed"},
		"promote of a unit without a condition": {"d", fleet.StepPromote, func(r *rig) { r.host.Change(func(f *platform.Facts) { f.Server.Conditioned = false }) }, "PreflightFailed"},
		"promote to join nobody":                {"d", fleet.StepPromote, func(r *rig) { r.self.Annotations[keys().JoinNode()] = "z" }, "NoJoinURL"},
		"promote to join itself":                {"d", fleet.StepPromote, func(r *rig) { r.self.Annotations[keys().JoinNode()] = "d" }, "NoJoinURL"},
		"promote of a leaving host":             {"a", fleet.StepPromote, func(r *rig) { r.host.Change(func(f *platform.Facts) { f.Files.Leaving = id }) }, "NotStandby"},
		"step-down without the Lease":           {"a", fleet.StepStepDown, func(r *rig) { r.lease = lease.Lease{} }, "LeaseNotHeld"},
		"step-down with the label server":       {"a", fleet.StepStepDown, func(r *rig) { r.self.Labels[keys().DesiredRole()] = "server" }, "RoleMismatch"},
		"step-down of an agent":                 {"d", fleet.StepStepDown, func(*rig) {}, "NotServer"},
		"step-down of the leader to nobody":     {"a", fleet.StepStepDown, func(r *rig) { delete(r.self.Annotations, keys().LeadTo()) }, "NoLeadTarget"},
		"step-down without a unit condition":    {"a", fleet.StepStepDown, func(r *rig) { r.host.Change(func(f *platform.Facts) { f.Agent.Conditioned = false }) }, "NoStartCondition"},
		"step-down to an agent that cannot be":  {"a", fleet.StepStepDown, func(r *rig) { r.host.Change(func(f *platform.Facts) { f.AgentProblem = "no token" }) }, "AgentNotStaged"},
		"step-down with a datastore that stays": {"a", fleet.StepStepDown, func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.DatastoreProblem = "server/db/etcd is a mount point" })
		}, "DatastoreMount"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.node)
			r.order(c.step)
			c.change(r)
			before := r.host.Facts()
			r.until("refused", r.settled(c.step, fleet.PhaseRefused))
			if j := r.journal(); j.Code != c.code || j.Message == "" {
				t.Errorf("code %q (%s), want %q", j.Code, j.Message, c.code)
			}
			// R-216-09: once the reason is gone it still is not taken.
			r.pre = nil
			r.order(c.step)
			r.self.Labels[keys().DesiredRole()] = string(c.step.DesiredRole())
			for range 10 {
				r.pass()
			}
			if got := r.calls(); len(got) > 0 {
				t.Errorf("something was changed: %v", got)
			}
			if d := cmp.Diff(before.Server, r.host.Facts().Server); d != "" {
				t.Errorf("server unit: %s", d)
			}
		})
	}
}

func TestWhatCannotBeReadHoldsTheStep(t *testing.T) { // safety rules 24, 25; bad input
	for name, c := range map[string]struct {
		change func(r *rig)
		code   string
	}{
		"a malformed swap id":           {func(r *rig) { r.self.Annotations[keys().Swap()] = "x" }, "BadOrder"},
		"an unknown step":               {func(r *rig) { r.self.Annotations[keys().Step()] = "explode" }, "BadOrder"},
		"a record of another protocol":  {func(r *rig) { r.self.Annotations[keys().Record()] = `{"protocol":9}` }, "BadRecord"},
		"a record of another swap":      {func(r *rig) { r.self.Annotations[keys().Swap()] = "20260101T000000Z-a-d" }, "BadRecord"},
		"a swap under another prefix":   {func(r *rig) { r.self.Annotations["other.example.com/role-swap"] = string(id) }, "ForeignPrefix"},
		"no API server":                 {func(r *rig) { r.apiDown = true }, ""},
		"a journal that cannot be read": {func(r *rig) { r.host.Change(func(f *platform.Facts) { f.Journal = []byte("{") }) }, "BadJournal"},
		"a journal of a newer daemon's step": {func(r *rig) {
			r.host.Change(func(f *platform.Facts) {
				f.Journal = []byte(`{"swap":"20260101T000000Z-a-d","step":"teleport","phase":"running"}`)
			})
		}, "BadJournal"},
		"a role file that cannot be read": {func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Files.Role, f.Files.RoleProblem = "", "role \"x\"" })
			r.self.Annotations = map[string]string{}
		}, "BadRoleFile"},
		"an etcd of another cluster's id": {func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Files.Identity.ClusterID = 0xff })
			r.self.Annotations = map[string]string{}
		}, "ForeignCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a")
			r.order(fleet.StepStepDown)
			c.change(r)
			for range 5 {
				if _, err := r.daemon.Pass(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.calls(); len(got) > 0 {
				t.Errorf("something was changed: %v", got)
			}
			if d := r.daemon.Decision(); d.Code != c.code {
				t.Errorf("code %q (%s), want %q", d.Code, d.Sentence, c.code)
			}
		})
	}
}

func TestRollbackAndStepUpWaitForTheLease(t *testing.T) {
	for _, c := range []struct {
		node string
		step fleet.Step
	}{{"d", fleet.StepRollback}, {"a", fleet.StepStepUp}} {
		r := newRig(t, c.node)
		r.order(c.step)
		r.lease = lease.Lease{}
		for range 5 {
			r.pass()
		}
		if j := r.journal(); j.Step != "" {
			t.Errorf("%s: settled without the Lease: %+v", c.step, j)
		}
		r.hold()
		r.until("taken", r.settled(c.step, fleet.PhaseDone))
	}
}

func TestNoMemberIsAddedAfterTheLeaseIsLost(t *testing.T) { // R-D1-19
	r := newRig(t, "d")
	r.order(fleet.StepPromote)
	r.until("agent stopping", func() bool { return r.host.Facts().Agent.Job == platform.JobStop })
	r.lease = lease.Lease{}
	for range 20 {
		r.pass()
	}
	if r.host.Facts().Server.Job != platform.JobNone || r.index(idD) >= 0 {
		t.Error("the server was started without the Lease")
	}
	r.hold()
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
}

func TestOwnSnapshotsAreKeptToThree(t *testing.T) { // safety rule 14
	r := newRig(t, "b")
	r.host.Change(func(f *platform.Facts) { f.Snapshots = []string{"1", "2", "3", "4", "5"} })
	r.until("pruned", func() bool { return len(r.host.Facts().Snapshots) == 3 })
	if d := cmp.Diff([]string{"3", "4", "5"}, r.host.Facts().Snapshots); d != "" {
		t.Error(d)
	}
}

// The break check: prune whatever goes on.
func TestNoSnapshotIsPrunedWhileASwapIsUnderWay(t *testing.T) { // safety rules 14 and 30
	for name, begin := range map[string]func(r *rig){
		"by the Lease": func(r *rig) { r.hold() },
		"by a Node": func(r *rig) {
			r.nodes = []hostapi.Node{{Name: "d", Node: swap.Node{Annotations: map[string]string{keys().Swap(): string(id)}}}}
		},
		"nobody to ask about one": func(r *rig) { r.apiDown = true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "b")
			r.host.Change(func(f *platform.Facts) { f.Snapshots = []string{"1", "2", "3", "4", "5"} })
			begin(r)
			for range 10 {
				r.pass()
			}
			if n := len(r.host.Facts().Snapshots); n != 5 {
				t.Fatalf("%d are left", n)
			}
			r.lease, r.nodes, r.apiDown = lease.Lease{}, nil, false
			r.until("pruned", func() bool { return len(r.host.Facts().Snapshots) == 3 })
		})
	}
}

// A k3s server whose node password is lost makes itself another and runs on; as an
// agent it would be turned away. What counts is the one it became a member with.
func TestTheNodePasswordOfAMemberIsTheOneItCameWith(t *testing.T) { // safety rule 15
	r := newRig(t, "a")
	password := func(now string) {
		r.host.Change(func(f *platform.Facts) { f.Password = now })
		r.pass()
	}
	kept := func() string { return r.host.Facts().Files.Identity.Password }
	for _, step := range []struct{ now, want string }{
		{"", ""},       // not there yet
		{"one", "one"}, // seen for the first time
		{"two", "one"}, // k3s's own make
		{"", "one"},
	} {
		if password(step.now); kept() != step.want {
			t.Errorf("with %q there, %q is kept, want %q", step.now, kept(), step.want)
		}
	}
	// Another member of the same host came in as an agent: its password was taken.
	r.host.Change(func(f *platform.Facts) { f.Files.Identity.MemberID = 0xa1 })
	if password("two"); kept() != "two" {
		t.Errorf("a new member keeps %q", kept())
	}
}
