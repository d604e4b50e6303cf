package swap

import (
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
)

// classify works out the state. The order matters: what cannot be understood
// comes first, then whose Lease it is, then who drives, then what the members
// and the marks say.
func (v *view) classify() State {
	if v.problem != nil {
		return Contradiction
	}
	if v.rec == nil {
		return v.classifyIdle()
	}
	if v.o.Status == nil && v.o.StatusProblem != "" {
		return StatusUnread
	}
	if len(v.marked) == 0 {
		return v.classifyUnmarked()
	}
	switch v.leaseState() {
	case lease.Held:
		if v.o.Lease.Holder != fleet.LeaseHolder {
			return LeaseLost
		}
		if v.o.Lease.SwapID() != v.rec.ID {
			return Contradiction
		}
	case lease.Free, lease.Expired:
		return Reclaim
	}
	if v.drivenByOther() {
		return TakeOverState
	}
	if v.ended() {
		return End
	}
	if v.in == nil || v.out == nil || !v.carries(v.in) || !v.carries(v.out) {
		return Begin
	}
	if len(v.frozen()) > 0 {
		return Frozen
	}
	return v.classifyMarked()
}

// classifyIdle: no record anywhere. A Lease that names a swap whose record
// cannot be read, with no Node marked, began nothing.
func (v *view) classifyIdle() State {
	if v.o.Lease.SwapID() != "" && v.leaseState() == lease.Held {
		return Contradiction
	}
	return Idle
}

// classifyUnmarked: the record stands on the Lease alone. Either nothing has
// begun, or everything is cleared and the Lease is the last thing to go
// (R-228-18), or both Nodes have lost their marks in the middle (safety rule 25).
func (v *view) classifyUnmarked() State {
	if v.leaseState() != lease.Held {
		return Reclaim
	}
	if v.o.Lease.Annotations[fleet.LeaseController] != v.o.Self {
		return TakeOverState
	}
	if v.ended() {
		return End
	}
	return Begin
}

// drivenByOther: a Node of the swap or the Lease names another controller. The
// Nodes are taken over first, so that the old one's writes fail, then the Lease.
func (v *view) drivenByOther() bool {
	if v.o.Lease.Annotations[fleet.LeaseController] != v.o.Self {
		return true
	}
	return v.othersNode() != ""
}

// classifyMarked: both Nodes carry the record.
func (v *view) classifyMarked() State {
	if v.stepIs(v.in, fleet.StepRollback) {
		// A member that comes back is removed again, marked gone or not.
		if v.markedGone(v.in) && (v.inGone() || !v.list.known) {
			return Restore
		}
		return Rollback
	}
	if v.stepIs(v.out, fleet.StepStepDown) {
		switch {
		case v.markedGone(v.out) && (v.departed() || !v.list.known):
			return Finish
		case asked(v.out):
			return Remove
		}
		return StepDown
	}
	if v.stepIs(v.in, fleet.StepPromote) {
		switch {
		case !v.inVotes():
			return Promote
		case !v.settled():
			return Settle
		}
		return DrainOut
	}
	switch {
	case v.changed():
		// The step of IN's or OUT's order was lost with a Node (safety rule 27).
		return Prepare
	case !v.in.Node.Unschedulable || !v.out.Node.Unschedulable || v.leftover() != nil:
		return Prepare
	case v.protected(v.in)+v.protected(v.out) > 0 || !v.in.PodsRead || !v.out.PodsRead:
		return Wait
	case v.evictable(v.in) > 0:
		return DrainIn
	case !v.snapshotReady():
		return TakeSnapshot
	}
	return Recheck
}

func (v *view) markedGone(h *Host) bool {
	return h.Node.Annotations[v.p.Keys.MemberGone()] == string(v.rec.ID)
}

// settled: IN's own etcd answers and its Node is Ready on a later heartbeat; its
// role file says server; its member id stands in the record on both Nodes (design
// "Who is a voter").
func (v *view) settled() bool {
	return v.inServes() && len(lasts(v.in)) == 0 && v.recordHas(v.in) && v.recordHas(v.out) &&
		v.in.Node.Annotations[fleet.AnnotationEtcdRemovedName] == ""
}

func (v *view) inServes() bool {
	_, ok := list(v.in)
	if !ok || !back(v.in) {
		return false
	}
	for _, m := range v.inMembers() {
		if m.ID == v.in.Report.MemberID {
			return !m.Learner
		}
	}
	return false
}
