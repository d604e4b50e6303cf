package recovery

import (
	"maps"
	"time"

	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/recover"
)

// watch is since when each node was seen to be silent, or to say that it is not Ready, by
// the own clock. The
// time that stands in the condition was written by another host's clock: it is never
// compared, only seen to be the same.
type watch struct {
	spells map[string]spell
	last   time.Time
}

// spell is one silence, or one time of not being Ready: of a Node, since a transition.
type spell struct {
	ready recover.Ready
	uid   string
	since time.Time // of the condition
	first time.Time // of the own clock, since the last pause
	gone  time.Duration
}

// see takes in one look and notes in each Node for how long it is silent. After a
// pause longer than gap a silence begins anew: nobody knows what came in between (safety
// rule 24). How long a Node is gone goes on, without the pause.
func (w *watch) see(nodes []recover.Node, now time.Time, gap time.Duration) {
	passed, paused := now.Sub(w.last), w.spells == nil || now.Sub(w.last) > gap
	w.last = now
	silent := make(map[string]spell, len(w.spells))
	for i := range nodes {
		n := &nodes[i]
		n.Silent, n.Gone, n.Speaks = 0, 0, 0
		if n.Ready != recover.ReadyUnknown && n.Ready != recover.ReadyFalse {
			continue
		}
		s, ok := w.spells[n.Name]
		switch {
		case !ok || s.ready != n.Ready || s.uid != n.UID || !s.since.Equal(n.Since):
			s = spell{ready: n.Ready, uid: n.UID, since: n.Since, first: now}
		case paused:
			s.first = now
		default:
			s.gone += passed
		}
		silent[n.Name] = s
		if n.Ready == recover.ReadyFalse {
			n.Speaks = now.Sub(s.first)
		} else {
			n.Silent, n.Gone = now.Sub(s.first), s.gone
		}
	}
	w.spells = silent
}

// still is since when the Lease stands as it does. The zero value has not seen it.
type still struct {
	seen  bool
	lease lease.Lease
	since time.Time
}

func (s *still) see(l lease.Lease, now time.Time) time.Duration {
	same := s.lease.Exists == l.Exists && s.lease.Holder == l.Holder && s.lease.RenewTime.Equal(l.RenewTime) &&
		s.lease.AcquireTime.Equal(l.AcquireTime) && s.lease.Duration == l.Duration && maps.Equal(s.lease.Annotations, l.Annotations)
	if !s.seen || !same {
		*s = still{seen: true, lease: l, since: now}
	}
	return now.Sub(s.since)
}

// maxJump is how far two of the API's Dates may be apart from what the own clock says
// passed between them.
const maxJump = 30 * time.Second

// pace says whether the API's Date has jumped: it was set, or another API server
// answers whose clock is another. Once it has, it is not trusted again by this process
// with anything that lasts for hours.
type pace struct {
	date, own time.Time
	jumped    bool
}

func (p *pace) see(date, now time.Time) bool {
	if !p.date.IsZero() {
		if off := date.Sub(p.date) - now.Sub(p.own); off > maxJump || off < -maxJump {
			p.jumped = true
		}
	}
	p.date, p.own = date, now
	return p.jumped
}
