package hostd_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// Found by the simulated cluster: the step-down's order stands on the Node
// until the swap ends, and was refused by the agent that its host had become.
func TestAFinishedHostDoesNotRefuseTheStepDownItHasBehindIt(t *testing.T) { // R-216-10
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	r.remove(idA)
	r.gone()
	r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
	for range 10 {
		r.pass()
	}
	if j := r.journal(); j.Step != fleet.StepFinishDemote || j.Phase != fleet.PhaseDone {
		t.Fatalf("journal: %+v", j)
	}
	if rep := r.report(); rep.Step != fleet.StepFinishDemote || rep.Phase != fleet.PhaseDone {
		t.Fatalf("report: %s %s %s", rep.Step, rep.Phase, rep.Code)
	}
}

// Found by the simulated cluster: hosts whose reports had been deleted stayed
// silent for ever, because nothing about them changed.
func TestAReportIsWrittenAgainNowAndThen(t *testing.T) { // safety rules 25 and 29
	r := newRig(t, "b")
	passes := func(d time.Duration) {
		for end := r.now.Add(d); r.now.Before(end); {
			r.pass()
		}
	}
	passes(time.Minute)
	n := len(r.reports)
	passes(4 * time.Minute)
	if got := len(r.reports) - n; got > 1 {
		t.Errorf("%d reports in four idle minutes", got)
	}
	passes(2 * time.Minute)
	if len(r.reports) == n {
		t.Fatal("an unchanged report was never written again")
	}
	r.self.Annotations[keys().Swap()] = string(id)
	r.hold()
	passes(30 * time.Second)
	n = len(r.reports)
	passes(70 * time.Second)
	if len(r.reports) == n {
		t.Fatal("in a swap it is written each minute")
	}
}

// Found by the simulated cluster: a staying voter fell, the stepped-down one was
// elected, and its removal waited for ever.
func TestASteppedDownVoterThatIsElectedHandsLeadershipOver(t *testing.T) { // safety rule 8
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	r.leader = idA
	r.until("handed over", func() bool { return r.leader == idB })
	if j := r.journal(); j.Step != fleet.StepStepDown || j.Phase != fleet.PhaseDone {
		t.Fatalf("journal: %+v", j)
	}
}

// Found by the simulated cluster: a candidate that stood still in the middle of
// its promotion came back after the swap had been rolled back and ended.
func TestAPromotionWhoseSwapHasEndedIsTakenBack(t *testing.T) { // safety rules 16 and 18
	for name, until := range map[string]func(*rig) func() bool{
		"before the agent stopped": func(r *rig) func() bool {
			return func() bool { return r.host.Facts().Files.Joining.Swap != "" }
		},
		"with the server on its way": func(r *rig) func() bool {
			return func() bool { return r.host.Facts().Server.Process }
		},
		"with its Node deleted": func(r *rig) func() bool {
			return func() bool { return r.host.Facts().Server.Process }
		},
		// Found by the simulated cluster: it fell, said so, and fell again for longer
		// than the rollback waited.
		"when a reboot had ended it before": func(r *rig) func() bool {
			joins := false
			return func() bool {
				if !joins && r.host.Facts().Server.Process {
					joins = true
					r.reboot()
				}
				return r.settled(fleet.StepPromote, fleet.PhaseFailed)()
			}
		},
		// k3s had fetched etcd's certificates, so it may have asked to be added: a list
		// of the cluster in the journal tells, the record is gone with the swap.
		"with etcd's certificates and no datastore yet": func(r *rig) func() bool {
			return func() bool {
				if !r.host.Facts().Server.Process {
					return false
				}
				r.host.Change(func(f *platform.Facts) { f.EtcdCerts = true })
				return true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.neverWAL = true
			r.order(fleet.StepPromote)
			r.until("under way", until(r))
			r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
			if name == "with its Node deleted" {
				r.self = nil
			}
			r.until("taken back", r.settled(fleet.StepRollback, fleet.PhaseDone))
			f := r.host.Facts()
			if f.Files.Joining.Swap != "" || f.ServerJoin != "" || f.Server.Process || !f.Agent.Process || f.Files.Role != fleet.RoleAgent {
				t.Fatalf("facts: %+v", f)
			}
		})
	}
}

