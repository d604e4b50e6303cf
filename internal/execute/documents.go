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
	if _, err := e.leaseFor(ctx, a, o); err != nil {
		return Effect{}, err
	}
	st := swap.Concluded(o.Status, *a.Last, e.settings.Policy)
	st.At, st.Controller = o.Now, e.settings.Self
	st.DryRun, st.Target = e.settings.Policy.DryRun, e.settings.Policy.Target
	raw, err := json.Marshal(st)
	if err != nil {
		return Effect{}, err
	}
	err = e.cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, "", map[string]*string{fleet.KeyStatus: new(string(raw))})
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
