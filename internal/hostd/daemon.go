package hostd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// Wake says when the next pass is due.
type Wake struct {
	// Again: at once, because an effect was carried out.
	Again bool
	// After is the longest wait otherwise; a watch may end it sooner.
	After time.Duration
	// Glance: meanwhile what can be seen on the host itself is looked at each
	// Fast, and the pass comes at once when something has changed.
	Glance bool
}

// Paces of the loop (design §3, "Passes").
const (
	// Quick is the pace while something on the host is about to happen, such as
	// the end of a process, but not for longer than QuickFor in one wait.
	Quick    = 250 * time.Millisecond
	QuickFor = 15 * time.Second
	// Swapping is the pace while any Node carries a swap annotation.
	Swapping = 2 * time.Second
)

// Settings make a Daemon.
type Settings struct {
	Node   string
	Policy Policy

	Host platform.Host
	API  API
	Etcd Etcd
	Ways Ways
	// Lock may be nil where nothing else touches the host (tests, the demo).
	Lock Lock
	// Now is the host's clock with its monotonic part; time.Now when nil.
	Now func() time.Time
	Log *slog.Logger
	// Command makes the daemon a command's: it takes this step only.
	Command *Command
	// Levels switch the level half on; nil is off.
	Levels *LevelSettings
	// Rested is called before the daemon waits for a whole period with nothing under
	// way; may be nil.
	Rested func()
	// Silent suppresses reports and heartbeats (a command that only looks).
	Silent bool
}

// Daemon drives one host. It keeps nothing that a restart may not lose: only
// when it last wrote, dialled and judged.
type Daemon struct {
	s   Settings
	log *slog.Logger

	counter   uint64
	published *status.Report
	wroteAt   time.Time
	beatAt    time.Time
	beaten    hostapi.Beat

	judgedAt  time.Time
	preflight *status.Preflight
	faltering time.Time
	// aloneSince is since when no API server has answered; zero while one does.
	aloneSince time.Time
	handedOver fleet.SwapID
	handOverAt time.Time

	dialledAt time.Time
	dials     []status.Dial
	askedAt   time.Time
	nodesAt   time.Time
	nodes     []hostapi.Node

	last     Effect
	lastWait string
	// lastLevel is what the level half said last.
	lastLevel Said
	lastRun   platform.LevelRun
	// broken is the effect that failed in the last pass, and why.
	broken    Kind
	brokenWhy string

	soonCode   string
	soonSince  time.Time
	early      int // passes that glances have brought forward
	earlySince time.Time
	busy       time.Time // since when the host lock is another's

	unheardSince time.Time // since when no API server has answered
	unheard      bool      // that has been logged

	warned []platform.Warning

	reading level.Reading
	watch   level.Watch
	// settled is when this process settled a step between levels, and which.
	settled struct {
		at    time.Time // by the clock of Now
		ended time.Time // as its journal has it
	}

	facts    Facts
	decision Decision
}

// New makes a Daemon. The counter of its reports begins above that of any
// earlier process, so that a restart is a change to whoever looks (safety rule
// 22).
func New(s Settings) *Daemon {
	if s.Now == nil {
		s.Now = time.Now
	}
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Daemon{s: s, log: log, counter: uint64(max(s.Now().Unix(), 0))}
}

// Facts are those of the last pass.
func (d *Daemon) Facts() Facts { return d.facts }

// Decision is that of the last pass.
func (d *Daemon) Decision() Decision { return d.decision }

// Pass is one round: observe, decide, report, and at most one effect. It never
// waits for k3s. An error is of the observation, the report or the effect; the
// next pass begins from what is then seen, so none needs undoing.
func (d *Daemon) Pass(ctx context.Context) (Wake, error) {
	ours, lockErr := d.lock()
	if ours {
		defer d.unlock()
	}
	f, err := d.observe(ctx)
	if err != nil {
		return Wake{After: Swapping}, errors.Join(lockErr, err)
	}
	d.heard(f)
	d.warn(f)
	decision := Next(f)
	next := decision.Effect
	if decision.Acts() && !ours && !reflect.DeepEqual(decision.Effect, Effect{Kind: PeerPort}) {
		// Letting the port go touches this process alone, and the command that has
		// the lock may be starting a server.
		why := "another process has the host lock; this one waits"
		if lockErr != nil {
			why = lockErr.Error() // such as a lock file that cannot be made on a full disk
		}
		decision = hold(CodeHostLocked, "%s", why)
	}
	d.facts, d.decision = f, decision
	d.note(decision)

	// The report says what was seen before the effect, the heartbeat vouches for
	// the report: in this order, and neither holds up the effect. Both may take
	// seconds, so an effect on k3s rests on a look of its own after them.
	said := decision
	said.Effect = next
	if decision.Acts() && decision.Effect.Kind == d.broken {
		// It is tried again; meanwhile whoever waits for it is told what it waits for.
		said.Code, said.Sentence = CodeEffectFailed, fmt.Sprintf("%s: %s; it is tried again", d.broken, d.brokenWhy)
	}
	problems := errors.Join(lockErr, d.publish(ctx, f, said))
	if !decision.Acts() {
		d.last, d.broken = Effect{}, ""
		return d.pace(f, decision), problems
	}
	ctx, end, wake, err := d.ready(ctx, f, decision.Effect)
	if end == nil {
		return wake, errors.Join(err, problems)
	}
	defer end()
	if decision.Effect.Kind == MoveLeader {
		d.handedOver, d.handOverAt = f.order().swap, f.Now
	}
	if err := d.carryOut(ctx, decision.Effect); err != nil {
		d.last, d.broken, d.brokenWhy = Effect{}, decision.Effect.Kind, err.Error()
		return Wake{After: Swapping}, errors.Join(fmt.Errorf("%s on %s: %w", decision.Effect.Kind, f.Node, err), problems)
	}
	d.broken = ""
	// An effect that changed nothing is not hammered.
	same := reflect.DeepEqual(d.last, decision.Effect)
	d.last = decision.Effect
	if same {
		return Wake{After: Swapping}, problems
	}
	return Wake{Again: true}, problems
}

