// Package watch is the process that looks at fleet-health.json and tells people what
// is wrong. It keeps its state before it sends, and after each message that was
// taken, so that a restart at any point tells nothing twice but a message whose answer
// it did not live to write down; that one has the same id again.
//
// Two of them on one state tell nothing twice either. A state in a file has a lock. One
// that is shared has versions: who finds it written by another holds back for as long as
// that one may be sending, and goes on from what it wrote.
package watch

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/bounded"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/sleep"
)

// Source is where the document is.
type Source interface {
	// Read gives it, and the clock of where it is, zero where that says none.
	Read(ctx context.Context) (raw []byte, date time.Time, err error)
}

// Receiver is one who is told.
type Receiver interface {
	Name() string
	// Send delivers a message. An error that is alert.ErrRefused says that it does not
	// take this one as it is.
	Send(ctx context.Context, m alert.Message) error
}

// Store keeps the state.
type Store interface {
	// Load is what is kept, nil when nothing is, and its version: empty where no other
	// process can write it. An error that is alert.ErrTaken says that one keeps it.
	Load(ctx context.Context) (raw []byte, version string, err error)
	// Save writes it whole, or not at all, over a version; when that is no longer the
	// one that is kept, the error is alert.ErrTaken.
	Save(ctx context.Context, raw []byte, over string) (version string, err error)
}

// Settings of a watch.
type Settings struct {
	Source    Source
	Store     Store
	Receivers []Receiver
	// After is the window of all kinds.
	After    time.Duration
	Interval time.Duration
	// ID is this process's own name, as another one says it; random when empty.
	ID  string
	Log *slog.Logger
	// Now is the process's clock with its monotonic part; time.Now when nil.
	Now func() time.Time
}

// Bounds of one call, of all that is delivered to one receiver in one look, and of how
// many messages it may refuse in one before it is left for the next.
const (
	Timeout     = 10 * time.Second
	turn        = 30 * time.Second
	maxRefusals = 4
)

// Watch keeps what one look takes over from the one before. Not safe for concurrent use.
type Watch struct {
	s     Settings
	log   *slog.Logger
	rules alert.Rules

	state   alert.State
	written alert.State
	// loaded: the state is that of the store, or what took its place. began is when
	// this process first wanted it.
	loaded bool
	began  time.Time
	looked time.Time // zero before the first look
	said   map[string]string

	// A file may be on a disk that hangs: who waits for it for ever tells nobody.
	reads, stores bounded.Calls

	// version is the store's of what is kept, and kept that. rival is when a write of
	// another process was noticed last, zero for never, and who it is.
	version string
	kept    []byte
	rival   time.Time
	rivals  int
	who     string
}

// New makes a watch that has seen nothing yet.
func New(s Settings) *Watch {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.ID == "" {
		s.ID = rand.Text()
	}
	w := &Watch{s: s, log: s.Log, rules: alert.Rules{After: s.After}, said: map[string]string{}, state: alert.State{Born: s.ID}}
	for _, r := range s.Receivers {
		w.rules.Receivers = append(w.rules.Receivers, r.Name())
	}
	return w
}

// Delivery is what came of one message.
type Delivery struct {
	Receiver string
	Message  alert.Message
	Err      error // nil when it was taken
}

// Turn is what one look came to.
type Turn struct {
	Took       time.Duration
	Document   *heartbeat.Document
	Problem    string // why there is no document
	State      alert.State
	Deliveries []Delivery
	// StoreErr says why the state is not kept.
	StoreErr error
}

// Run looks until ctx ends. after is called with every turn, and may be nil.
func (w *Watch) Run(ctx context.Context, after func(Turn)) {
	for {
		t := w.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		if after != nil {
			after(t)
		}
		if !sleep.For(ctx, w.s.Interval) {
			return
		}
	}
}

