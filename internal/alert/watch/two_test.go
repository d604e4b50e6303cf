package watch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/heartbeat"
)

// shared is a state with versions, as a ConfigMap has, and all that two processes do
// around it. Every call takes some time.
type shared struct {
	*rig
	mu      sync.Mutex
	version int
	lag     func() time.Duration
}

func (s *shared) wait() { time.Sleep(s.lag()) }

func (s *shared) Read(ctx context.Context) ([]byte, time.Time, error) {
	s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rig.Read(ctx)
}

func (s *shared) Load(context.Context) ([]byte, string, error) {
	s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept), strconv.Itoa(s.version), s.loadErr
}

func (s *shared) Save(_ context.Context, raw []byte, over string) (string, error) {
	s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if over != strconv.Itoa(s.version) {
		return "", fmt.Errorf("%w: version %d, not %s", alert.ErrTaken, s.version, over)
	}
	if !bytes.Equal(s.kept, raw) { // as an API server does with a patch that changes nothing
		s.version++
		s.saves++
	}
	s.kept = slices.Clone(raw)
	return strconv.Itoa(s.version), nil
}

type slowly struct {
	*shared
	name string
}

func (v slowly) Name() string { return v.name }

func (v slowly) Send(_ context.Context, m alert.Message) error {
	v.mu.Lock()
	err := v.down[v.name]
	v.mu.Unlock()
	v.wait()
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.had[v.name] = append(v.had[v.name], m)
	v.mu.Unlock()
	v.wait()
	return nil
}

func (s *shared) process(id string, log *slog.Logger) *watch.Watch {
	set := watch.Settings{Source: s, Store: s, After: alert.DefaultAfter, Interval: time.Minute, ID: id, Log: log}
	for _, n := range s.names {
		set.Receivers = append(set.Receivers, slowly{s, n})
	}
	return watch.New(set)
}

// Two processes on one state, at any distance from each other, with calls that take any
// time and receivers that go and come back: each message is told once. One of them may
// end at any time; the other goes on.
func TestTwoProcessesTellNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := &shared{rig: newRig("webhook", "ntfy"), lag: func() time.Duration { return 0 }}
			s.document(t, nil)
			var lags []time.Duration
			for range 64 {
				lags = append(lags, time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 400, 3000, 4900}).Draw(t, "lag"))*time.Millisecond)
			}
			var mu sync.Mutex
			n := 0
			s.lag = func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				n++
				return lags[n%len(lags)]
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			ends := map[int]context.CancelFunc{}
			for i := range 2 {
				of, end := context.WithCancel(ctx)
				ends[i] = end
				running.Go(func() { s.process(fmt.Sprint("process ", i), nil).Run(of, nil) })
				time.Sleep(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "apart")) * time.Millisecond)
			}
			troubles := map[string]time.Time{}
			ended := rapid.IntRange(20, 200).Draw(t, "one ends")
			for minute := range 120 {
				if minute == ended {
					ends[rapid.IntRange(0, 1).Draw(t, "which")]()
				}
				trouble := rapid.SampledFrom([]string{"", "", "", "n1", "n2", "n3"}).Draw(t, "trouble")
				if _, is := troubles[trouble]; is {
					delete(troubles, trouble)
				} else if trouble != "" {
					troubles[trouble] = time.Now().Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "since")) * time.Minute)
				}
				s.mu.Lock()
				if rapid.IntRange(0, 15).Draw(t, "receiver") == 0 {
					if s.down["webhook"] == nil {
						s.down["webhook"] = errors.New("down")
					} else {
						delete(s.down, "webhook")
					}
				}
				s.document(t, func(d *heartbeat.Document) {
					for name, since := range troubles {
						lost(name, since)(d)
					}
				})
				s.mu.Unlock()
				time.Sleep(time.Minute)
			}
			s.mu.Lock()
			clear(s.down)
			s.mu.Unlock()
			for range 10 {
				s.mu.Lock()
				s.document(t, nil)
				s.mu.Unlock()
				time.Sleep(time.Minute)
			}
			cancel()
			running.Wait()
			time.Sleep(time.Minute) // for calls that were given up as the processes ended
			for _, end := range ends {
				end()
			}
			for _, name := range s.names {
				told, again := s.told(name)
				if again != 0 {
					t.Errorf("%s: %d came twice: %q", name, again, told)
				}
				open := map[string]bool{}
				for _, m := range told {
					event, what, _ := strings.Cut(m, " ")
					if began := event == string(alert.Began); began == open[what] {
						t.Errorf("%s: %q comes out of turn in %q", name, m, told)
					}
					open[what] = event == string(alert.Began)
				}
				for what, is := range open {
					if is {
						t.Errorf("%s: no recovery of %s in %q", name, what, told)
					}
				}
			}
		})
	})
}

