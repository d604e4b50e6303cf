// Package beat is the process that says how the fleet is: on each tick it reads the
// Nodes and what else is asked for, makes fleet-health.json of it, and publishes that,
// healthy or not. The controller's status goes out with it only while the fleet is
// vouched for (R-185-14).
package beat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/bounded"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/status"
)

// Cluster is what a tick reads. Each call ends by itself within seconds.
type Cluster interface {
	Nodes(ctx context.Context) ([]heartbeat.Node, error)
	// RoleStatus is status.json as it stands, empty where there is none.
	RoleStatus(ctx context.Context) (string, error)
	// Runners is what the checks of GitHub's runners need. What could not be read is
	// in it.
	Runners(ctx context.Context, w heartbeat.Wanted) *heartbeat.Runners
	// Heartbeats are those of host daemons and probes.
	Heartbeats(ctx context.Context) ([]observe.Heartbeat, error)
	// Date is the API server's clock as its last answer gave it; zero before the first.
	Date() time.Time
}

// Publisher is one place to publish to.
type Publisher interface {
	Name() string
	// Publish writes the files, and leaves alone those that are not named.
	Publish(ctx context.Context, files heartbeat.Files) error
	// Read is a file as it is published, nil when it is not.
	Read(ctx context.Context, name string) ([]byte, error)
}

// Settings of a heartbeat.
type Settings struct {
	Build    heartbeat.Settings
	Runners  heartbeat.Wanted
	Interval time.Duration
	// HealthyUntil is the file that holds until when a healthy fleet is vouched for,
	// empty for none; Window is how long that is.
	HealthyUntil string
	Window       time.Duration
	Publishers   []Publisher
	Log          *slog.Logger
	// Now is the process's clock with its monotonic part; time.Now when nil.
	Now func() time.Time
}

// Timeout is how long a publisher may take.
const Timeout = 10 * time.Second

// maxJump is how far the API's Date may be from where the own clock has carried the last
// one: two API servers' clocks are never quite the same.
const maxJump = 30 * time.Second

// recallLife is how old a published document may be to go on from after a restart:
// of what was between nobody knows.
const recallLife = time.Hour

// Beat keeps what one tick takes over from the one before. Not safe for concurrent use.
type Beat struct {
	cluster Cluster
	s       Settings
	log     *slog.Logger

	memory heartbeat.Memory
	// built: memory is of a document of this process; else of one that was published
	// before, at the time remembered.
	built      bool
	remembered time.Time
	places     []*place
	// date is the API server's when it answered last, at by this process's clock.
	date, at time.Time
	said     string
	spoken   bool

	// daemons are the host daemons that nobody else watches.
	daemons    map[string]daemon
	daemonsErr string
}

// place is a publisher and what this process knows of it.
type place struct {
	Publisher
	// recalled: what it held before this process has been read, or written over.
	recalled bool
	calls    bounded.Calls
	said     string
}

// New makes a heartbeat that has published nothing yet.
func New(cluster Cluster, s Settings) *Beat {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	b := &Beat{cluster: cluster, s: s, log: s.Log}
	for _, p := range s.Publishers {
		b.places = append(b.places, &place{Publisher: p})
	}
	return b
}

// Result is what came of one publisher.
type Result struct {
	Publisher string
	Err       error
}

// Turn is what one tick did.
type Turn struct {
	Took      time.Duration
	Document  heartbeat.Document
	Published []Result
}

// Err is why something was not published, nil when all was.
func (t Turn) Err() error {
	var errs []error
	for _, r := range t.Published {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("publish to %s: %w", r.Publisher, r.Err))
		}
	}
	return errors.Join(errs...)
}

// Run ticks until ctx ends. after is called with every turn, and may be nil.
func (b *Beat) Run(ctx context.Context, after func(Turn)) {
	for {
		t := b.Tick(ctx)
		if ctx.Err() != nil {
			return
		}
		if after != nil {
			after(t)
		}
		if !sleep.For(ctx, b.s.Interval) {
			return
		}
	}
}

