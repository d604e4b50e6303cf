package execute

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// conclude publishes how a swap ended, before any annotation goes: a swap whose
// outcome stands in the status is ended and never begun again (R-228-18).
func (e *Executor) conclude(ctx context.Context, a swap.Action, o *swap.Observation) (Effect, error) {
	if a.Last == nil {
		return Effect{}, fmt.Errorf("no outcome")
	}
	l, err := e.leaseFor(ctx, a, o)
	if err != nil {
		return Effect{}, err
	}
	// The Lease first: only its holder's write passes, so that a controller which
	// stood still ends no swap that another one drives. The status comes second and
	// is made good when it fails (row OutcomeAgain).
	outcome, err := json.Marshal(a.Last)
	if err != nil {
		return Effect{}, err
	}
	if l.SwapID() == a.Swap && l.Annotations[fleet.LeaseOutcome] != string(outcome) {
		next := l.Lease
		next.Annotations = cloned(l.Annotations)
		next.Annotations[fleet.LeaseOutcome] = string(outcome)
		if err := e.cluster.PutLease(ctx, l.Version, next); err != nil {
			return Effect{}, err
		}
	}
	cm, err := e.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
	if err != nil {
		return Effect{}, err
	}
	if raw, ok := cm.Data[fleet.KeyStatus]; ok {
		now, err := status.ParseStatus([]byte(raw))
		if err != nil || o.Status == nil || !now.At.Equal(o.Status.At) || now.Controller != o.Status.Controller {
			return Effect{}, fmt.Errorf("%w: the status has changed since the end was decided", ErrConflict)
		}
	}
	st := swap.Concluded(o.Status, *a.Last, e.settings.Policy)
	st.At, st.Controller = o.Now, e.settings.Self
	st.DryRun, st.Target = e.settings.Policy.DryRun, e.settings.Policy.Target
	raw, err := json.Marshal(st)
	if err != nil {
		return Effect{}, err
	}
	err = e.cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, cm.Version, map[string]*string{fleet.KeyStatus: new(string(raw))})
	return Effect{Status: &st}, err
}

// dropRequest deletes the request that was judged, and no newer one.
func (e *Executor) dropRequest(ctx context.Context, o *swap.Observation) error {
	cm, err := e.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
	if err != nil {
		return err
	}
	raw, ok := cm.Data[fleet.KeyRequest]
	if !ok {
		return nil
	}
	now, err := status.ParseRequest([]byte(raw))
	if err == nil && (o.Request == nil || now.Out != o.Request.Out || now.In != o.Request.In || !now.At.Equal(o.Request.At)) {
		return fmt.Errorf("%w: there is a newer request", ErrConflict)
	}
	if err != nil && o.RequestProblem == "" {
		return fmt.Errorf("%w: there is another request", ErrConflict)
	}
	return e.cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, cm.Version, map[string]*string{fleet.KeyRequest: nil})
}
