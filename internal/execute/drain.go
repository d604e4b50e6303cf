package execute

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// drain is one round: list the pods again, try every eviction as a dry run,
// then evict (safety rule 20). A job that turned up since the decision, a pod
// nothing would make again, or one refusal ends the round before the first pod
// has gone: either the whole Node can be drained or nothing is.
func (e *Executor) drain(ctx context.Context, a swap.Action, o *swap.Observation) (Effect, error) {
	if _, err := e.leaseFor(ctx, a, o); err != nil {
		return Effect{}, err
	}
	n, found, err := e.cluster.Node(ctx, a.Node)
	switch {
	case err != nil:
		return Effect{}, err
	case !found:
		return Effect{}, fmt.Errorf("%w: there is no Node", ErrConflict)
	}
	if err := e.nodeFor(n, a); err != nil {
		return Effect{}, err
	}
	if !n.Unschedulable {
		return Effect{}, fmt.Errorf("%w: the Node is not cordoned", ErrConflict)
	}
	pods, err := e.cluster.Pods(ctx, a.Node)
	if err != nil {
		return Effect{}, err
	}
	var go_ []observe.Pod
	var stop []string
	for _, p := range pods {
		q := observe.Judge(p, e.settings.Protected)
		switch {
		case p.Finished || q.Stays || q.Terminating && !q.Protected:
		case q.Protected:
			stop = append(stop, fmt.Sprintf("%s/%s is a running job", p.Namespace, p.Name))
		case !q.Owned:
			stop = append(stop, fmt.Sprintf("%s/%s has no owner that would make it again", p.Namespace, p.Name))
		default:
			go_ = append(go_, p)
		}
	}
	if len(stop) > 0 {
		return Effect{}, fmt.Errorf("%w: %s", ErrConflict, strings.Join(stop, "; "))
	}
	for _, p := range go_ {
		refusal, err := e.cluster.TryEvict(ctx, p)
		if err != nil {
			return Effect{}, fmt.Errorf("try to evict %s/%s: %w", p.Namespace, p.Name, err)
		}
		if refusal != "" {
			stop = append(stop, fmt.Sprintf("%s/%s: %s", p.Namespace, p.Name, refusal))
		}
	}
	if len(stop) > 0 {
		return Effect{}, fmt.Errorf("%w: evictions refused: %s", ErrConflict, strings.Join(stop, "; "))
	}
	var eff Effect
	var errs []error
	for _, p := range go_ {
		refusal, err := e.cluster.Evict(ctx, p)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("evict %s/%s: %w", p.Namespace, p.Name, err))
		case refusal != "":
			errs = append(errs, fmt.Errorf("evict %s/%s: %s", p.Namespace, p.Name, refusal))
		default:
			eff.Evicted++
		}
	}
	return eff, errors.Join(errs...)
}
