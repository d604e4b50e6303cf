package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// The engine answers a stop when the container has stopped, which may take minutes.
// No pass waits for that (platform.Units), so a start or stop is a job of this
// process, and Observe shows it as a queued one. A job whose process dies is not
// lost: the engine goes on with what it was asked, and the next daemon sees the
// container as it then is.
type job struct {
	kind   platform.Job
	cancel context.CancelFunc
	done   chan struct{}
	// err is how it ended; told says that somebody was given it.
	err   error
	ended time.Time
	told  bool
}

// How long an effect waits for its job, so that what goes wrong at once is the
// effect's own error.
const (
	startWait = time.Second
	stopWait  = 300 * time.Millisecond
	// tellWithin is how long the error of a job that nobody waited for is kept: the
	// next effect on the role gives it back in place of trying again, once, so that a
	// report names it.
	tellWithin = time.Minute
)

// queue runs a job for a role. A job of another kind that still runs is ended first;
// one of the same kind is the same order.
func (h *Host) queue(ctx context.Context, role fleet.Role, kind platform.Job, wait time.Duration, run func(context.Context) error) error {
	h.mu.Lock()
	if j := h.jobs[role]; j != nil {
		select {
		case <-j.done:
			if j.err != nil && !j.told && time.Since(j.ended) < tellWithin {
				j.told = true
				h.mu.Unlock()
				return fmt.Errorf("%s of the %s, asked for before: %w", j.kind, role, j.err)
			}
		default:
			h.mu.Unlock()
			if j.kind == kind {
				return h.await(ctx, j, wait)
			}
			j.cancel()
			select {
			case <-j.done:
			case <-ctx.Done():
				return fmt.Errorf("%s the %s: the %s before has not ended: %w", kind, role, j.kind, ctx.Err())
			}
			h.mu.Lock()
			j.told = true // it was called off
		}
	}
	// What is asked of an engine outlives the pass that asks.
	jctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j := &job{kind: kind, cancel: cancel, done: make(chan struct{})}
	h.jobs[role] = j
	h.mu.Unlock()
	go func() {
		defer cancel()
		err := run(jctx)
		h.mu.Lock()
		j.err, j.ended = err, time.Now()
		h.mu.Unlock()
		close(j.done)
	}()
	return h.await(ctx, j, wait)
}

// await waits for a short while; a job that goes on is no error.
func (h *Host) await(ctx context.Context, j *job, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-j.done:
		h.mu.Lock()
		defer h.mu.Unlock()
		j.told = true
		return j.err
	case <-t.C:
	case <-ctx.Done():
	}
	return nil
}

// running are the jobs that have not ended.
func (h *Host) running() map[fleet.Role]platform.Job {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[fleet.Role]platform.Job{}
	for role, j := range h.jobs {
		select {
		case <-j.done:
		default:
			out[role] = j.kind
		}
	}
	return out
}

// overdue says that the time of an effect is up, by the clock: the process may have
// stood still on its way to it, and what it was decided on is too old then.
func overdue(ctx context.Context, now time.Time) error {
	if at, ok := ctx.Deadline(); ok && !now.Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