// Look looks once and delivers what is due. A process that is ending says nothing of
// what it could not read.
func (w *Watch) Look(ctx context.Context) Turn {
	began := w.s.Now()
	var t Turn
	t.StoreErr = w.load(ctx, began)
	t.Document, t.Problem = w.read(ctx)
	if ctx.Err() != nil {
		return t
	}
	g := alert.Sight{Document: t.Document, Problem: t.Problem, Elapsed: w.elapsed()}
	lost := w.state.Lost
	w.state = alert.Step(w.state, g, w.rules)
	if w.state.Lost > lost {
		w.log.Error("messages are dropped, too many wait", "dropped", w.state.Lost-lost)
	}
	if w.loaded && !w.held() {
		w.keep(ctx, &t)
		for _, r := range w.s.Receivers {
			if w.held() {
				break
			}
			t.Deliveries = append(t.Deliveries, w.deliver(ctx, r, &t)...)
		}
	}
	if w.held() {
		t.StoreErr = fmt.Errorf("%w: %s", alert.ErrTaken, w.who)
	}
	if w.news("document", t.Problem) {
		w.log.Warn("document cannot be read", obs.Err, t.Problem)
	}
	if t.StoreErr != nil && w.news("state", t.StoreErr.Error()) {
		w.log.Warn("state is not kept", obs.Err, t.StoreErr)
	}
	t.State = w.state
	t.Took = w.s.Now().Sub(began)
	return t
}

// elapsed is how long ago the last look was, by the monotonic clock, and no longer
// than a look and the wait after it may take: a process that stood still saw nothing.
func (w *Watch) elapsed() time.Duration {
	now := w.s.Now()
	var d time.Duration
	if !w.looked.IsZero() {
		d = min(now.Sub(w.looked), w.s.Interval+2*Timeout+turn*time.Duration(len(w.s.Receivers)))
	}
	w.looked = now
	return max(0, d)
}

func (w *Watch) read(ctx context.Context) (*heartbeat.Document, string) {
	raw, _, err := Read(ctx, &w.reads, w.s.Source)
	if err != nil {
		return nil, err.Error()
	}
	d, err := heartbeat.Parse(raw)
	if err != nil {
		return nil, err.Error()
	}
	return &d, ""
}

// Read reads the document within Timeout, whether the source heeds that or not.
func Read(ctx context.Context, c *bounded.Calls, s Source) (raw []byte, date time.Time, err error) {
	type read struct {
		raw  []byte
		date time.Time
	}
	r, err := bounded.Do(ctx, c, Timeout, func(ctx context.Context) (r read, err error) {
		r.raw, r.date, err = s.Read(ctx)
		return r, err
	})
	return r.raw, r.date, err
}

// Load reads the state in the same way.
func Load(ctx context.Context, c *bounded.Calls, s Store) (raw []byte, version string, err error) {
	type loaded struct {
		raw     []byte
		version string
	}
	l, err := bounded.Do(ctx, c, Timeout, func(ctx context.Context) (l loaded, err error) {
		l.raw, l.version, err = s.Load(ctx)
		return l, err
	})
	return l.raw, l.version, err
}

// load reads the state: once, or at each look where another process may write it too.
// Nothing is told before it is known what was told; but when it cannot be had for a
// whole window, people are told by what this process has seen by itself: told twice is
// better than not at all. So it is with one that is damaged, at once. But not where
// another process keeps it: that one tells.
func (w *Watch) load(ctx context.Context, now time.Time) error {
	if w.loaded && w.version == "" {
		return nil
	}
	if w.began.IsZero() {
		w.began = now
	}
	raw, version, err := Load(ctx, &w.stores, w.s.Store)
	if err != nil {
		if !w.loaded && now.Sub(w.began) >= w.s.After && !errors.Is(err, alert.ErrTaken) {
			w.loaded = true
			w.log.Error("state cannot be read: what was told before may be told again", obs.Err, err)
		}
		return err
	}
	first := !w.loaded
	same := version == w.version || raw == nil || bytes.Equal(raw, w.kept)
	w.loaded, w.version = true, version
	if raw == nil || same && !first {
		return nil // somebody has put a label on the ConfigMap, or taken away what was in it
	}
	s, err := alert.ParseState(raw)
	if err != nil {
		w.log.Error("state is damaged: what was told before may be told again", obs.Err, err)
		return err
	}
	w.kept = raw
	if s.By == w.s.ID {
		w.written = s // a write of which nobody said that it had come
		return nil
	}
	// One that something waits in may be of a process that is sending it this moment.
	if !first || version != "" && len(s.Outbox) > 0 {
		w.rival, w.who = now, s.By
		w.rivals++
	}
	w.state = alert.Only(s, w.rules.Receivers)
	w.written = s
	return nil
}

