package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/swap"
)

// looker observes until it has seen enough.
type looker struct {
	observe func(context.Context) (observe.Sight, error)
	limit   time.Duration
	look    time.Duration
	// server names the API server that is used now; nil names none.
	server func() string
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
// the API refuses, and an address that is no API's, are not tried again.
func (l looker) until(ctx context.Context, enough func(*swap.Observation) bool) (observe.Sight, error) {
	end, failing := time.Now().Add(l.limit), ""
	for {
		sight, err := l.observe(ctx)
		if said := denied(err, l.server); said != nil {
			return sight, said
		}
		if err == nil && enough(&sight.Observation) || !time.Now().Before(end) {
			return sight, err
		}
		if err != nil && ctx.Err() == nil {
			failing = sayOnce(l.errs, failing, fmt.Errorf("%w; tried again for up to %s", answered(err, l.server), l.limit))
		}
		if !sleep.For(ctx, l.look) {
			return sight, ctx.Err()
		}
	}
}

// server names the API server of a cluster, where it can.
func server(c Cluster) func() string {
	if s, ok := c.(interface{ Server() string }); ok {
		return s.Server
	}
	return nil
}

// denied is an error that to ask again does not mend, with the address and what it
// answered; nil for any other, and for none.
func denied(err error, server func() string) error {
	if said, denied := kube.Denied(err, name(server)); denied {
		return fmt.Errorf("%s: %w", said, err)
	}
	return nil
}

// answered is any error with the address and what it answered.
func answered(err error, server func() string) error {
	if said := denied(err, server); said != nil {
		return said
	}
	if said := kube.Answered(err, name(server)); said != "" {
		return fmt.Errorf("%s: %w", said, err)
	}
	return err
}

func name(server func() string) string {
	if server == nil {
		return ""
	}
	return server()
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
