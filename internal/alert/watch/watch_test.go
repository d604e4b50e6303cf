package watch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
)

// errCrash ends a process where it stands.
var errCrash = errors.New("the process ended here")

// rig is a document, a store and two receivers.
type rig struct {
	doc    []byte
	docErr error

	kept    []byte
	saves   int
	loadErr error
	saveErr error
	// crash is called before each effect with its name; true ends the process there.
	crash func(effect string) bool
	dead  bool

	// unkept are messages that were taken since the state was kept last; late is true
	// once another one was sent before that.
	unkept int
	late   bool

	names  []string
	down   map[string]error
	refuse func(name string, m alert.Message) bool
	slow   time.Duration              // how long a receiver takes
	had    map[string][]alert.Message // what each receiver took, again and again as it came
}

func newRig(names ...string) *rig {
	return &rig{names: names, down: map[string]error{}, had: map[string][]alert.Message{}, crash: func(string) bool { return false }}
}

func (r *rig) dies(effect string) bool {
	r.dead = r.dead || r.crash(effect)
	return r.dead
}

func (r *rig) Read(context.Context) ([]byte, time.Time, error) { return r.doc, time.Now(), r.docErr }

func (r *rig) Load(context.Context) ([]byte, string, error) {
	return slices.Clone(r.kept), "", r.loadErr
}

func (r *rig) Save(_ context.Context, raw []byte, _ string) (string, error) {
	if r.dies("before save") || r.saveErr != nil {
		return "", errors.Join(errCrash, r.saveErr)
	}
	r.kept, r.saves, r.unkept = slices.Clone(raw), r.saves+1, 0
	r.dies("after save")
	return "", nil
}

type receiver struct {
	*rig
	name string
}

func (v receiver) Name() string { return v.name }

func (v receiver) Send(ctx context.Context, m alert.Message) error {
	if v.dies("before send") {
		return errCrash
	}
	if err := v.down[v.name]; err != nil {
		return err
	}
	if v.refuse != nil && v.refuse(v.name, m) {
		return fmt.Errorf("400: %w", alert.ErrRefused)
	}
	v.had[v.name] = append(v.had[v.name], m)
	v.late = v.late || v.unkept > 0
	v.unkept++
	select {
	case <-time.After(v.slow):
	case <-ctx.Done():
		return ctx.Err() // it was taken all the same
	}
	if v.dies("after send") {
		return errCrash // it took it, and nobody lived to know
	}
	return nil
}

func (r *rig) process(log *slog.Logger) *watch.Watch {
	s := watch.Settings{Source: r, Store: r, After: alert.DefaultAfter, Interval: time.Minute, Log: log}
	for _, n := range r.names {
		s.Receivers = append(s.Receivers, receiver{r, n})
	}
	return watch.New(s)
}

func (r *rig) document(t interface{ Fatal(...any) }, change func(*heartbeat.Document)) {
	d := heartbeat.Document{
		Protocol: 1, At: time.Now().UTC().Truncate(time.Second), Healthy: true, Reasons: []string{}, NotReady: []heartbeat.NotReady{}, NodePressure: []heartbeat.Pressure{},
		Voters: &heartbeat.Voters{Count: 3, Up: 3, Target: 3, Tolerance: 1, By: heartbeat.ByMembers},
	}
	if change != nil {
		change(&d)
	}
	raw, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	r.doc, r.docErr = raw, nil
}

// told is what a receiver had, each id once, and how often one came again.
func (r *rig) told(name string) (told []string, again int) {
	seen := map[string]alert.Message{}
	for _, m := range r.had[name] {
		if _, is := seen[m.ID]; is {
			again++
			continue
		}
		seen[m.ID] = m
		told = append(told, strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Event, m.Kind, m.Subject)))
	}
	return told, again
}

func lost(name string, since time.Time) func(*heartbeat.Document) {
	return func(d *heartbeat.Document) {
		d.NotReady = append(d.NotReady, heartbeat.NotReady{Name: name, Role: fleet.RoleServer, Since: since.UTC().Truncate(time.Second)})
	}
}

