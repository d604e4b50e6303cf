package execute

import (
	"context"
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// leaseFor reads the Lease again and says whether the action may go on under it.
func (e *Executor) leaseFor(ctx context.Context, a swap.Action, o *swap.Observation) (observe.Lease, error) {
	l, err := e.cluster.Lease(ctx)
	if err != nil {
		return l, err
	}
	return l, e.judgeLease(l.Lease, a, o)
}

func (e *Executor) judgeLease(l lease.Lease, a swap.Action, o *swap.Observation) error {
	if e.owns(l, a.Swap) && l.At(o.Now) == lease.Held {
		return nil
	}
	switch a.Kind {
	case swap.Uncordon, swap.Untaint, swap.CleanNode, swap.ClearSwap, swap.ClearSnapshotRequest, swap.Conclude:
		// The end of a swap and the clean-up owed after it may find the Lease
		// released or run out. It is never another's meanwhile.
		if l.At(o.Now) != lease.Held {
			return nil
		}
	case swap.TakeOver:
		// The former controller still stands in the Lease. It must not have
		// renewed since it was judged dead.
		if l.SwapID() == a.Swap && sameLease(l, o.Lease) {
			return nil
		}
	}
	return fmt.Errorf("%w: the Lease is not ours for %s (%s)", ErrConflict, a.Swap, describe(l, o))
}

// owns: the Lease is a controller's for this swap, and the controller is us.
func (e *Executor) owns(l lease.Lease, id fleet.SwapID) bool {
	return id != "" && l.SwapID() == id && l.Annotations[fleet.LeaseController] == e.settings.Self
}

func sameLease(a, b lease.Lease) bool {
	return a.Exists == b.Exists && a.Holder == b.Holder && a.RenewTime.Equal(b.RenewTime) &&
		a.Annotations[fleet.LeaseController] == b.Annotations[fleet.LeaseController]
}

func describe(l lease.Lease, o *swap.Observation) string {
	if !l.Exists {
		return "there is none"
	}
	return fmt.Sprintf("%s, holder %q, swap %q, controller %q",
		l.At(o.Now), l.Holder, l.Annotations[fleet.LeaseSwapID], l.Annotations[fleet.LeaseController])
}

// nodeFor says whether a Node read just now is still the one the action was
// decided on: it carries this swap and this controller's id. Who took the swap
// over has written its own id first, and the other's patches end here.
func (e *Executor) nodeFor(n observe.Node, a swap.Action) error {
	k := e.settings.Policy.Keys
	id, carries := n.Annotations[k.Swap()]
	ours := carries && id == string(a.Swap) && n.Annotations[k.Controller()] == e.settings.Self
	switch a.Kind {
	case swap.WriteRecord:
		if driver := n.Annotations[k.Controller()]; !carries || ours || (id == string(a.Swap) && driver == "") {
			return nil
		}
	case swap.TakeOver:
		if carries && id == string(a.Swap) {
			return nil
		}
	case swap.RequestSnapshot, swap.ClearSnapshotRequest, swap.WithdrawRemoval, swap.ClearRemovedName, swap.ClearSwap:
		// These may concern a voter that stays and carries no swap. The end may
		// also find an annotation another controller began with.
		if !carries || ours || (a.Kind == swap.ClearSwap && id == string(a.Swap)) {
			return nil
		}
	case swap.CleanNode, swap.Untaint, swap.Uncordon:
		_, owed := n.Annotations[k.Cordoned()]
		if a.Kind == swap.CleanNode && n.Labels[k.DesiredRole()] == string(fleet.RoleAgent) {
			owed = true // the operator's own cordon stood before ours could
		}
		if ours || (!carries && owed) {
			return nil
		}
	default:
		if ours {
			return nil
		}
	}
	return fmt.Errorf("%w: the Node carries swap %q of controller %q", ErrConflict, id, n.Annotations[k.Controller()])
}