// Look observes and decides, and does nothing else: no effect, no report.
func (d *Daemon) Look(ctx context.Context) (Facts, Decision, error) {
	f, err := d.observe(ctx)
	if err != nil {
		return Facts{}, Decision{}, err
	}
	return f, Next(f), nil
}

func (d *Daemon) pace(f Facts, dec Decision) Wake {
	switch {
	case d.quick(f, dec):
		return Wake{After: Quick}
	case f.swapping() || f.Journal.Phase == fleet.PhaseRunning || f.Command != nil || f.Levels != nil && f.Levels.Journal.Running():
		host, etcd := d.glances(f)
		return Wake{After: Swapping, Glance: host || etcd}
	}
	return Wake{After: f.Policy.Period}
}

// quick says whether to look again in moments.
func (d *Daemon) quick(f Facts, dec Decision) bool {
	if !dec.Soon || dec.Code != d.soonCode {
		d.soonCode, d.soonSince = "", time.Time{}
	}
	if !dec.Soon {
		return false
	}
	if d.soonSince.IsZero() {
		d.soonCode, d.soonSince = dec.Code, f.Now
	}
	return f.Now.Sub(d.soonSince) < QuickFor
}

// swapping says whether any Node carries a swap annotation.
func (f Facts) swapping() bool {
	key := f.Policy.Keys.Swap()
	if f.View != nil && f.View.Self != nil && f.View.Self.Annotations[key] != "" {
		return true
	}
	for _, n := range f.Nodes {
		if n.Annotations[key] != "" {
			return true
		}
	}
	// A staying voter learns of the swap from the Lease even when its watch is late.
	return f.View != nil && f.View.Lease.At(f.View.Date) == lease.Held && f.View.Lease.SwapID() != ""
}

// Run passes until ctx ends, or until only a new process could go on.
func (d *Daemon) Run(ctx context.Context) error {
	var said string
	for {
		wake, err := d.Pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, platform.ErrAnew) {
			return fmt.Errorf("pass: %w", err)
		}
		if err != nil && err.Error() != said {
			d.log.Warn("pass failed", obs.Err, err)
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
		if !wake.Again {
			if d.s.Rested != nil && wake.After >= d.facts.Policy.Period {
				d.s.Rested()
			}
			d.rest(ctx, wake)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// heard logs once that no API server answers, when that has lasted for a period,
// and that one does again: such a daemon can report nothing and takes no order.
func (d *Daemon) heard(f Facts) {
	switch {
	case f.View != nil:
		if d.unheard {
			d.log.Info("an API server answers again", "after", f.Now.Sub(d.unheardSince).Round(time.Second))
		}
		d.unheard, d.unheardSince = false, time.Time{}
	case d.unheardSince.IsZero():
		d.unheardSince = f.Now
	case !d.unheard && f.Now.Sub(d.unheardSince) >= f.Policy.Period:
		d.unheard = true
		d.log.Warn("no API server answers", obs.Err, f.ViewProblem)
	}
}

// warn logs the host's warnings, each once for as long as it stands.
func (d *Daemon) warn(f Facts) {
	for _, w := range f.Host.Warnings {
		if !slices.Contains(d.warned, w) {
			d.log.Warn("the host has a problem that holds nothing up", obs.Code, w.Code, obs.Sentence, w.Sentence)
		}
	}
	d.warned = f.Host.Warnings
}

// note logs a decision once, not at each pass.
func (d *Daemon) note(dec Decision) {
	if dec.Acts() {
		e := dec.Effect
		attrs := []any{"effect", string(e.Kind)}
		for _, a := range []struct{ key, value string }{
			{obs.Phase, phaseOf(dec)}, {"role", string(e.Role)}, {obs.Swap, string(e.Swap)}, {"level", string(e.Level)}, {"url", e.URL}, {"base", e.Base},
		} {
			if a.value != "" {
				attrs = append(attrs, a.key, a.value)
			}
		}
		if j := e.LevelJournal; j != nil {
			attrs = append(attrs, "step", fmt.Sprintf("%s to %s %s", j.From, j.To, j.Phase), obs.Code, j.Code, obs.Sentence, j.Message)
		}
		d.log.Info("acts", attrs...)
		d.lastWait = ""
		return
	}
	if w := dec.Code + dec.Sentence; w != d.lastWait {
		d.lastWait = w
		if w != "" {
			d.log.Info("waits", obs.Code, dec.Code, obs.Sentence, dec.Sentence)
		}
	}
	if r := d.facts.Host.LevelRun; r != d.lastRun {
		d.lastRun = r
		if r.Level != "" && !r.Running {
			d.log.Info("level applied", "level", string(r.Level), obs.Err, r.Error, "output", r.Output)
		}
	}
	if dec.Level != d.lastLevel {
		d.lastLevel = dec.Level
		if dec.Level.Code != "" {
			d.log.Info("level", obs.Code, dec.Level.Code, obs.Sentence, dec.Level.Sentence)
		}
	}
}

func phaseOf(dec Decision) string {
	if dec.Effect.Journal == nil {
		return ""
	}
	return fmt.Sprintf("%s %s", dec.Effect.Journal.Step, dec.Effect.Journal.Phase)
}
