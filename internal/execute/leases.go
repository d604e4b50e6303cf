package execute

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/swap"
)

// takeLease acquires a free or expired Lease, or the Lease of this swap whose
// former controller has not renewed it since the decision. One that does not
// exist is made.
func (e *Executor) takeLease(ctx context.Context, a swap.Action, o *swap.Observation) error {
	if a.Record == nil || a.Record.ID != a.Swap {
		return fmt.Errorf("no record of swap %q", a.Swap)
	}
	l, err := e.cluster.Lease(ctx)
	if err != nil {
		return err
	}
	mine := e.owns(l.Lease, a.Swap)
	inherited := l.SwapID() == a.Swap && sameLease(l.Lease, o.Lease)
	if l.At(o.Now) == lease.Held && !mine && !inherited {
		return fmt.Errorf("%w: the Lease is taken (%s)", ErrConflict, describe(l.Lease, o))
	}
	next := l.Lease
	next.Exists = true
	if l.SwapID() != a.Swap || next.AcquireTime.IsZero() {
		next.AcquireTime = o.Now
	}
	next.Holder, next.RenewTime, next.Duration = fleet.LeaseHolder, o.Now, e.settings.LeaseDuration
	next.Annotations = cloned(l.Annotations)
	if l.SwapID() != a.Swap {
		delete(next.Annotations, fleet.LeaseOutcome)
	}
	next.Annotations[fleet.LeaseSwapID] = string(a.Swap)
	next.Annotations[fleet.LeaseSwapNodes] = a.Record.Out + "," + a.Record.In
	next.Annotations[fleet.LeaseController] = e.settings.Self
	next.Annotations[fleet.LeaseRecord] = a.Record.String()
	return e.cluster.PutLease(ctx, l.Version, next)
}

// Renew gives the Lease of a swap a new renew time and keeps all else (R-E1-01).
// It fails with ErrConflict when the holder, the swap or the controller in it is
// another. A Lease renewed within the same second is left as it is.
func (e *Executor) Renew(ctx context.Context, id fleet.SwapID, now time.Time) error {
	l, err := e.cluster.Lease(ctx)
	if err != nil {
		return fmt.Errorf("renew Lease: %w", err)
	}
	if !e.owns(l.Lease, id) {
		return fmt.Errorf("renew Lease: %w: it is not ours for %s (holder %q, swap %q, controller %q)", ErrConflict,
			id, l.Holder, l.Annotations[fleet.LeaseSwapID], l.Annotations[fleet.LeaseController])
	}
	if !now.After(l.RenewTime) {
		return nil
	}
	next := l.Lease
	next.RenewTime = now
	if err := e.cluster.PutLease(ctx, l.Version, next); err != nil {
		return fmt.Errorf("renew Lease: %w", err)
	}
	return nil
}

// releaseLease clears holder, times and annotations, so that the next holder
// reads none of ours (R-228-01).
func (e *Executor) releaseLease(ctx context.Context, a swap.Action, o *swap.Observation) error {
	l, err := e.cluster.Lease(ctx)
	if err != nil {
		return err
	}
	switch {
	case !l.Exists || l.Holder == "":
		return nil
	case l.SwapID() != a.Swap:
		return fmt.Errorf("%w: the Lease is another's (%s)", ErrConflict, describe(l.Lease, o))
	case !e.owns(l.Lease, a.Swap) && !sameLease(l.Lease, o.Lease):
		return fmt.Errorf("%w: another controller renews the Lease (%s)", ErrConflict, describe(l.Lease, o))
	}
	next := lease.Lease{Exists: true, Annotations: cloned(l.Annotations)}
	for _, k := range []string{fleet.LeaseSwapID, fleet.LeaseSwapNodes, fleet.LeaseController, fleet.LeaseRecord, fleet.LeaseOutcome} {
		delete(next.Annotations, k)
	}
	return e.cluster.PutLease(ctx, l.Version, next)
}

func cloned(m map[string]string) map[string]string {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]string{}
	}
	return c
}