// k3s asks for its member each second for as long as it runs. The break check:
// hold without stopping, and the server runs on.
func TestAJoinThatHasLostTheLeaseIsStoppedAndGoesOnWithIt(t *testing.T) { // R-D1-19, safety rule 21
	r := newRig(t, "d")
	r.neverWAL = true
	r.order(fleet.StepPromote)
	joins := func() bool { return r.host.Facts().Server.Process }
	r.until("joining", joins)
	r.lease.Holder, r.lease.Annotations = "c", nil
	r.until("stopped", func() bool { return r.host.Facts().Server.Gone() })
	for range 20 {
		r.pass()
		if joins() {
			t.Fatal("the join goes on under another's Lease")
		}
	}
	r.hold()
	r.until("joining again", joins)
	r.neverWAL = false
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
}

// A server that asks for its member goes on doing so for ever, and its network may come
// back after the end of its swap: k3s then joins before its daemon has heard of it.
func TestAJoinOfWhichNobodyTellsIsStopped(t *testing.T) { // safety rule 18
	for name, ended := range map[string]bool{"and goes on with its swap": false, "and is taken back with it": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.neverWAL = true
			r.order(fleet.StepPromote)
			r.until("joining", func() bool { return r.host.Facts().Server.Process })
			r.apiDown = true
			since := r.now
			for r.now.Sub(since) < 50*time.Second {
				r.pass()
				if !r.host.Facts().Server.Process {
					t.Fatalf("stopped after %s without an API server", r.now.Sub(since))
				}
			}
			r.until("stopped", func() bool { return r.host.Facts().Server.Gone() })
			if d := r.now.Sub(since); d > hostd.DefaultPolicy().JoinAlone+30*time.Second {
				t.Errorf("stopped after %s only", d)
			}
			for range 20 {
				r.pass()
				if r.host.Facts().Server.Process {
					t.Fatal("the join goes on while nobody can say whether its swap does")
				}
			}
			r.apiDown, r.neverWAL = false, false
			if ended {
				r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
				r.until("an agent again", r.settled(fleet.StepRollback, fleet.PhaseDone))
				return
			}
			r.hold()
			r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
		})
	}
}

// The break check: take the clause of a running member out of adopt, and the
// reboot starts an agent on a voter.
func TestAServerLetInByAllowJoinStaysOneAfterAReboot(t *testing.T) { // safety rule 18
	r := newRig(t, "d")
	r.host.Change(func(f *platform.Facts) {
		f.Files.AllowJoin, f.Files.JoinURL, f.Files.Token = true, "https://10.0.0.2:6443", true
		f.Agent = platform.Unit{State: platform.StateInactive, Conditioned: true}
		f.Server.State, f.Server.Process, f.Server.Level = platform.StateActivating, true, fleet.LevelFull
		f.Files.WAL, f.Datastore, f.EtcdCerts = true, true, true
	})
	r.ownID = idD
	r.members = append(r.members, member("d", idD, 4))
	r.until("the role is server", func() bool { return r.host.Facts().Files.Role == fleet.RoleServer })
	r.reboot()
	r.until("it votes again", func() bool { f := r.host.Facts(); return f.Server.Process && f.Server.State == platform.StateActive })

	// The same host is demoted in the boot of a second allow-join: that is over then.
	r.host.Change(func(f *platform.Facts) { f.Files.AllowJoin, f.Files.Tombstone = true, true })
	r.remove(idD)
	r.until("the agent runs", func() bool { return r.host.Facts().Agent.Process })
	if f := r.host.Facts().Files; f.AllowJoin || f.Role != fleet.RoleAgent {
		t.Errorf("%+v", f)
	}
}

// A candidate that fell after k3s had made its datastore and before its etcd had
// answered knows neither its member id nor its cluster. The swap was rolled back
// and has ended without it; k3s writes no tombstone for a member that was removed
// while it was down (k3s-facts §5.3).
func TestACandidateThatFellBeforeItKnewItsMemberIsTakenBack(t *testing.T) { // safety rules 12 and 16
	for name, role := range map[string]fleet.Role{"before the role file said server": fleet.RoleAgent, "after it": fleet.RoleServer} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.neverWAL = true
			r.order(fleet.StepPromote)
			r.until("the server is on its way", func() bool { return r.host.Facts().Server.Process })
			r.host.Change(func(f *platform.Facts) { f.Files.WAL, f.Datastore, f.EtcdCerts, f.Files.Role = true, true, true, role })
			r.ownID = 0
			r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}

			// Still listed, as a member that never started: nothing is done.
			unstarted := member("d", idD, 4)
			unstarted.Name = ""
			r.members = append(r.members, unstarted)
			r.reboot()
			for range 20 {
				r.pass()
			}
			if f := r.host.Facts(); !f.Files.WAL {
				t.Fatal("taken back while it was listed")
			}

			r.remove(idD)
			r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
			if f := r.host.Facts(); f.Files.Role != fleet.RoleAgent || f.Datastore || f.Server.Process || !f.Agent.Process {
				t.Errorf("%+v", f)
			}
		})
	}
}

