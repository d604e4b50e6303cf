package hostd_test

import (
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

func TestSnapshotByAStayingVoter(t *testing.T) { // R-D1-28, R-216-25
	r := newRig(t, "b")
	r.self.Annotations[keys().SnapshotRequest()] = string(id)
	r.hold()
	r.until("taken", r.settled(fleet.StepSnapshot, fleet.PhaseDone))
	r.pass()
	rep := r.report()
	if rep.Snapshot != "fleet-role-"+string(id) || rep.Message == "" {
		t.Errorf("report: %+v", rep)
	}
	n := len(r.calls())
	for range 5 {
		r.pass()
	}
	if len(r.calls()) != n {
		t.Error("taken again")
	}
}

func TestSnapshotFailures(t *testing.T) {
	t.Run("k3s refuses", func(t *testing.T) {
		r := newRig(t, "b")
		r.self.Annotations[keys().SnapshotRequest()] = string(id)
		r.hold()
		r.until("begun", func() bool { return r.host.Facts().Snapshot.Running })
		r.host.Change(func(f *platform.Facts) { f.Snapshot.Error = "disk full" })
		r.until("failed", r.settled(fleet.StepSnapshot, fleet.PhaseFailed))
	})
	t.Run("k3s says it is saved and there is no file", func(t *testing.T) {
		r := newRig(t, "b")
		r.self.Annotations[keys().SnapshotRequest()] = string(id)
		r.hold()
		r.until("begun", func() bool { return r.host.Facts().Snapshot.Running })
		r.host.Change(func(f *platform.Facts) { f.Snapshot.Running = false })
		r.until("failed", r.settled(fleet.StepSnapshot, fleet.PhaseFailed))
		if n := strings.Count(strings.Join(r.host.Calls, " "), "snapshot "); n != 1 {
			t.Errorf("%d snapshots were taken: %v", n, r.host.Calls)
		}
	})
	t.Run("no Lease", func(t *testing.T) {
		r := newRig(t, "b")
		r.self.Annotations[keys().SnapshotRequest()] = string(id)
		r.until("refused", r.settled(fleet.StepSnapshot, fleet.PhaseRefused))
	})
	t.Run("an agent is asked", func(t *testing.T) {
		r := newRig(t, "d")
		r.self.Annotations[keys().SnapshotRequest()] = string(id)
		r.hold()
		r.until("refused", r.settled(fleet.StepSnapshot, fleet.PhaseRefused))
	})
}

// Found by a breaker: a voter that had just been rebooted refused, and the swap was
// abandoned for it. The break check: refuse whoever does not vote now.
func TestAVoterThatWasJustRebootedTakesTheSnapshotOnceItVotes(t *testing.T) {
	r := newRig(t, "b")
	r.self.Annotations[keys().SnapshotRequest()] = string(id)
	r.hold()
	r.etcdDown = true
	r.reboot()
	for range 10 {
		r.pass()
	}
	if rep := r.report(); rep.Swap != id || rep.Step != fleet.StepSnapshot || rep.Phase != "" || rep.Code != "EtcdDown" || rep.Message == "" {
		t.Errorf("the report says %s %s %q %s %q", rep.Swap, rep.Step, rep.Phase, rep.Code, rep.Message)
	}
	if n := strings.Count(strings.Join(r.host.Calls, " "), "snapshot "); n != 0 {
		t.Errorf("%d snapshots were taken", n)
	}
	r.etcdDown = false
	r.until("taken", r.settled(fleet.StepSnapshot, fleet.PhaseDone))
}

// What does not pass is refused at once. The break checks: each condition of stays.
func TestWhoIsNoVoterThatStaysRefusesTheSnapshot(t *testing.T) { // R-228-16
	for name, change := range map[string]func(r *rig){
		"a host of the swap":     func(r *rig) { r.self.Annotations[keys().Swap()] = string(id) },
		"a host that is leaving": func(r *rig) { r.host.Change(func(f *platform.Facts) { f.Files.Leaving = id }) },
		"a host without a datastore": func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Files.WAL, f.Datastore = false, false })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "b")
			r.self.Annotations[keys().SnapshotRequest()] = string(id)
			r.hold()
			r.etcdDown = true
			change(r)
			r.until("refused", r.settled(fleet.StepSnapshot, fleet.PhaseRefused))
		})
	}
}

// A request goes as soon as the cluster shows the snapshot, or with its swap: the
// host said for ever that it was taking it, and looked each two seconds.
func TestASnapshotWhoseRequestWasWithdrawnComesToItsEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(r *rig)
		phase fleet.Phase
		code  string
	}{
		{"once it is taken", func(*rig) {}, fleet.PhaseDone, ""},
		{"once k3s has failed", func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Snapshot.Error = "disk full" })
		}, fleet.PhaseFailed, "SnapshotFailed"},
		{"after its bound, when the daemon fell and nobody knows of the run", func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Snapshot = platform.SnapshotRun{} })
			r.restart()
		}, fleet.PhaseFailed, "SnapshotFailed"},
		{"when the Node is gone, too", func(r *rig) { r.self = nil }, fleet.PhaseDone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "b")
			r.self.Annotations[keys().SnapshotRequest()] = string(id)
			r.hold()
			r.until("begun", func() bool { return r.host.Facts().Snapshot.Running })
			delete(r.self.Annotations, keys().SnapshotRequest())
			r.lease.RenewTime = r.lease.RenewTime.Add(-r.lease.Duration)
			c.after(r)
			r.until("settled", r.settled(fleet.StepSnapshot, c.phase))
			if j := r.journal(); j.Code != c.code || (j.Snapshot != "") != (c.phase == fleet.PhaseDone) {
				t.Errorf("it ended with %s %q, snapshot %q", j.Code, j.Message, j.Snapshot)
			}
			if n := strings.Count(strings.Join(r.host.Calls, " "), "snapshot "); n != 1 {
				t.Errorf("%d snapshots were taken: %v", n, r.host.Calls)
			}
		})
	}
}