// Issue 6: a receiver that is down for an hour misses nothing and is told nothing twice,
// and keeps nothing from the other.
func TestAReceiverThatIsDownForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook", "ntfy")
		r.down["webhook"] = errors.New("connection refused")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var log bytes.Buffer
		go func() { r.process(slog.New(slog.NewTextHandler(&log, nil))).Run(ctx, nil); close(done) }()
		began := time.Now()
		for i := range 120 {
			switch {
			case i < 30:
				r.document(t, lost("n2", began))
			case i < 50:
				r.document(t, lost("n3", began.Add(30*time.Minute)))
			default:
				r.document(t, nil)
			}
			if i == 61 {
				delete(r.down, "webhook")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if i == 60 {
				if told, _ := r.told("webhook"); len(told) != 0 {
					t.Errorf("a receiver that is down was told %v", told)
				}
			}
		}
		cancel()
		<-done
		want := []string{"alert server_not_ready n2", "recovery server_not_ready n2", "alert server_not_ready n3", "recovery server_not_ready n3"}
		for _, name := range r.names {
			told, again := r.told(name)
			if diff := cmp.Diff(want, told); diff != "" || again != 0 {
				t.Errorf("%s: %d twice, %s", name, again, diff)
			}
		}
		if n := strings.Count(log.String(), "not taken"); n != 1 {
			t.Errorf("the log says %d times that it is down", n)
		}
	})
}

// A mistake in the address answers 400 as well: nothing is lost by it, however many
// messages it refuses, and all are told in order once it is put right.
func TestAMistakeInAnAddressLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.down["webhook"] = fmt.Errorf("400: %w", alert.ErrRefused)
		var log bytes.Buffer
		w := r.process(slog.New(slog.NewTextHandler(&log, nil)))
		began := time.Now().Add(-time.Hour)
		for i := range 40 {
			r.document(t, func(d *heartbeat.Document) {
				if i < 10 {
					lost("n2", began)(d)
				}
				if i > 4 {
					lost("n3", began)(d)
				}
			})
			turn := w.Look(t.Context())
			if n := len(turn.Deliveries); n == 0 || n > 4 {
				t.Errorf("%d tries in one look", n)
			}
			time.Sleep(time.Minute)
		}
		if n := strings.Count(log.String(), "not taken"); n != 1 {
			t.Errorf("said %d times", n)
		}
		delete(r.down, "webhook")
		w = r.process(nil)
		turn := w.Look(t.Context())
		want := []string{"alert server_not_ready n2", "alert server_not_ready n3", "recovery server_not_ready n2"}
		if told, again := r.told("webhook"); !slices.Equal(told, want) || again != 0 || turn.State.Lost != 0 {
			t.Errorf("%q, %d again, %d lost", told, again, turn.State.Lost)
		}
	})
}

// A message that a receiver does not take, while it takes others, holds nothing up: it
// is given up and counted, for the receiver that refused it.
func TestAMessageThatIsRefusedHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook", "ntfy")
		r.refuse = func(name string, m alert.Message) bool { return name == "webhook" && m.Subject == "n2" }
		w := r.process(nil)
		began := time.Now().Add(-time.Hour)
		r.document(t, lost("n2", began))
		if turn := w.Look(t.Context()); len(turn.State.Outbox) != 1 || turn.State.Lost != 0 {
			t.Errorf("alone it may be the address: %+v", turn.State)
		}
		time.Sleep(time.Minute)
		r.document(t, func(d *heartbeat.Document) { lost("n2", began)(d); lost("n3", began)(d) })
		turn := w.Look(t.Context())
		told, _ := r.told("webhook")
		all, _ := r.told("ntfy")
		if len(turn.State.Outbox) != 0 || turn.State.Lost != 1 || !slices.Equal(told, []string{"alert server_not_ready n3"}) || len(all) != 2 {
			t.Errorf("%q, %q, %+v", told, all, turn.State)
		}
	})
}

// A process that is told to end waits for the message that is under way: it was taken,
// and the next process shall know.
func TestAProcessThatEndsInTheMiddleOfAMessageNotesThatItWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.slow = 5 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		r.document(t, lost("n2", time.Now().Add(-time.Hour)))
		done := make(chan struct{})
		go func() { r.process(nil).Run(ctx, nil); close(done) }()
		time.Sleep(time.Second)
		cancel()
		<-done
		r.process(nil).Look(t.Context())
		if told, again := r.told("webhook"); len(told) != 1 || again != 0 {
			t.Errorf("%q, %d again", told, again)
		}
	})
}

// A token that is not accepted, an address that is wrong: a person puts it right, and
// is then told.
func TestAnUnacceptedTokenLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("ntfy")
		r.down["ntfy"] = errors.New("ntfy answers 401 Unauthorized")
		w := r.process(nil)
		r.document(t, lost("n2", time.Now().Add(-time.Hour)))
		w.Look(t.Context())
		delete(r.down, "ntfy")
		time.Sleep(time.Minute)
		w = r.process(nil) // with the right token
		w.Look(t.Context())
		if told, again := r.told("ntfy"); !slices.Equal(told, []string{"alert server_not_ready n2"}) || again != 0 {
			t.Errorf("%v, %d", told, again)
		}
	})
}

