package lean

import (
	"context"
	"log/slog"
	"time"

	"github.com/exadev/regrade/internal/obs"
)

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
