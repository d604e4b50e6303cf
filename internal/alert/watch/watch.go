// Package watch is the process that looks at fleet-health.json and tells people what
// is wrong. It keeps its state before it sends, and after each message that was
// taken, so that a restart at any point tells nothing twice but a message whose answer
// it did not live to write down; that one has the same id again.
package watch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/exadev/regrade/internal/alert"
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
	// Send delivers a message. An error that is alert.ErrRefused is final.
	Send(ctx context.Context, m alert.Message) error
}

// Store keeps the state.
type Store interface {
	// Load is what is kept, nil when nothing is.
	Load(ctx context.Context) ([]byte, error)
	// Save writes it whole, or not at all.
	Save(ctx context.Context, raw []byte) error
}

// Settings of a watch.
type Settings struct {
	Source    Source
	Store     Store
	Receivers []Receiver
	// After is the window of all kinds.
	After    time.Duration
	Interval time.Duration
	Log      *slog.Logger
	// Now is the process's clock with its monotonic part; time.Now when nil.
	Now func() time.Time
}

// Bounds of one call, and of all that is delivered to one receiver in one look.
const (
	Timeout = 10 * time.Second
	turn    = 30 * time.Second
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
}

// New makes a watch that has seen nothing yet.
func New(s Settings) *Watch {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	w := &Watch{s: s, log: s.Log, rules: alert.Rules{After: s.After}, said: map[string]string{}}
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
	w.state = alert.Step(w.state, g, w.rules)
	if w.loaded {
		if alert.Worth(w.state, w.written, w.s.After) {
			t.StoreErr = w.save(ctx)
		}
		for _, r := range w.s.Receivers {
			t.Deliveries = append(t.Deliveries, w.deliver(ctx, r, &t)...)
		}
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
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	raw, _, err := w.s.Source.Read(ctx)
	if err != nil {
		return nil, err.Error()
	}
	d, err := heartbeat.Parse(raw)
	if err != nil {
		return nil, err.Error()
	}
	return &d, ""
}

// load reads the state once. Nothing is told before it is known what was told; but
// when it cannot be had for a whole window, people are told by what this process has
// seen by itself: told twice is better than not at all. So it is with one that is
// damaged, at once.
func (w *Watch) load(ctx context.Context, now time.Time) error {
	if w.loaded {
		return nil
	}
	if w.began.IsZero() {
		w.began = now
	}
	bounded, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	raw, err := w.s.Store.Load(bounded)
	if err != nil {
		if now.Sub(w.began) >= w.s.After {
			w.loaded = true
			w.log.Error("state cannot be read: what was told before may be told again", obs.Err, err)
		}
		return err
	}
	w.loaded = true
	if raw == nil {
		return nil
	}
	s, err := alert.ParseState(raw)
	if err != nil {
		w.log.Error("state is damaged: what was told before may be told again", obs.Err, err)
		return err
	}
	w.state = alert.Only(s, w.rules.Receivers)
	w.written = s
	return nil
}

func (w *Watch) save(ctx context.Context) error {
	raw, err := json.Marshal(w.state)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := w.s.Store.Save(ctx, raw); err != nil {
		return err
	}
	w.written = w.state
	return nil
}

// deliver sends a receiver what it has not taken, in order, until one is not taken.
func (w *Watch) deliver(ctx context.Context, r Receiver, t *Turn) (out []Delivery) {
	end := w.s.Now().Add(turn)
	for w.s.Now().Before(end) && ctx.Err() == nil {
		m, ok := alert.Next(w.state, r.Name())
		if !ok {
			break
		}
		bounded, cancel := context.WithTimeout(ctx, Timeout)
		err := r.Send(bounded, m)
		cancel()
		out = append(out, Delivery{Receiver: r.Name(), Message: m, Err: err})
		refused := errors.Is(err, alert.ErrRefused)
		if err != nil && !refused {
			if w.news(r.Name(), err.Error()) {
				w.log.Warn("message is not taken, tried again", obs.Receiver, r.Name(), obs.Err, err)
			}
			break
		}
		if refused {
			w.log.Error("message is refused for good", obs.Receiver, r.Name(), obs.Kind, string(m.Kind), obs.Subject, m.Subject, obs.Err, err)
		} else {
			w.log.Info("told", obs.Receiver, r.Name(), obs.Kind, string(m.Kind), obs.Subject, m.Subject, "event", string(m.Event))
			w.said[r.Name()] = ""
		}
		w.state = alert.Delivered(w.state, m.ID, r.Name())
		t.StoreErr = w.save(ctx)
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