func TestAStateThatCannotBeReadHoldsBackForOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.document(t, lost("n2", time.Now().Add(-time.Hour)))
		r.process(nil).Look(t.Context()) // told, and kept
		r.loadErr, r.docErr = errors.New("the API does not answer"), errors.New("the API does not answer")
		w := r.process(nil)
		for range 10 {
			time.Sleep(time.Minute)
			if turn := w.Look(t.Context()); len(turn.Deliveries) != 0 || turn.StoreErr == nil {
				t.Fatalf("%+v", turn)
			}
		}
		// It is back: nothing is told twice.
		r.loadErr = nil
		r.document(t, lost("n2", time.Now().Add(-time.Hour)))
		time.Sleep(time.Minute)
		w.Look(t.Context())
		if told, _ := r.told("webhook"); len(told) != 1 {
			t.Errorf("%v", told)
		}
		// With API and state away for longer than the window somebody hears of it.
		r.loadErr, r.docErr = errors.New("x"), errors.New("x")
		w = r.process(nil)
		for range 20 {
			time.Sleep(time.Minute)
			w.Look(t.Context())
		}
		if told, _ := r.told("webhook"); !slices.Contains(told, "alert heartbeat_stale") {
			t.Errorf("%v", told)
		}
	})
}

func TestADamagedStateIsBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.kept = []byte(`{"protocol":`)
		r.document(t, lost("n2", time.Now().Add(-time.Hour)))
		r.process(nil).Look(t.Context())
		if told, _ := r.told("webhook"); len(told) != 1 {
			t.Errorf("%v", told)
		}
		if _, err := alert.ParseState(r.kept); err != nil {
			t.Error(err)
		}
	})
}

// A receiver drops a message whose id it has had, and no document gives it a time.
func TestAHeartbeatThatWasNeverSeenIsToldAgainAfterTheStateIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.docErr = errors.New("connection refused")
		for range 2 {
			r.kept = nil
			w := r.process(nil)
			for range 20 {
				w.Look(t.Context())
				time.Sleep(time.Minute)
			}
		}
		if told, again := r.told("webhook"); len(told) != 2 || again != 0 {
			t.Errorf("%v, %d with an id that was there before", told, again)
		}
	})
}

func TestADiskThatTakesNoStateTellsAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.saveErr = errors.New("no space left on device")
		w := r.process(nil)
		r.document(t, lost("n2", time.Now().Add(-time.Hour)))
		for range 5 {
			if turn := w.Look(t.Context()); turn.StoreErr == nil && turn.Deliveries != nil {
				t.Error("nobody is told that the state is not kept")
			}
			time.Sleep(time.Minute)
		}
		if told, again := r.told("webhook"); len(told) != 1 || again != 0 {
			t.Errorf("%v, %d again", told, again)
		}
	})
}

// hung is a disk that hangs from a time on, for some time, whatever anybody's context says.
type hung struct {
	*rig
	what  string
	calls int
}

func (h *hung) hangs(what string) {
	if h.what == what {
		h.calls++
		time.Sleep(3 * time.Hour)
	}
}

func (h *hung) Read(ctx context.Context) ([]byte, time.Time, error) {
	h.hangs("document")
	return h.rig.Read(ctx)
}
func (h *hung) Load(ctx context.Context) ([]byte, string, error) {
	h.hangs("state")
	return h.rig.Load(ctx)
}
func (h *hung) Save(ctx context.Context, raw []byte, over string) (string, error) {
	h.hangs("saving")
	return h.rig.Save(ctx, raw, over)
}

// A file on a disk that hangs ends no call: people are told all the same, and the process
// ends when it is asked to. The break check: wait for the call.
func TestADiskThatHangsTellsAllTheSame(t *testing.T) { // safety rule 24
	for what, want := range map[string]string{"document": "alert heartbeat_stale", "state": "alert server_not_ready n2", "saving": "alert server_not_ready n2"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig("webhook")
				h := &hung{rig: r, what: what}
				w := watch.New(watch.Settings{Source: h, Store: h, Receivers: []watch.Receiver{receiver{r, "webhook"}}, After: alert.DefaultAfter, Interval: time.Minute})
				began := time.Now()
				for range 40 {
					r.document(t, lost("n2", began.Add(-time.Hour)))
					w.Look(t.Context())
					time.Sleep(time.Minute)
				}
				if told, again := r.told("webhook"); len(told) != 1 || told[0] != want || again != 0 {
					t.Errorf("%v, %d again, want %s", told, again, want)
				}
				if h.calls != 1 {
					t.Errorf("%d calls hang at once", h.calls)
				}
				time.Sleep(4 * time.Hour) // it has come back, and hangs anew
				ctx, end := context.WithCancel(t.Context())
				time.AfterFunc(2*time.Second, end)
				last := time.Now()
				w.Look(ctx)
				if d := time.Since(last); d > 30*time.Second {
					t.Errorf("it ends after %s", d)
				}
				time.Sleep(4 * time.Hour)
			})
		})
	}
}