// What would keep OUT from coming back is known before the swap, and shown at
// every stage. The break check: leave AsAgent out of the report.
func TestAServerReportsWhetherItCouldBeAnAgent(t *testing.T) { // safety rules 13 to 15
	r := newRig(t, "a")
	r.pass()
	if p := r.report().AsAgent; p == nil || !p.OK || len(p.Problems) != 0 {
		t.Fatalf("a server with nothing in the way: %+v", p)
	}
	r.host.Change(func(f *platform.Facts) {
		f.Agent.Conditioned, f.AgentProblem, f.DatastoreProblem = false, "no token", "server/db/etcd is a mount point"
	})
	r.pass()
	var codes []string
	for _, p := range r.report().AsAgent.Problems {
		codes = append(codes, p.Code)
	}
	if d := cmp.Diff([]string{"NoStartCondition", "AgentNotStaged", "DatastoreMount"}, codes); d != "" || r.report().AsAgent.OK {
		t.Error(d)
	}
	d := newRig(t, "d")
	d.pass()
	if p := d.report().AsAgent; p != nil {
		t.Errorf("an agent: %+v", p)
	}
}

// join.yaml without this host's own entry: it would ask and join its own server.
func TestAHostWithoutItsOwnJoinURLIsNotReadyForEitherRole(t *testing.T) { // safety rules 15 and 23
	for _, node := range []string{"a", "d"} {
		r := newRig(t, node)
		r.joins = joins()
		delete(r.joins, node)
		r.restart()
		r.pass()
		p := r.report().AsAgent
		if node == "d" {
			p = r.report().Preflight
		}
		if p == nil || p.OK || len(p.Problems) != 1 || p.Problems[0].Code != "NoOwnJoinURL" {
			t.Errorf("%s: %+v", node, p)
		}
	}
	// A removed server that nobody asked waits: the server that answers may be its own.
	r := newRig(t, "a")
	r.joins = map[string]string{"c": "https://10.0.0.3:6443"}
	r.restart()
	r.remove(idA)
	r.self.InternalIP = ""
	r.host.Change(func(f *platform.Facts) { f.Files.Tombstone = true })
	r.until("it waits", func() bool { return r.daemon.Decision().Code == "NoServerUp" })
	if f := r.host.Facts(); f.AgentJoin != "" || f.Agent.Process {
		t.Errorf("the agent was sent to %q", f.AgentJoin)
	}
}

// A datastore that became a mount point after the step-down: a named wait, no
// rename again and again.
func TestAFinishWaitsForADatastoreThatCannotBeMoved(t *testing.T) { // safety rule 14
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	r.host.Change(func(f *platform.Facts) { f.DatastoreProblem = "server/db/etcd is a mount point" })
	r.remove(idA)
	r.gone()
	r.until("it waits", func() bool { return r.daemon.Decision().Code == "DatastoreMount" })
	for range 5 {
		r.pass()
	}
	if rep := r.report(); rep.Phase != fleet.PhaseRunning || rep.Code != "DatastoreMount" || slices.Contains(r.calls(), "aside") {
		t.Errorf("report %+v, calls %v", rep, r.calls())
	}
	r.host.Change(func(f *platform.Facts) { f.DatastoreProblem = "" })
	r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
}

// Found by a breaker: a host whose daemon does nothing, for its note cannot be read,
// went into a swap that then stood at one voter more (safety rules 15, 17, 25).
func TestAHostWhoseDaemonDoesNothingSaysSoBeforeASwap(t *testing.T) {
	for node, problems := range map[string]func(status.Report) *status.Preflight{
		"a": func(r status.Report) *status.Preflight { return r.AsAgent },
		"d": func(r status.Report) *status.Preflight { return r.Preflight },
	} {
		r := newRig(t, node)
		r.host.Change(func(f *platform.Facts) { f.Journal = []byte("{") })
		for range 3 {
			r.pass()
		}
		p := problems(r.report())
		if p == nil || p.OK || !slices.ContainsFunc(p.Problems, func(x status.Problem) bool { return x.Code == hostd.CodeBadJournal }) {
			t.Errorf("%s says of a swap: %+v", node, p)
		}
	}
}
