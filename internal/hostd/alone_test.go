package hostd_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
)

// k3s joined after the host was looked at and before the stop, which waits for an API
// server meanwhile. It may be a voter by now, and one that the quorum hangs on: then no
// API server answers before it runs. The break check: leave a host with a datastore alone.
func TestAServerThatJoinedAsItWasStoppedIsStartedAgain(t *testing.T) { // safety rule 18
	r := newRig(t, "d")
	r.neverWAL = true
	r.order(fleet.StepPromote)
	r.until("joining", func() bool { return r.host.Facts().Server.Process })
	r.apiDown = true
	since, looks, joined := r.now, 0, false
	r.after = func(what string) {
		if what != "own etcd" || joined || r.now.Sub(since) < hostd.DefaultPolicy().JoinAlone {
			return
		}
		if looks++; looks == 2 { // the look that the effect rests on
			joined, r.neverWAL, r.etcdDown = true, false, true
			r.host.Advance()
		}
	}
	r.until("stopped as it joined", func() bool { f := r.host.Facts(); return f.Files.WAL && f.Server.Gone() })
	r.etcdDown = false
	r.until("a voter that stays one", func() bool {
		f := r.host.Facts()
		return f.Server.State == platform.StateActive && f.Files.Role == fleet.RoleServer
	})
}

// An etcd that answers has a datastore, wherever the look at the host has not found it.
// The break check: do not ask for its answer.
func TestAServerWhoseEtcdAnswersIsNoneThatAsksForItsMember(t *testing.T) { // safety rule 18
	r := newRig(t, "d")
	r.learns = true
	r.order(fleet.StepPromote)
	r.until("a member", func() bool { return r.host.Facts().Files.Role == fleet.RoleServer })
	f := r.daemon.Facts()
	f.View, f.Host.Files.WAL, f.AloneSince = nil, false, f.Now.Add(-time.Hour)
	f.Etcd = hostd.Facts{}.Etcd
	if d := hostd.Next(f); d.Effect.Kind != hostd.Stop {
		t.Fatalf("the case is none: %+v", d)
	}
	f.Etcd.Answers, f.Etcd.ID = true, idD
	if d := hostd.Next(f); d.Effect.Kind == hostd.Stop {
		t.Errorf("a server whose etcd answers was stopped: %+v", d)
	}
}

// A rollback came after k3s had made the datastore and before the role file said server;
// the member is counted on after all, in its swap or by those who ended it without this
// host. The break check: ask for the role file.
func TestARollbackBeforeTheRoleFileThatIsCalledOffStartsTheServerAgain(t *testing.T) { // safety rules 7 and 18
	for name, ended := range map[string]bool{"in its swap": false, "after its end": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "d")
			r.learns = true
			r.order(fleet.StepPromote)
			r.until("it has a datastore", func() bool { return r.host.Facts().Files.WAL })
			if role := r.host.Facts().Files.Role; role != fleet.RoleAgent {
				t.Fatalf("the role file says %s already", role)
			}
			r.order(fleet.StepRollback)
			r.until("its server has ended", func() bool { return r.journal().Stopped })
			r.members[r.index(idD)].Learner, r.learns = false, false
			if ended {
				r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
			} else {
				r.order(fleet.StepPromote)
			}
			r.until("a voter that stays one", func() bool {
				f := r.host.Facts()
				return f.Server.State == platform.StateActive && f.Files.Role == fleet.RoleServer
			})
		})
	}
}

// k3s joined in the moment in which its daemon learned that the swap had ended: with a
// voter down, what k3s makes a voter next must not be stopped unasked.
func TestAServerThatJoinedAsItsSwapEndedIsNotStopped(t *testing.T) { // safety rule 2
	r := newRig(t, "d")
	r.neverWAL = true
	r.order(fleet.StepPromote)
	r.until("joining", func() bool { return r.host.Facts().Server.Process })
	r.silent = []fleet.MemberID{idA}
	r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
	joined := false
	r.after = func(string) {
		if !joined && r.journal().Step == fleet.StepRollback {
			joined, r.neverWAL, r.learns = true, false, true
			r.host.Advance()
		}
	}
	for range 20 {
		r.pass()
	}
	if f := r.host.Facts(); !f.Server.Process || f.Files.Role != fleet.RoleServer {
		t.Errorf("%+v, role %s", f.Server, f.Files.Role)
	}
}
