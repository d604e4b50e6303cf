package lean

import (
	"context"
	"log/slog"
	"time"

	"github.com/exadev/regrade/internal/obs"
)

// AtRest gives a function that gives the pages back, for a process that knows when it has
// nothing to do: what a pass has touched counts as its memory until it is given back, most
// of a process that passes every 15 s and is done within 100 ms. A host that is short of
// memory finds them first, since nobody has them mapped. Not safe for concurrent use.
func AtRest(log *slog.Logger) func() {
	failed := false
	return func() {
		if failed {
			return
		}
		if err := ReturnPages(); err != nil {
			failed = true
			log.Warn("memory not given back", obs.Err, err)
		}
	}
}

// every is how many periods pass before what rare paths have touched is given
// back again.
const every = 4

// Stay gives back the pages that only the start needed, once the first three
// periods are over, and now and then again, until ctx ends (design §8).
func Stay(ctx context.Context, period time.Duration, log *slog.Logger) {
	wait := time.NewTimer(3 * period)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		if err := ReturnPages(); err != nil {
			log.Warn("memory not given back", obs.Err, err)
			return
		}
		wait.Reset(every * period)
	}
}