// Tick reads, builds and publishes once. Nothing that fails ends a heartbeat: it is
// in the document, or in the turn.
func (b *Beat) Tick(ctx context.Context) Turn {
	began := b.s.Now()
	b.recall(ctx)
	o, raw := b.observe(ctx)
	if ctx.Err() != nil {
		return Turn{} // it is ending: what was not read is no news
	}
	now := b.now(o.NodesProblem == "")
	b.listen(ctx, &o, now)
	if ctx.Err() != nil {
		return Turn{}
	}
	d := heartbeat.Build(o, b.before(now), now, b.s.Build)
	b.memory, b.built = d.Memory(), true
	t := Turn{Document: d}
	files, err := b.files(d, raw, now)
	if err != nil {
		t.Published = append(t.Published, Result{Publisher: "document", Err: err})
		b.log.Error("document cannot be published", obs.Err, err)
	} else {
		t.Published = b.publish(ctx, files)
	}
	b.say(d)
	t.Took = b.s.Now().Sub(began)
	return t
}

// observe reads everything. A part that fails leaves the others.
func (b *Beat) observe(ctx context.Context) (o heartbeat.Observation, raw string) {
	var err error
	if o.Nodes, err = b.cluster.Nodes(ctx); err != nil {
		o.Nodes, o.NodesProblem = nil, err.Error()
	}
	raw, err = b.cluster.RoleStatus(ctx)
	switch {
	case err != nil:
		raw, o.StatusProblem = "", err.Error()
	case raw != "":
		st, err := status.ParseStatus([]byte(raw))
		if err != nil {
			o.StatusProblem, raw = err.Error(), ""
			break
		}
		o.Status = &st
	}
	if b.s.Runners.Any() {
		o.Runners = b.cluster.Runners(ctx, b.s.Runners)
	}
	return o, raw
}

// now is the API server's Date, which dates all that is in a document. While it does
// not answer, its last one is carried on by this process's own clock, whose wall
// time may be another (safety rule 22). When it jumps, what has lasted for a while has
// lasted for no longer by that: the times of before go with it.
func (b *Beat) now(answered bool) time.Time {
	local := b.s.Now()
	if date := b.cluster.Date(); answered && !date.IsZero() {
		if jump := date.Sub(b.date.Add(local.Sub(b.at))).Truncate(time.Second); !b.date.IsZero() && jump.Abs() > maxJump {
			b.memory = b.memory.Moved(jump)
			b.log.Warn("the API server's clock has jumped", "by", jump.String())
		}
		b.date, b.at = date, local
		return date.UTC().Truncate(time.Second)
	}
	if b.date.IsZero() {
		return local.UTC().Truncate(time.Second)
	}
	return b.date.Add(local.Sub(b.at)).UTC().Truncate(time.Second)
}

// files are what this tick publishes.
func (b *Beat) files(d heartbeat.Document, raw string, now time.Time) (heartbeat.Files, error) {
	doc, err := d.JSON()
	if err != nil {
		return nil, err
	}
	files := heartbeat.Files{fleet.KeyHealth: doc}
	if d.Healthy && raw != "" {
		files[fleet.KeyRoleStatus] = []byte(raw)
	}
	if d.Healthy && b.s.HealthyUntil != "" {
		files[b.s.HealthyUntil] = strconv.AppendInt(nil, now.Add(b.s.Window).Unix(), 10)
	}
	return files, nil
}

// publish writes to all places at once, so that one that hangs keeps nothing from
// the others.
func (b *Beat) publish(ctx context.Context, files heartbeat.Files) []Result {
	results := make([]Result, len(b.places))
	var all sync.WaitGroup
	for i, p := range b.places {
		all.Go(func() {
			err := p.call(ctx, func(ctx context.Context) error { return write(ctx, p, files) })
			if err == nil {
				p.recalled = true
			}
			results[i] = Result{Publisher: p.Name(), Err: err}
		})
	}
	all.Wait()
	for i, p := range b.places {
		p.say(b.log, results[i].Err)
	}
	return results
}

