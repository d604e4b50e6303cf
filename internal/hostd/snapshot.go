package hostd

import (
	"github.com/exadev/regrade/internal/fleet"
)

// snapshot takes the etcd snapshot that a controller asks of a staying voter
// (R-N-03, R-D1-28, R-216-25). One whose request was withdrawn is brought to its
// end: the controller sees the snapshot in the cluster before the host sees its file.
func snapshot(f Facts, o order) Decision {
	id := snapshotID(f)
	withdrawn := id == "" && f.View != nil && f.Command == nil && f.Journal.Step == fleet.StepSnapshot && f.Journal.Phase == fleet.PhaseRunning
	if withdrawn {
		id = f.Journal.Swap
	}
	if id == "" || f.Journal.Is(id, fleet.StepSnapshot) && f.Journal.Phase.Settled() {
		return Decision{}
	}
	if o.step != "" && o.step != fleet.StepSnapshot {
		return Decision{} // a host of the swap itself is never asked (R-228-16)
	}
	s := order{swap: id, step: fleet.StepSnapshot}
	base := fleet.SnapshotPrefix + string(id)
	if !f.Journal.Running(id, fleet.StepSnapshot) {
		if _, err := fleet.ParseSwapID(string(id)); err != nil {
			return hold(CodeBadOrder, "%v", err)
		}
		if p, ok := f.held(s); !ok {
			if p.Code == CodeNoAPI {
				return hold(p.Code, "%s", p.Sentence)
			}
			return refuse(f, s, p)
		}
		switch {
		case f.Host.Files.Leaving != "" || !f.Etcd.Voter() && !f.stays(id):
			return refuse(f, s, problem(CodeNotServer, "only a voter that stays takes a snapshot"))
		case !f.Etcd.Voter():
			// It has just been started again, or etcd has no leader: the controller waits
			// for the snapshot, for so long and no longer.
			return hold(CodeEtcdDown, "%s", etcdStage(f))
		}
		return begin(f, s)
	}
	run := f.Host.Snapshot
	switch {
	case run.Base == base && run.Running:
		return soonIf(!late(f, f.Policy.SnapshotTimeout), hold(CodeSnapshotting, "the etcd snapshot %s is being taken", base))
	case snapshotFile(f, base) != "":
		j := f.Journal
		j.Phase, j.Snapshot, j.Code, j.Message = fleet.PhaseDone, base, "", snapshotFile(f, base)
		return note(j)
	case run.Base == base && run.Error != "":
		return failed(f, CodeSnapshotFailed, "%s", run.Error)
	case run.Base == base:
		// Not once more: each fills the disk with a copy of the datastore.
		return failed(f, CodeSnapshotFailed, "k3s ended without an error, and there is no snapshot file %s-…", base)
	case late(f, f.Policy.SnapshotTimeout):
		return failed(f, CodeSnapshotFailed, "not taken within %s", f.Policy.SnapshotTimeout)
	case withdrawn:
		// Not begun once more; a command, or a daemon that has fallen since, may have begun it.
		return hold(CodeSnapshotting, "the etcd snapshot %s is not asked for any more; its file is waited for until its bound", base)
	}
	return effect(Effect{Kind: Snapshot, Base: base})
}

// stays says whether a host whose etcd does not say that it votes may be a voter that
// stays: a member, and none of the two hosts of the swap.
func (f Facts) stays(id fleet.SwapID) bool {
	if self := f.View.Self; self != nil && self.Annotations[f.Policy.Keys.Swap()] == string(id) {
		return false
	}
	_, gone := removed(f)
	return f.Host.Files.WAL && !gone
}

// snapshotWaits says whether what a host waits for is its voter's etcd, to take a
// snapshot that is asked of it.
func (f Facts) snapshotWaits(d Decision) bool {
	id := snapshotID(f)
	if id == "" || d.Acts() || f.Journal.Is(id, fleet.StepSnapshot) {
		return false
	}
	w := snapshot(f, f.order())
	return w.Code == d.Code && w.Sentence == d.Sentence
}

// snapshotID is the swap for which a snapshot is asked of this host.
func snapshotID(f Facts) fleet.SwapID {
	if f.Command != nil {
		if f.Command.Step == fleet.StepSnapshot {
			return f.Command.Swap
		}
		return ""
	}
	if f.View == nil || f.View.Self == nil {
		return ""
	}
	return fleet.SwapID(f.View.Self.Annotations[f.Policy.Keys.SnapshotRequest()])
}

// snapshotFile is the newest file of a base name, empty when there is none.
// k3s names it <base>-<node>-<seconds> (k3s-facts §8).
func snapshotFile(f Facts, base string) string {
	var file string
	for _, s := range f.Host.Snapshots {
		if len(s) > len(base) && s[:len(base)+1] == base+"-" {
			file = s
		}
	}
	return file
}