// A quiet fleet writes nothing: the state is in a ConfigMap, or on somebody's card.
func TestAQuietFleetWritesNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		w := r.process(nil)
		for range 600 {
			r.document(t, nil)
			w.Look(t.Context())
			time.Sleep(time.Minute)
		}
		if r.saves > 1 {
			t.Errorf("%d writes in ten quiet hours", r.saves)
		}
	})
}

// Rule 22: a process that stood still, with the machine or by a signal, has not watched.
func TestAProcessThatStoodStillRaisesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		w := r.process(nil)
		r.document(t, nil)
		w.Look(t.Context())
		time.Sleep(5 * time.Hour)
		w.Look(t.Context()) // the document of before: its writer stood still as well
		time.Sleep(time.Minute)
		r.document(t, nil)
		w.Look(t.Context())
		if told, _ := r.told("webhook"); len(told) != 0 {
			t.Errorf("%v", told)
		}
	})
}

// A dead heartbeat is found however often the watcher itself is started anew.
func TestADeadHeartbeatIsFoundOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("webhook")
		r.document(t, nil)
		for range 12 {
			w := r.process(nil)
			for range 7 {
				w.Look(t.Context())
				time.Sleep(time.Minute)
			}
		}
		if told, again := r.told("webhook"); !slices.Equal(told, []string{"alert heartbeat_stale"}) || again != 0 {
			t.Errorf("%v, %d again", told, again)
		}
	})
}

// One alert for a condition and one recovery, nothing lost, and nothing told twice but
// under the same id: for any troubles, receivers that come and go, and processes that
// end before or after any effect.
func TestOneAlertAndOneRecoveryWhateverRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) { history(t) })
	})
}

func history(t *rapid.T) {
	r := newRig("webhook", "ntfy")
	crashes := 0
	r.crash = func(string) bool {
		if rapid.IntRange(0, 9).Draw(t, "crash") == 0 {
			crashes++
			return true
		}
		return false
	}
	troubles := map[string]time.Time{}
	w := r.process(nil)
	look := func() {
		w.Look(context.Background())
		if r.dead {
			r.dead, r.unkept = false, 0
			w = r.process(nil)
		}
		time.Sleep(time.Minute)
	}
	doc := func() {
		r.document(t, func(d *heartbeat.Document) {
			for _, n := range []string{"n1", "n2", "n3"} {
				if since, is := troubles[n]; is {
					lost(n, since)(d)
				}
			}
			if since, is := troubles["even"]; is {
				d.Voters.Count, d.Voters.Up, d.Voters.EvenSince = 4, 4, since.UTC().Truncate(time.Second)
			}
		})
	}
	for range rapid.IntRange(5, 25).Draw(t, "chapters") {
		switch rapid.SampledFrom([]string{"begins", "ends", "unread", "receiver", "still"}).Draw(t, "chapter") {
		case "begins":
			n := rapid.SampledFrom([]string{"n1", "n2", "n3", "even"}).Draw(t, "trouble")
			if _, is := troubles[n]; !is {
				troubles[n] = time.Now()
			}
		case "ends":
			delete(troubles, rapid.SampledFrom([]string{"n1", "n2", "n3", "even"}).Draw(t, "trouble"))
		case "unread":
			for range rapid.IntRange(1, 25).Draw(t, "minutes") {
				r.docErr = errors.New("x")
				look()
			}
		case "still":
			for range rapid.IntRange(1, 25).Draw(t, "minutes") {
				look()
			}
		case "receiver":
			name := rapid.SampledFrom(r.names).Draw(t, "receiver")
			if r.down[name] == nil {
				r.down[name] = errors.New("down")
			} else {
				delete(r.down, name)
			}
		}
		for range rapid.IntRange(0, 25).Draw(t, "minutes") {
			doc()
			look()
		}
	}
	// In the end all is well and everybody is up.
	clear(troubles)
	clear(r.down)
	r.crash = func(string) bool { return false }
	for range 3 {
		doc()
		look()
	}
	for _, name := range r.names {
		told, again := r.told(name)
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
		if again > crashes {
			t.Errorf("%s: %d messages came again in %d crashes", name, again, crashes)
		}
	}
	if r.late {
		t.Error("a message was sent before it was kept that the one before was taken")
	}
	if a, b := first(r.told("webhook")), first(r.told("ntfy")); !slices.Equal(a, b) {
		t.Errorf("one was told %q, the other %q", a, b)
	}
}

func first(told []string, _ int) []string { return told }
