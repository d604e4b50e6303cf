package observe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
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
}

// see takes in one look.
func (s *seenProbe) see(node, raw string, beat Heartbeat, has bool, now time.Time) {
	if raw != s.raw || !s.looked {
		s.window, s.problem = nil, nil
		if raw != "" {
			s.decode(node, raw)
		}
	}
	switch {
	case !s.looked:
		s.since = now
	case raw != s.raw && raw != "", has && (!s.hasBeat || beat != s.beat) && s.vouches(beat):
		s.changed, s.since = true, now
	}
	s.raw, s.beat, s.hasBeat, s.looked = raw, beat, has, true
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

func (s *seenProbe) decode(node, raw string) {
	w, err := fitness.Decode(node, []byte(raw))
	if err == nil {
		s.window = &w
		return
	}
	problem, ok := errors.AsType[*fitness.EntryError](err)
	if !ok {
		problem = &fitness.EntryError{Code: fitness.CodeEntryMalformed, Sentence: err.Error()}
	}
	s.problem = problem
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
	probes := make([]fitness.Host, 0, len(cm.Data))
	for i := range s.Hosts {
		name := s.Hosts[i].Name
		raw := cm.Data[name]
		beat, has := beats.probes[name]
		if raw == "" && !has {
			delete(b.probes, name)
			continue
		}
		seen := b.probes[name]
		if seen == nil {
			seen = &seenProbe{}
			b.probes[name] = seen
		}
		if beats.probes == nil {
			beat, has = seen.beat, seen.hasBeat // not read: no news
		}
		seen.see(name, raw, beat, has, now)
		probes = append(probes, fitness.Host{Node: name, Window: seen.window, Problem: seen.problem, Seen: seen.changed, Age: now.Sub(seen.since)})
	}
	for name := range b.probes {
		if s.Host(name) == nil {
			delete(b.probes, name)
		}
	}
	j := b.settings.Judge(s.Observation, probes, b.settings.Policy)
	s.Judgement, s.Automatic = &j, j.Decision.Pair
}