// write leaves out all but the document itself where the whole is too much.
func write(ctx context.Context, p Publisher, files heartbeat.Files) error {
	err := p.Publish(ctx, files)
	if !errors.Is(err, heartbeat.ErrTooLarge) || len(files) == 1 {
		return err
	}
	only := heartbeat.Files{fleet.KeyHealth: files[fleet.KeyHealth]}
	if again := p.Publish(ctx, only); again != nil {
		return again
	}
	return fmt.Errorf("only %s was published: %w", fleet.KeyHealth, err)
}

// call waits for a call no longer than Timeout, whether it heeds its context or not:
// a disk may hang. One that has not come back is not made again before it has.
func (p *place) call(ctx context.Context, f func(context.Context) error) error {
	_, err := bounded.Do(ctx, &p.calls, Timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// recall reads what was published before this process began. A place that cannot be
// read is tried again until it has been written over.
func (b *Beat) recall(ctx context.Context) {
	docs := make([]*heartbeat.Document, len(b.places))
	var all sync.WaitGroup
	for i, p := range b.places {
		if p.recalled {
			continue
		}
		all.Go(func() {
			var raw []byte
			err := p.call(ctx, func(ctx context.Context) (err error) {
				raw, err = p.Read(ctx, fleet.KeyHealth)
				return err
			})
			if err != nil {
				return
			}
			p.recalled = true
			if d, err := heartbeat.Parse(raw); err == nil {
				docs[i] = &d
			}
		})
	}
	all.Wait()
	var newest *heartbeat.Document
	for _, d := range docs {
		if d != nil && (newest == nil || d.At.After(newest.At)) {
			newest = d
		}
	}
	if newest == nil {
		return
	}
	b.recalled(newest)
}

// recalled takes a document of before in. Where this process has built one already,
// only what holds since the same trouble is taken.
func (b *Beat) recalled(d *heartbeat.Document) {
	m := d.Memory()
	if !b.built {
		b.memory, b.remembered = m, d.At
		return
	}
	earlier := func(mine, before time.Time) time.Time {
		if !mine.IsZero() && !before.IsZero() && before.Before(mine) && mine.Sub(d.At) <= recallLife {
			return before
		}
		return mine
	}
	b.memory.EvenSince = earlier(b.memory.EvenSince, m.EvenSince)
	b.memory.NoToleranceSince = earlier(b.memory.NoToleranceSince, m.NoToleranceSince)
	for name, since := range b.memory.Failing {
		b.memory.Failing[name] = earlier(since, m.Failing[name])
	}
	for name, since := range b.memory.NotReady {
		b.memory.NotReady[name] = earlier(since, m.NotReady[name])
	}
}

// before is what the document before this one says, as far as it can be gone on from.
func (b *Beat) before(now time.Time) heartbeat.Memory {
	if !b.built && now.Sub(b.remembered) > recallLife {
		return heartbeat.Memory{}
	}
	return b.memory
}

// say logs what has changed.
func (b *Beat) say(d heartbeat.Document) {
	words := strings.Join(d.Reasons, "; ")
	if words == b.said && b.spoken {
		return
	}
	b.said, b.spoken = words, true
	if d.Healthy {
		b.log.Info("the fleet is vouched for")
		return
	}
	b.log.Warn("the fleet is not vouched for", obs.Sentence, words)
}

func (p *place) say(log *slog.Logger, err error) {
	words := ""
	if err != nil {
		words = err.Error()
	}
	if words == p.said {
		return
	}
	p.said = words
	if err != nil {
		log.Warn("not published", obs.Publisher, p.Name(), obs.Err, err)
		return
	}
	log.Info("published again", obs.Publisher, p.Name())
}