// held says whether another process has written the state and may still be at it: for
// as long as what it does between two of them may take.
func (w *Watch) held() bool {
	return !w.rival.IsZero() && w.s.Now().Sub(w.rival) < w.s.Interval+3*Timeout+(turn+Timeout)*time.Duration(len(w.s.Receivers))
}

// keep writes what is worth it before anything is sent. Where another process may be at
// work it writes whenever something waits, so that of two that are about to send it one
// comes too late.
func (w *Watch) keep(ctx context.Context, t *Turn) {
	shared := w.version != "" && len(w.state.Outbox) > 0
	if shared {
		w.state.Tries++
	}
	if shared || alert.Worth(w.state, w.written, w.s.After) {
		t.StoreErr = w.save(ctx)
	}
}

// save writes the state. When another process has written it meanwhile, this one goes on
// from what that wrote, and holds back.
func (w *Watch) save(ctx context.Context) error {
	w.state.By = w.s.ID
	for {
		raw, err := json.Marshal(w.state)
		if err != nil {
			return err
		}
		over := w.version
		version, err := bounded.Do(ctx, &w.stores, Timeout, func(ctx context.Context) (string, error) { return w.s.Store.Save(ctx, raw, over) })
		if err == nil {
			w.version, w.kept, w.written = version, raw, w.state
			return nil
		}
		if !errors.Is(err, alert.ErrTaken) {
			return err
		}
		rivals := w.rivals
		if lerr := w.load(ctx, w.s.Now()); lerr != nil || w.version == over {
			w.rival = w.s.Now()
			return errors.Join(err, lerr)
		}
		if w.rivals != rivals {
			return err
		}
		// Only the version is another one: once more.
	}
}

// note writes what has become of messages to one receiver. Where another process wrote
// in between, it is noted in what that wrote: to forget that a message was taken would
// tell it twice.
func (w *Watch) note(ctx context.Context, change func(alert.State) alert.State) error {
	w.state = change(w.state)
	err := w.save(ctx)
	for range 3 {
		if !errors.Is(err, alert.ErrTaken) {
			break
		}
		w.state = change(w.state)
		err = w.save(ctx)
	}
	return err
}

// deliver sends a receiver what it has not taken, in order, until one is not taken. What
// it refuses as it is stays, for the address may be what is wrong, and is given up once
// it takes a later one: then the message is. One that is under way when the process is
// told to end is waited for, else it would be told twice.
func (w *Watch) deliver(ctx context.Context, r Receiver, t *Turn) (out []Delivery) {
	end := w.s.Now().Add(turn)
	var refused []string
	for w.s.Now().Before(end) && ctx.Err() == nil && !w.held() && len(refused) < maxRefusals {
		m, ok := alert.Next(w.state, r.Name(), refused...)
		if !ok {
			break
		}
		ending := context.WithoutCancel(ctx)
		in, cancel := context.WithTimeout(ending, Timeout)
		err := r.Send(in, m)
		cancel()
		out = append(out, Delivery{Receiver: r.Name(), Message: m, Err: err})
		if err != nil {
			if w.news(r.Name(), err.Error()) {
				w.log.Warn("message is not taken, tried again", obs.Receiver, r.Name(), obs.Kind, string(m.Kind), obs.Subject, m.Subject, obs.Err, err)
			}
			if errors.Is(err, alert.ErrRefused) {
				refused = append(refused, m.ID)
				continue
			}
			break
		}
		w.log.Info("told", obs.Receiver, r.Name(), obs.Kind, string(m.Kind), obs.Subject, m.Subject, "event", string(m.Event))
		w.said[r.Name()] = ""
		for _, id := range refused {
			w.log.Error("message is given up: the receiver refuses it and takes others", obs.Receiver, r.Name(), "id", id)
		}
		given := refused
		refused = nil
		t.StoreErr = w.note(ending, func(s alert.State) alert.State {
			for _, id := range given {
				s = alert.GaveUp(s, id, r.Name())
			}
			return alert.Delivered(s, m.ID, r.Name())
		})
	}
	return out
}

// news says whether words of a trouble are other ones than the last, and not none.
func (w *Watch) news(of, words string) bool {
	if w.said[of] == words {
		return false
	}
	w.said[of] = words
	return words != ""
}
