package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// looker observes until it has seen enough.
type looker struct {
	observe func(context.Context) (observe.Sight, error)
	limit   time.Duration
	look    time.Duration
	// errs is told once what keeps it from observing.
	errs io.Writer
}

// observing is how an Observer observes, the pods of also included.
func observing(b *observe.Observer, also ...string) func(context.Context) (observe.Sight, error) {
	return func(ctx context.Context) (observe.Sight, error) { return b.Observe(ctx, time.Now(), also...) }
}

// until observes until enough says so or the limit is over, and returns the
// last observation. The first one finds nothing fresh, because only a change
// that was seen is; a host daemon makes one at least every period. Credentials that
// the API refuses are not tried again.
func (l looker) until(ctx context.Context, enough func(*swap.Observation) bool) (observe.Sight, error) {
	end, failing := time.Now().Add(l.limit), ""
	for {
		sight, err := l.observe(ctx)
		if said, denied := kube.Denied(err); denied {
			return sight, fmt.Errorf("%s: %w", said, err)
		}
		if err == nil && enough(&sight.Observation) || !time.Now().Before(end) {
			return sight, err
		}
		if err != nil && ctx.Err() == nil {
			failing = sayOnce(l.errs, failing, fmt.Errorf("%w; tried again for up to %s", err, l.limit))
		}
		if !pause(ctx, l.look) {
			return sight, ctx.Err()
		}
	}
}

// settled says whether every host that reports has been seen to.
func settled(o *swap.Observation) bool {
	for i := range o.Hosts {
		if o.Hosts[i].Report != nil && !o.Hosts[i].Fresh {
			return false
		}
	}
	return true
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
