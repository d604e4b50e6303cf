package execute

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

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
	st := Concluded(o.Status, *a.Last, e.settings.Policy, o.Now)
	st.Controller = e.settings.Self
	raw, err := json.Marshal(st)
	if err != nil {
		return Effect{}, err
	}
	err = e.cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, "", map[string]*string{fleet.KeyStatus: new(string(raw))})
	return Effect{Status: &st}, err
}

// Longest wait before an abandoned pair is tried again by itself, and how long
// an old count is remembered.
const (
	maxBackoff    = 24 * time.Hour
	forgetBackoff = 24 * time.Hour
)

// Concluded is the status after a swap ended at now: last_swap, the cooldown
// after a swap that changed something, the back-off of an abandoned pair
// (safety rule 20). A swap already concluded is not counted twice.
func Concluded(prev *status.Status, last status.LastSwap, p swap.Policy, now time.Time) status.Status {
	var st status.Status
	if prev != nil {
		st = *prev
	}
	if st.LastSwap != nil && st.LastSwap.ID == last.ID {
		return st
	}
	st.Protocol, st.At, st.DryRun, st.Target = status.Protocol, now, p.DryRun, p.Target
	st.LastSwap, st.Swap = &last, nil
	pair := func(b status.Backoff) bool { return b.Out == last.Out && b.In == last.In }
	count := 0
	if i := slices.IndexFunc(st.Backoff, pair); i >= 0 {
		count = st.Backoff[i].Count
	}
	st.Backoff = slices.DeleteFunc(slices.Clone(st.Backoff), func(b status.Backoff) bool {
		return pair(b) || now.After(b.Until.Add(forgetBackoff))
	})
	if last.Outcome == fleet.OutcomeAbandoned {
		count++
		wait := maxBackoff
		if count <= 16 {
			wait = min(p.AbandonBackoff<<(count-1), maxBackoff)
		}
		st.Backoff = append(st.Backoff, status.Backoff{Out: last.Out, In: last.In, Count: count, Until: now.Add(wait)})
	} else {
		st.CooldownUntil = now.Add(p.Cooldown)
	}
	return st
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
