package controller

import (
	"context"
	"log/slog"

	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Teller writes events. An event is news for people: nothing depends on it, and
// one that is lost is lost.
type Teller interface {
	Tell(ctx context.Context, e status.Event) error
}

// tell writes the events of a pass whose status was published.
func (c *Controller) tell(ctx context.Context, o *swap.Observation, prev, now *status.Status) {
	if c.settings.Teller == nil {
		return
	}
	for _, e := range status.Events(prev, now) {
		h := o.Host(e.Node)
		if h == nil {
			continue // its Node is gone: there is nothing to hang it on
		}
		e.UID = h.Node.UID
		if err := c.settings.Teller.Tell(ctx, e); err != nil {
			if !c.muted {
				c.log.Warn("event not written; further ones are not spoken of", slog.String(obs.Node, e.Node), slog.Any(obs.Err, err))
			}
			c.muted = true
			return
		}
		c.muted = false
	}
}
