package sim_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/sim"
)

// actor is a process that passes when it is due. A pass can be stopped between
// any two of its calls, so that what it has read is old by the time it acts:
// the pass then lives in a goroutine of its own, and only one of all ever runs.
type actor struct {
	name string
	due  time.Time
	pass func() (wait time.Duration)
	boot int // of the host it runs on

	// The next pass stops before its call number at, or before the first whose
	// words contain what, for so long.
	armed bool
	at    int
	what  string
	stop  time.Duration

	calls  int
	parked chan struct{} // the pass has stopped
	resume chan struct{}
	ended  chan time.Duration
	asleep bool
	dead   bool // what it still calls fails
	// replaced: another controller is started when this one stops.
	replaced bool

	// Until then the API refuses what it asks, where refused is part of the words of
	// the call, or takes so long for each call.
	refusedUntil time.Time
	refused      string
	slowUntil    time.Time
	each         time.Duration
	muteUntil    time.Time     // its own etcd does not answer in time until then, and votes on
	apart        bool          // the pass has a goroutine of its own
	rest         time.Duration // for which it has stopped now
}

// errRefused is what an API server says that refuses.
var errRefused = errors.New("403 forbidden")

// errTooSlow is what a daemon has of an etcd that needs longer than it waits.
var errTooSlow = errors.New("context deadline exceeded")

func (a *actor) slow() bool { return time.Now().Before(a.slowUntil) }

// apiGate is asked before each call of the API.
func (a *actor) apiGate(what string) error {
	if !a.dead && a.apart && a.slow() {
		a.park(a.each)
	}
	if err := a.gate(what); err != nil {
		return err
	}
	if time.Now().Before(a.refusedUntil) && strings.Contains(what, a.refused) {
		return fmt.Errorf("%s: %w", what, errRefused)
	}
	return nil
}

// park stops the pass for so long.
func (a *actor) park(d time.Duration) {
	a.rest = d
	a.parked <- struct{}{}
	<-a.resume
}

// stall arms the next pass.
func (a *actor) stall(at int, what string, d time.Duration) {
	if a.asleep {
		return
	}
	a.armed, a.at, a.what, a.stop = true, at, what, d
}

// gate is asked before each call of the process.
func (a *actor) gate(what string) error {
	if a.dead {
		return sim.ErrKilled
	}
	if what == "ask the own etcd" && time.Now().Before(a.muteUntil) {
		return errTooSlow
	}
	if !a.armed {
		return nil
	}
	a.calls++
	if a.what != "" && !strings.Contains(what, a.what) || a.what == "" && a.calls <= a.at {
		return nil
	}
	a.armed = false
	a.park(a.stop)
	if a.dead {
		return sim.ErrKilled
	}
	return nil
}

// turn lets the process pass, or go on with the pass in which it had stopped,
// and returns when it is due again.
func (a *actor) turn() time.Duration {
	switch {
	case a.asleep:
		a.asleep = false
		a.resume <- struct{}{}
	case a.armed || a.slow():
		a.calls, a.apart = 0, true
		a.parked, a.resume, a.ended = make(chan struct{}), make(chan struct{}), make(chan time.Duration)
		go func() { a.ended <- a.pass() }()
	default:
		return a.pass()
	}
	select {
	case wait := <-a.ended:
		a.apart = false
		if a.what != "" {
			return wait // it had no such call: the next pass may have
		}
		a.armed = false
		return wait
	case <-a.parked:
		a.asleep = true
		return a.rest
	}
}

// kill ends the process where it has stopped.
func (a *actor) kill() {
	a.dead, a.armed = true, false
	if a.asleep {
		a.turn()
	}
}

// release lets every process that has stopped in a pass go on to the end of it.
func (r *run) release() {
	for _, a := range append(r.ghosts, r.boss) {
		r.goOn(a)
	}
	for _, n := range r.names {
		r.goOn(r.daemons[n])
	}
}

func (r *run) goOn(a *actor) {
	a.armed, a.slowUntil, a.refusedUntil = false, time.Time{}, time.Time{}
	if a.asleep {
		a.turn()
		a.due = time.Now()
	}
}
