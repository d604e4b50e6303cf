package probe

import (
	"context"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// disk is the reading of a standby's disk: a run once a window, beside the
// samples, for it may take longer than a period and a disk that hangs holds it
// for ever.
type disk struct {
	next    time.Time // zero: as soon as may be
	running chan diskResult
	since   time.Time
	stale   bool // what runs was begun in an earlier life as a standby
}

type diskResult struct {
	fsync fitness.Fsync
	err   error
}

// hangsAfter is when a run that should have ended long ago is said to hang.
const hangsAfter = sensor.DefaultBound + 30*time.Second

// fsync puts the result of a run into the sample, and begins the next one when
// it is due. The due time is that of the last run in the window, so that a
// probe that is restarted does not write again.
func (p *Probe) fsync(s *fitness.Sample) {
	d := &p.disk
	select {
	case r := <-d.running:
		d.running = nil
		if d.stale {
			d.stale = false
			break
		}
		p.note("fsync", r.err)
		if r.err != nil {
			p.absent(s, fitness.ReadingFsync, r.err)
		} else {
			s.Fsync = &r.fsync
		}
		d.next = time.Now().Add(p.fsyncEvery())
		return
	default: // none, or it is not done yet
	}
	if d.running != nil {
		if time.Since(d.since) > hangsAfter {
			p.absent(s, fitness.ReadingFsync, &sensor.Fault{Code: sensor.CodeDiskHangs, Sentence: "a write with fdatasync does not come back"})
		}
		return
	}
	if d.next.IsZero() {
		d.next = time.Now()
		if last, ok := p.lastFsync(); ok {
			// A clock that was set back since then must not put it off for longer.
			if last.After(d.next) {
				last = d.next
			}
			d.next = last.Add(p.fsyncEvery())
		}
	}
	if time.Now().Before(d.next) {
		return
	}
	done := make(chan diskResult, 1)
	d.running, d.since = done, time.Now()
	go func() {
		f, err := p.s.Sensors.Fsync(context.Background())
		done <- diskResult{f, err}
	}()
}

// fsyncEvery is from the end of a run to the beginning of the next: a window less
// what a run may take and the periods on both sides of it, so that there is never
// a window without one.
func (p *Probe) fsyncEvery() time.Duration {
	return max(0, time.Duration(p.s.Size)*p.s.Period-sensor.DefaultBound-2*p.s.Period)
}

func (p *Probe) lastFsync() (time.Time, bool) {
	for i := len(p.window.Samples) - 1; i >= 0; i-- {
		if p.window.Samples[i].Fsync != nil {
			return p.window.Samples[i].At, true
		}
	}
	return time.Time{}, false
}

// forget is for a host that votes, or records nothing: the next life as a standby
// begins with a run of its own. One that is under way ends by itself; no second
// one is begun beside it, for its disk may hang.
func (d *disk) forget() {
	d.next, d.stale = time.Time{}, d.running != nil
}
