// Package sleep waits, and ends when it is told to.
package sleep

import (
	"context"
	"time"
)

// For sleeps for d. It says false, at once, when ctx has ended or ends meanwhile.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
