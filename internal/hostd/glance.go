package hostd

import (
	"context"
	"reflect"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

const (
	// Fast is the pace of a glance: local things only, no API request, while a
	// step runs here or this member's own list tells how far a swap is.
	Fast = 500 * time.Millisecond
	// maxEarly is how many passes glances may bring forward within earlyFor. A host
	// that never stands still is back at Swapping then, which is what rule 29 is
	// reckoned with; a step has fewer stages.
	maxEarly = 8
	earlyFor = 30 * time.Second
)

// sight is what a glance compares: what a step or the controller may wait for.
type sight struct {
	Host platform.Facts
	Etcd hostapi.Member
}

// glances says what a glance looks at after these facts: the host itself while
// a step of its own runs and is not overdue, the own etcd then and while the
// member takes part in a swap, its own or others'.
func (d *Daemon) glances(f Facts) (host, etcd bool) {
	j := f.Journal
	step := j.Phase == fleet.PhaseRunning && j.Step != fleet.StepSnapshot && !late(f, f.Policy.OperationTimeout) ||
		f.Levels != nil && f.Levels.Journal.Running() && !f.levelLate()
	return step, f.Host.Server.Process && (step || f.swapping())
}

// still is a sight without what moves all the time or changes nothing.
func (s sight) still() sight {
	s.Host.Shims = 0
	s.Etcd.View.Error, s.Etcd.View.AppliedIndex = "", 0
	if len(s.Etcd.View.Members) == 0 {
		s.Etcd.View.Members = nil
	}
	if !s.Etcd.Answers {
		s.Etcd = hostapi.Member{View: status.EtcdView{}}
	}
	return s
}

// news looks once and says whether something differs from the last pass. What
// is seen is not published: the pass that follows reads everything itself, so
// that a report never says more than was read after it began. An answer that
// does not come in time is no news, the pass has the patience for it.
func (d *Daemon) news(ctx context.Context) bool {
	host, etcd := d.glances(d.facts)
	ctx, cancel := context.WithTimeout(ctx, Fast)
	defer cancel()
	before := sight{Host: d.facts.Host, Etcd: d.facts.Etcd}
	now := before
	if host {
		h, err := d.s.Host.Observe(ctx)
		if err != nil {
			return false
		}
		now.Host = h
	}
	if etcd && now.Host.Server.Process {
		now.Etcd = d.s.Etcd.Local(ctx)
	}
	return ctx.Err() == nil && !reflect.DeepEqual(before.still(), now.still())
}

// rest waits for the next pass: until it is due, a watch fires, or a glance
// shows something new.
func (d *Daemon) rest(ctx context.Context, wake Wake) {
	due := time.NewTimer(wake.After)
	defer due.Stop()
	var glance <-chan time.Time
	if now := d.s.Now(); now.Sub(d.earlySince) >= earlyFor {
		d.early, d.earlySince = 0, now
	}
	if wake.Glance && d.early < maxEarly && wake.After > Fast {
		t := time.NewTicker(Fast)
		defer t.Stop()
		glance = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.s.API.Changed():
			return
		case <-due.C:
			return
		case <-glance:
			if d.news(ctx) {
				d.early++
				return
			}
		}
	}
}
