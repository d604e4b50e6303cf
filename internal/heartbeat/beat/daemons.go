package beat

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/observe"
)

// daemon is a host daemon as this process hears it.
type daemon struct {
	mark  string    // what its heartbeat held
	since time.Time // that it holds this, by the own clock
	down  bool      // it was silent before this process began, and has not moved since
}

// listen marks the servers whose host daemons have fallen silent, of those that are held at
// a level and that no controller watches: a host that dies while it is etcd-only is not
// Ready before and after, and nothing else shows that it is gone. Its heartbeat is looked at
// for a move, by this process's own clock; the time in it is of the host's (safety rule 22).
// One that cannot be read, or is not there, says nothing. With --once nobody looks twice.
func (b *Beat) listen(ctx context.Context, o *heartbeat.Observation, now time.Time) {
	if b.s.Build.Interval == 0 || o.NodesProblem != "" {
		return
	}
	names := heartbeat.Unspoken(*o, now, b.s.Build)
	if len(names) == 0 {
		b.daemons, b.daemonsErr = nil, ""
		return
	}
	beats, err := b.cluster.Heartbeats(ctx)
	if err != nil {
		if err.Error() != b.daemonsErr && ctx.Err() == nil {
			b.log.Warn("whether the host daemons of servers at a level speak is not known", obs.Err, err)
			b.daemonsErr = err.Error()
		}
	} else {
		b.hear(names, marks(beats), b.before(now).Down)
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		one, ok := b.daemons[n.Name]
		n.Silent = ok && slices.Contains(names, n.Name) && (one.down || b.s.Now().Sub(one.since) > b.s.Build.StatusLife)
	}
}

// marks are what the host daemons' heartbeats hold, by node.
func marks(beats []observe.Heartbeat) map[string]string {
	out := map[string]string{}
	for _, h := range beats {
		if !h.Probe {
			out[h.Node] = fmt.Sprint(h.BootID, " ", h.Counter, " ", h.Renewed)
		}
	}
	return out
}

// hear takes in one look at them. Who was down by the document of before is not up because
// this process has just begun.
func (b *Beat) hear(names []string, marks map[string]string, down []string) {
	heard := map[string]daemon{}
	for _, name := range names {
		mark, ok := marks[name]
		if !ok {
			continue
		}
		one, known := b.daemons[name]
		switch {
		case !known:
			one = daemon{mark: mark, since: b.s.Now(), down: slices.Contains(down, name)}
		case one.mark != mark:
			one = daemon{mark: mark, since: b.s.Now()}
		}
		heard[name] = one
	}
	b.daemons, b.daemonsErr = heard, ""
}
