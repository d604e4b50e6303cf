// Package bounded makes calls that may never come back, such as those of a disk that
// hangs: no context ends a system call.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Grace is how much longer than its limit a call is waited for: one that heeds its context
// says itself what was in its way.
const Grace = time.Second

// ErrBusy says that the call before has not come back. No other is made beside it.
var ErrBusy = errors.New("the call before has not come back")

// Calls are those of one place, one at a time. The zero value has made none. Not safe for
// concurrent use.
type Calls struct{ busy chan struct{} }

// Do makes a call and waits for it no longer than limit, and no longer than ctx lasts,
// whether it heeds its own context or not.
func Do[T any](ctx context.Context, c *Calls, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	var none T
	if c.busy != nil {
		select {
		case <-c.busy:
		default:
			return none, ErrBusy
		}
	}
	type result struct {
		value T
		err   error
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	done, busy := make(chan result, 1), make(chan struct{})
	c.busy = busy
	go func() {
		defer cancel()
		v, err := f(inner)
		done <- result{v, err}
		close(busy)
	}()
	<-inner.Done()
	select {
	case r := <-done:
		<-busy
		return r.value, r.err
	default:
	}
	late := time.NewTimer(Grace)
	defer late.Stop()
	select {
	case r := <-done:
		<-busy
		return r.value, r.err
	case <-late.C:
		return none, fmt.Errorf("it did not come back within %s", limit)
	}
}
