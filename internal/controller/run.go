package controller

import (
	"context"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// busyEvery is the longest time between two passes while a swap is under way.
const busyEvery = 2 * time.Second

// How long Run waits after a wake-up for others to come with it, during a swap
// and else: the status reports of a large fleet must not turn into a pass each.
const (
	settleBusy = 50 * time.Millisecond
	settleIdle = time.Second
)

// Waker says that something a pass reads may have changed. What changed is not
// asked: the pass reads everything anew (safety rule 23).
type Waker interface {
	// Wake sends on the channel until ctx ends, at most one value ahead. It comes
	// back by itself after a lost connection.
	Wake(ctx context.Context) <-chan struct{}
}

// Run passes until ctx ends. after is called with every turn, and may be nil.
func (c *Controller) Run(ctx context.Context, w Waker, after func(Turn)) {
	wake := w.Wake(ctx)
	var last swap.Action
	for ctx.Err() == nil {
		t := c.Pass(ctx)
		if after != nil {
			after(t)
		}
		again := same(last, t.Decision.Action)
		last = t.Decision.Action
		if t.Acted && !again {
			continue // at once: what the action did is what the next pass waits for
		}
		wait, settle := c.settings.Policy.Period, settleIdle
		if t.Busy() || t.Err != nil {
			wait, settle = min(wait, busyEvery), settleBusy
		}
		if !sleepOrWake(ctx, wait, settle, wake) {
			return
		}
	}
}

// same says whether an action is the one taken just before. An action that
// succeeds and is asked for again, such as a round of evictions, is not hurried.
func same(a, b swap.Action) bool {
	return a.Kind == b.Kind && a.Node == b.Node && a.Step == b.Step && a.Swap == b.Swap
}

// sleepOrWake waits for the time or a wake-up, whichever comes first; false
// when ctx ended.
func sleepOrWake(ctx context.Context, wait, settle time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-wake:
	}
	rest := time.NewTimer(settle)
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	}
	select {
	case <-wake:
	default:
	}
	return true
}
