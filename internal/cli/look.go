package cli

import (
	"context"
	"time"

	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// lookUntil observes until enough says so or limit is over, and returns the
// last observation. The first one finds nothing fresh, because only a change
// that was seen is; a host daemon makes one at least every period.
func lookUntil(ctx context.Context, b *observe.Observer, also []string, limit, look time.Duration, enough func(*swap.Observation) bool) (observe.Sight, error) {
	end := time.Now().Add(limit)
	for {
		sight, err := b.Observe(ctx, time.Now(), also...)
		if err == nil && enough(&sight.Observation) || !time.Now().Before(end) {
			return sight, err
		}
		if !pause(ctx, look) {
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