// Who holds back says so, and says for whom; when that one is gone it goes on. A label
// that somebody puts on the ConfigMap is no process.
func TestTheSecondProcessHoldsBackAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shared{rig: newRig("webhook"), lag: func() time.Duration { return 0 }}
		a, b := s.process("pod-a", nil), s.process("pod-b", nil)
		s.document(t, nil)
		a.Look(t.Context())
		b.Look(t.Context())
		s.document(t, lost("n2", time.Now().Add(-time.Hour)))
		if turn := a.Look(t.Context()); turn.StoreErr != nil || len(turn.Deliveries) != 1 {
			t.Errorf("the first: %v, %+v", turn.StoreErr, turn.Deliveries)
		}
		turn := b.Look(t.Context())
		if !errors.Is(turn.StoreErr, alert.ErrTaken) || !strings.Contains(turn.StoreErr.Error(), "pod-a") || len(turn.Deliveries) != 0 {
			t.Errorf("the second: %v, %+v", turn.StoreErr, turn.Deliveries)
		}
		time.Sleep(5 * time.Minute)
		s.version++ // a label
		s.document(t, nil)
		if turn := b.Look(t.Context()); turn.StoreErr != nil || len(turn.Deliveries) != 1 {
			t.Errorf("the first is gone: %v, %+v", turn.StoreErr, turn.Deliveries)
		}
		if told, again := s.told("webhook"); !slices.Equal(told, []string{"alert server_not_ready n2", "recovery server_not_ready n2"}) || again != 0 {
			t.Errorf("%q, %d again", told, again)
		}
	})
}

// A receiver that was down for both is back, and both look at the same moment.
func TestOfTwoThatTryAgainOneTells(t *testing.T) {
	for back := range 9 { // after how many minutes
		synctest.Test(t, func(t *testing.T) {
			s := &shared{rig: newRig("webhook"), lag: func() time.Duration { return time.Second }}
			s.down["webhook"] = errors.New("down")
			both := []*watch.Watch{s.process("pod-a", nil), s.process("pod-b", nil)}
			for minute := range 20 {
				s.document(t, lost("n2", time.Now().Add(-time.Hour)))
				if minute == back {
					delete(s.down, "webhook")
				}
				var looking sync.WaitGroup
				for _, w := range both {
					looking.Go(func() { w.Look(t.Context()) })
				}
				looking.Wait()
				time.Sleep(time.Minute)
			}
			if told, again := s.told("webhook"); len(told) != 1 || again != 0 {
				t.Errorf("back after %d minutes: %q, %d again", back, told, again)
			}
		})
	}
}

// Somebody writes the state while a message is on its way: that it was taken is noted in
// what was written.
func TestAMessageThatWasTakenIsNotedInWhateverIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shared{rig: newRig("webhook"), lag: func() time.Duration { return 0 }}
		w := s.process("pod-a", nil)
		s.document(t, nil)
		w.Look(t.Context())
		s.document(t, lost("n2", time.Now().Add(-time.Hour)))
		calls := 0
		s.lag = func() time.Duration {
			if calls++; calls == 4 { // the message, after the state, the document and the write
				s.kept = bytes.Replace(s.kept, []byte("pod-a"), []byte("pod-b"), 1)
				s.version++
			}
			return 0
		}
		if turn := w.Look(t.Context()); len(turn.Deliveries) != 1 || turn.Deliveries[0].Err != nil || !bytes.Contains(s.kept, []byte("active")) || bytes.Contains(s.kept, []byte("outbox")) {
			t.Errorf("%+v\n%s", turn.Deliveries, s.kept)
		}
	})
}

// A state that one process has the lock of is not told from, for however long.
func TestALockHoldsBackForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.loadErr = fmt.Errorf("%w: the lock", alert.ErrTaken)
		w := r.process(nil)
		for range 60 {
			r.document(t, lost("n2", time.Now().Add(-time.Hour)))
			if turn := w.Look(t.Context()); len(turn.Deliveries) != 0 || !errors.Is(turn.StoreErr, alert.ErrTaken) {
				t.Fatalf("%+v", turn)
			}
			time.Sleep(time.Minute)
		}
		r.loadErr = nil
		if turn := w.Look(t.Context()); len(turn.Deliveries) != 1 {
			t.Errorf("the lock is free: %+v", turn)
		}
	})
}
