package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/swap"
)

// seenProbe is a host's entry and heartbeat as they were last seen.
type seenProbe struct {
	raw     string
	window  *fitness.Window
	problem *fitness.EntryError

	beat    Heartbeat
	hasBeat bool
	looked  bool
	// changed: a change was seen since the first look; since is when, or when the
	// first look was (safety rule 22).
	changed bool
	since   time.Time
	// wrote is when the entry itself was seen to change, zero while it was not.
	wrote time.Time

	// What the host was last known to have come to: the boot and counter of its
	// entry, and the boots before that one.
	boot    string
	counter uint64
	former  boots
}

// see takes in one look, and keeps so many samples.
func (s *seenProbe) see(node, raw string, keep int, beat Heartbeat, has bool, now time.Time) {
	if raw != s.raw || !s.looked {
		s.window, s.problem = nil, nil
		if raw != "" {
			s.decode(node, raw, keep)
		}
	}
	moved := s.looked && has && (!s.hasBeat || beat != s.beat) && s.vouches(beat)
	written := s.looked && raw != s.raw && raw != ""
	switch {
	case !s.looked:
		s.since = now
	case written && !moved && s.older():
		// Put back from a backup or by hand: a change, and no word of the host's.
		s.changed, s.since, s.wrote = false, now, time.Time{}
	case written || moved:
		s.changed, s.since = true, now
		if written {
			s.wrote = now
		}
	}
	s.comeTo(moved)
	s.raw, s.beat, s.hasBeat, s.looked = raw, beat, has, true
}

// older says whether the entry was made before one that was seen: by its counter
// within a boot, else by its boot.
func (s *seenProbe) older() bool {
	switch w := s.window; {
	case w == nil:
		return false
	case w.BootID == s.boot:
		return w.Counter < s.counter
	default:
		return s.former.has(w.BootID)
	}
}

// comeTo notes what the host has come to, also back to, where its own heartbeat says
// so: a window that begins anew counts from one again.
func (s *seenProbe) comeTo(vouched bool) {
	w := s.window
	if w == nil || !vouched && s.older() {
		return
	}
	if s.boot != "" && s.boot != w.BootID {
		s.former.add(s.boot)
	}
	s.former.remove(w.BootID)
	s.boot, s.counter = w.BootID, w.Counter
}

// vouches says whether a heartbeat is of this very entry: of its boot, with a
// number that the window has come to since it was written, at most a window later.
// One that was put back from a backup has none (safety rules 22 and 24). An
// entry that cannot be read, and none, need no word for them.
func (s *seenProbe) vouches(beat Heartbeat) bool {
	w := s.window
	if w == nil {
		return true
	}
	n, err := strconv.ParseUint(beat.Counter, 10, 64)
	return err == nil && beat.BootID == w.BootID && n >= w.Counter && n-w.Counter <= uint64(max(w.Size, 1))
}

func (s *seenProbe) decode(node, raw string, keep int) {
	w, err := fitness.Decode(node, []byte(raw))
	if err == nil {
		w.Keep(keep)
		s.window = &w
		return
	}
	problem, ok := errors.AsType[*fitness.EntryError](err)
	if !ok {
		problem = &fitness.EntryError{Code: fitness.CodeEntryMalformed, Sentence: err.Error()}
	}
	s.problem = problem
}

// judgedHosts are those of which an entry is looked at: that may vote, or vote as far as
// anything says so. A probe's account may write any key, so what an entry of another
// host would cost is not spent.
func (b *Observer) judgedHosts(s *Sight) map[string]bool {
	k := b.settings.Policy.Keys
	members, _ := swap.Members(s.Observation, b.settings.Policy)
	judged := map[string]bool{}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		_, member := members[h.Name]
		_, labelled := h.Node.Labels[fleet.LabelEtcd]
		if member || labelled || h.Node.Labels[k.Eligible()] == fleet.True {
			judged[h.Name] = true
		}
	}
	return judged
}

// Probes keeps what it saw of the probes' entries and heartbeats, because only a
// change that it saw itself is fresh. The zero value has seen nothing. Not safe for
// concurrent use.
type Probes struct{ seen map[string]*seenProbe }

// SeenProbe is a host as its probe was seen.
type SeenProbe struct {
	fitness.Host
	// Wrote: the entry itself was seen to change, WroteAge ago by the reader's clock.
	Wrote    bool
	WroteAge time.Duration
}

// See takes in one look at the probes of these nodes, in their order; those that have
// neither entry nor heartbeat are left out. Of each window the newest samples are kept,
// keep of them, all for zero. Heartbeats that could not be read are nil: no news.
func (p *Probes) See(nodes []string, entries map[string]string, keep int, beats map[string]Heartbeat, now time.Time) []SeenProbe {
	there := make(map[string]bool, len(nodes))
	probes := make([]SeenProbe, 0, len(entries))
	for _, name := range nodes {
		there[name] = true
		raw := entries[name]
		beat, has := beats[name]
		if raw == "" && !has {
			delete(p.seen, name)
			continue
		}
		seen := p.seen[name]
		if seen == nil {
			seen = &seenProbe{}
			if p.seen == nil {
				p.seen = map[string]*seenProbe{}
			}
			p.seen[name] = seen
		}
		if beats == nil {
			beat, has = seen.beat, seen.hasBeat
		}
		seen.see(name, raw, keep, beat, has, now)
		s := SeenProbe{Host: fitness.Host{Node: name, Window: seen.window, Problem: seen.problem, Seen: seen.changed, Age: now.Sub(seen.since)}}
		if s.Wrote = !seen.wrote.IsZero(); s.Wrote {
			s.WroteAge = now.Sub(seen.wrote)
		}
		probes = append(probes, s)
	}
	for name := range p.seen {
		if !there[name] {
			delete(p.seen, name)
		}
	}
	return probes
}

// judge reads the probes' entries and asks for the verdicts. Where they cannot be
// read nothing is judged; a swap by hand needs none.
func (b *Observer) judge(ctx context.Context, s *Sight, beats heartbeats, now time.Time) {
	cm, err := b.cluster.ConfigMap(ctx, fleet.ConfigMapProbe)
	if err != nil {
		s.ProbeProblem = fmt.Sprintf("the probes' entries: %v", err)
		return
	}
	s.ProbesMissing = !cm.Exists
	judged := b.judgedHosts(s)
	for _, name := range slices.Sorted(maps.Keys(cm.Data)) {
		if !judged[name] {
			s.Unjudged = append(s.Unjudged, name)
		}
	}
	names := make([]string, 0, len(judged))
	for i := range s.Hosts {
		if name := s.Hosts[i].Name; judged[name] {
			names = append(names, name)
		}
	}
	seen := b.probes.See(names, cm.Data, b.settings.Window, beats.probes, now)
	probes := make([]fitness.Host, len(seen))
	for i := range seen {
		probes[i] = seen[i].Host
	}
	j := b.settings.Judge(s.Observation, probes, b.settings.Policy)
	s.Judgement, s.Automatic = &j, j.Decision.Pair
}
