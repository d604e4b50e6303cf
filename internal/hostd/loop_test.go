package hostd_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
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
		d := hostd.New(hostd.Settings{Node: node, Policy: p, Host: r.host, API: r, Etcd: etcd{r}, Ways: r, Rested: func() { r.rested++ }})
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

// What a pass has touched is given back after it, once a pass, and not in a swap, whose
// passes follow each other closely. The break checks: never say so, and always.
func TestAPassThatIsOverSaysSo(t *testing.T) { // issue 6: the daemon's memory
	if r := loop(t, "b", time.Minute, nil); r.rested < 4 || r.rested > 8 {
		t.Errorf("%d times in an idle minute at a period of 15 s", r.rested)
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
	if r.rested > 1 {
		t.Errorf("at rest %d times in a minute of a swap", r.rested)
	}
	if len(r.reports) > 4 {
		t.Errorf("%d reports of an unchanged host", len(r.reports))
	}
}

// From the moment something happens on the host of a step, or in the lists of a
// staying voter, the report of it is a glance away, not a pass. The break check:
// leave Glance out of the pace.
func TestWhatChangesWhileAStepRunsIsReportedWithinAGlance(t *testing.T) { // safety rule 29
	for name, c := range map[string]struct {
		node   string
		begin  func(r *rig)
		change func(r *rig)
		shows  func(rep status.Report) bool
	}{
		"a newcomer votes": {"d",
			func(r *rig) {
				r.neverWAL = true
				r.order(fleet.StepPromote)
				r.wake <- struct{}{}
				for range 20 {
					time.Sleep(300 * time.Millisecond)
					r.do(r.host.Advance)
				}
			},
			func(r *rig) {
				r.neverWAL = false
				for range 4 {
					r.host.Advance()
				}
			},
			func(rep status.Report) bool { return rep.Etcd != nil && rep.Etcd.Linearizable }},
		"a staying voter sees the newcomer": {"b",
			func(r *rig) { r.self.Annotations[keys().Swap()] = string(id); r.hold() },
			func(r *rig) { r.members = append(r.members, member("d", idD, 4)) },
			func(rep status.Report) bool { return len(rep.Etcd.Members) == 4 }},
		"a staying voter sees the outgoing one go": {"b",
			func(r *rig) { r.self.Annotations[keys().Swap()] = string(id); r.hold() },
			func(r *rig) { r.remove(idA) },
			func(rep status.Report) bool { return len(rep.Etcd.Members) == 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			var changed time.Time
			r := loop(t, c.node, 3*time.Second, func(r *rig) {
				c.begin(r)
				r.wake <- struct{}{}
				time.Sleep(20*time.Second + 300*time.Millisecond) // past the quick paces, in the middle of a wait
				changed = time.Now()
				r.do(func() { c.change(r) })
			})
			for i, rep := range r.reports {
				if !r.wrote[i].Before(changed) && c.shows(rep) {
					if took := r.wrote[i].Sub(changed); took > hostd.Fast {
						t.Errorf("reported after %s", took)
					}
					return
				}
			}
			t.Errorf("never reported: %+v", r.report())
		})
	}
}

// Glances are of the host alone: the API is asked and written no more often.
func TestGlancesAskAndWriteNothing(t *testing.T) { // safety rule 29
	r := loop(t, "b", time.Minute, func(r *rig) {
		r.self.Annotations[keys().Swap()] = string(id)
		r.wake <- struct{}{}
	})
	if r.read > 35 || len(r.beats) > 35 || len(r.reports) > 4 {
		t.Errorf("%d reads, %d heartbeats, %d reports in a quiet minute of a swap", r.read, len(r.beats), len(r.reports))
	}
	if r.locals < 100 {
		t.Errorf("the own etcd was looked at %d times", r.locals)
	}
	idle := loop(t, "b", time.Minute, nil)
	if idle.locals > 8 || idle.read > 8 {
		t.Errorf("an idle host: %d looks at its etcd, %d reads of the API", idle.locals, idle.read)
	}
}

// A host that changes at each glance is soon back at the pace that rule 29 is
// reckoned with. The break check: count nothing in rest.
func TestAHostThatNeverStandsStillIsNotReportedAtEachGlance(t *testing.T) { // safety rule 29
	r := loop(t, "b", time.Second, func(r *rig) {
		r.self.Annotations[keys().Swap()] = string(id)
		r.wake <- struct{}{}
		for i := range 600 {
			r.do(func() { r.leader = []fleet.MemberID{idA, idC}[i%2] })
			time.Sleep(100 * time.Millisecond)
		}
	})
	if n := len(r.reports); n > 60 {
		t.Errorf("%d reports in a minute", n)
	}
}

// An etcd that is slower than a glance has patience for has not changed.
func TestAGlanceAtASlowEtcdIsNoNews(t *testing.T) { // safety rules 24 and 29
	r := loop(t, "b", 30*time.Second, func(r *rig) {
		r.self.Annotations[keys().Swap()] = string(id)
		r.wake <- struct{}{}
		time.Sleep(5 * time.Second)
		r.do(func() { r.slow = hostd.Fast + 200*time.Millisecond })
	})
	if r.read > 19 || len(r.reports) > 3 || len(r.beats) < 10 {
		t.Errorf("%d reads, %d reports, %d heartbeats in 35 s", r.read, len(r.reports), len(r.beats))
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
type lockOf struct {
	taken, held bool
	err         error
}

func (l *lockOf) TryLock() (bool, error) {
	if l.err != nil {
		return false, l.err
	}
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
	// Bad input: a lock that cannot even be made is no other process's.
	l.err = syscall.ENOSPC
	if _, err := r.daemon.Pass(t.Context()); err == nil || !strings.Contains(r.daemon.Decision().Sentence, "no space left") {
		t.Errorf("a lock that cannot be made: %v, %+v", err, r.daemon.Decision())
	}
	l.taken, l.err = false, nil
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
