package hostd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/platform"
)

// loop runs the daemon's own loop in a bubble for a while.
func loop(t *testing.T, node string, during time.Duration, act func(r *rig)) *rig {
	t.Helper()
	var r *rig
	synctest.Test(t, func(t *testing.T) {
		r = newRig(t, node)
		r.wall, r.wake = true, make(chan struct{}, 1)
		p := hostd.DefaultPolicy()
		p.JoinURLs = joins()
		d := hostd.New(hostd.Settings{Node: node, Policy: p, Host: r.host, API: r, Etcd: etcd{r}, Ways: r})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		synctest.Wait()
		if act != nil {
			act(r)
		}
		time.Sleep(during)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestAnIdleHostWritesOneReportAndABeatAPeriod(t *testing.T) { // safety rule 29
	r := loop(t, "b", time.Minute, nil)
	if len(r.reports) > 2 {
		t.Errorf("%d reports in an idle minute", len(r.reports))
	}
	if n := len(r.beats); n < 4 || n > 7 {
		t.Errorf("%d heartbeats in a minute at a period of 15 s", n)
	}
	if r.read > 8 {
		t.Errorf("%d reads of the API in an idle minute", r.read)
	}
}

func TestDuringASwapAHostBeatsEveryTwoSeconds(t *testing.T) {
	r := loop(t, "b", time.Minute, func(r *rig) {
		r.self.Annotations[keys().Swap()] = string(id)
		r.wake <- struct{}{}
	})
	if n := len(r.beats); n < 25 || n > 35 {
		t.Errorf("%d heartbeats in a minute of a swap", n)
	}
	if len(r.reports) > 4 {
		t.Errorf("%d reports of an unchanged host", len(r.reports))
	}
}

func TestAWatchWakesTheDaemon(t *testing.T) {
	r := loop(t, "d", time.Second, func(r *rig) {
		r.order(fleet.StepStepDown) // an agent refuses it at once
		r.wake <- struct{}{}
	})
	if j := r.journal(); j.Phase != fleet.PhaseRefused {
		t.Errorf("a second after the watch fired: %+v", j)
	}
}

func TestAPassThatFailsIsTriedAgain(t *testing.T) {
	r := loop(t, "d", 10*time.Second, func(r *rig) {
		failures := 2
		r.host.Fail = func(call string) error {
			if failures > 0 && strings.HasPrefix(call, "peer-port") {
				failures--
				return errors.New("address in use")
			}
			return nil
		}
		if err := r.host.HoldPeerPort(t.Context(), false); err == nil {
			t.Error("the fault is not in place")
		}
		r.host.Change(func(f *platform.Facts) { f.PeerPort = false })
		r.wake <- struct{}{}
	})
	if !r.host.Facts().PeerPort {
		t.Error("the peer port is not held")
	}
}

// lockOf is a host lock that another process may have.
type lockOf struct{ taken, held bool }

func (l *lockOf) TryLock() (bool, error) {
	if l.taken {
		return false, nil
	}
	l.held = true
	return true, nil
}

func (l *lockOf) Unlock() error { l.held = false; return nil }

func TestNothingIsDoneUnderAnothersLock(t *testing.T) { // R-216-13
	r := newRig(t, "d")
	l := &lockOf{taken: true}
	r.lock = l
	r.restart()
	r.order(fleet.StepPromote)
	for range 5 {
		r.pass()
	}
	if len(r.host.Calls) != 0 || r.daemon.Decision().Code != "HostLocked" {
		t.Errorf("calls %v, decision %+v", r.host.Calls, r.daemon.Decision())
	}
	if len(r.reports) == 0 {
		t.Error("a host that waits for its lock says nothing")
	}
	r.now = r.now.Add(time.Hour)
	if _, err := r.daemon.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "host lock") {
		t.Errorf("a lock held for an hour: %v", err)
	}
	l.taken = false
	r.hold()
	r.until("promoted", r.settled(fleet.StepPromote, fleet.PhaseDone))
	if l.held {
		t.Error("the lock was kept")
	}
}

func FuzzParseJournal(f *testing.F) {
	f.Add(hostd.Journal{Swap: id, Step: fleet.StepPromote, Phase: fleet.PhaseRunning, Began: start}.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		j, err := hostd.ParseJournal(raw)
		if err != nil {
			return
		}
		again, err := hostd.ParseJournal(j.Bytes())
		if err != nil || again.Swap != j.Swap || again.Step != j.Step || again.Phase != j.Phase {
			t.Errorf("%+v became %+v, %v", j, again, err)
		}
	})
}
