package observe

import (
	"fmt"
	"strconv"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// seenReport is a host's report and heartbeat as they were last seen. A key
// that goes and comes back is seen for the first time again: a report map
// restored from a backup proves nothing.
type seenReport struct {
	looked     bool
	raw        string
	boot       string
	counter    uint64
	former     boots // before this one
	beatLooked bool
	beat       Heartbeat
	// changed: a change was seen since the first look. since is when, or when
	// the first look was.
	changed bool
	since   time.Time
	// last and before are when the last two pieces of news were seen. A host reads,
	// then writes: the pass of the last one began after the one before was written, which
	// was after the look that preceded before.
	last, before time.Time
	// stopped is since when the report says that the server process is gone, in this
	// swap: the word of an earlier one is not taken for it.
	stopped     time.Time
	stoppedSwap fleet.SwapID
}

// news notes a change that the host itself made, once an observation.
func (s *seenReport) news(now time.Time) {
	s.changed, s.since = true, now
	if !s.last.Equal(now) {
		s.before, s.last = s.last, now
	}
}

// readWithin is swap.Host.ReadWithin.
func (s *seenReport) readWithin(now time.Time) time.Duration {
	if !s.changed || s.before.IsZero() {
		return 0
	}
	return now.Sub(s.before)
}

// stoppedAge is swap.Host.StoppedAge.
func (s *seenReport) stoppedAge(r *status.Report, now time.Time) time.Duration {
	if r == nil || !r.Stopped {
		s.stopped = time.Time{}
		return 0
	}
	if s.stopped.IsZero() || s.stoppedSwap != r.Swap {
		s.stopped, s.stoppedSwap = now, r.Swap
	}
	return now.Sub(s.stopped)
}

func (s *seenReport) seeReport(raw string, r *status.Report, now time.Time) {
	if s.looked && raw != s.raw {
		// An older report put back, from a backup or by hand, is a change and no news.
		// Nor is one that cannot be read, or is not the host's: nobody knows who wrote it.
		if r == nil || s.older(r) {
			s.changed, s.since, s.last, s.before = false, now, time.Time{}, time.Time{}
		} else {
			s.news(now)
		}
	}
	s.looked, s.raw = true, raw
	if r == nil || s.older(r) {
		return
	}
	if s.boot != "" && s.boot != r.BootID {
		s.former.add(s.boot)
	}
	s.boot, s.counter = r.BootID, r.Counter
}

// older says whether a report was made before one that was seen: by its counter
// within a boot, else by its boot.
func (s *seenReport) older(r *status.Report) bool {
	switch {
	case r == nil:
		return false
	case r.BootID == s.boot:
		return r.Counter < s.counter
	}
	return s.former.has(r.BootID)
}

// see takes a heartbeat for news only when it vouches for just this report: a
// heartbeat of an earlier boot or another counter says nothing of it.
func (s *seenReport) see(raw string, r *status.Report, beat Heartbeat, has bool, now time.Time) {
	s.seeReport(raw, r, now)
	if !has {
		beat = Heartbeat{}
	}
	if s.beatLooked && has && beat != s.beat && vouches(beat, r) {
		// It is the host's own, though its number may have gone back with the host's clock.
		s.boot, s.counter = r.BootID, r.Counter
		s.former.remove(r.BootID)
		s.news(now)
	}
	s.beatLooked, s.beat = true, beat
}

// lead is how far a report may be ahead of its heartbeat: a host writes the report
// first, and a heartbeat that could not be written is behind by every report since.
const lead = 16

// contradicted says what is wrong with a report whose heartbeat is of another boot,
// or of a report long before it: the host has not come to such a boot or counter, so
// that this is not its word (safety rule 24). A heartbeat that is a moment late says
// the same, and holds for that moment.
func contradicted(r *status.Report, h Heartbeat) error {
	counter, err := strconv.ParseUint(h.Counter, 10, 64)
	switch {
	case err != nil || h.BootID == "":
		return nil // it vouches for nothing
	case h.BootID != r.BootID:
		return fmt.Errorf("report: of boot %q, and the host's heartbeat is of boot %q: it is not what the host daemon says now", r.BootID, h.BootID)
	case r.Counter > counter && r.Counter-counter > lead:
		return fmt.Errorf("report: number %d, and the host's heartbeat has come to %d: it is not what the host daemon says now", r.Counter, counter)
	}
	return nil
}

// seenBeat is a host's heartbeat and when it was last seen to move, or first seen.
type seenBeat struct {
	beat  Heartbeat
	moved time.Time
}

func vouches(h Heartbeat, r *status.Report) bool {
	if r == nil || h.BootID == "" || h.BootID != r.BootID {
		return false
	}
	counter, err := strconv.ParseUint(h.Counter, 10, 64)
	return err == nil && counter == r.Counter
}

// seenLease is the Lease's renew time and since when it has stood still.
type seenLease struct {
	looked bool
	renew  time.Time
	exists bool
	since  time.Time
}

func (s *seenLease) see(l lease.Lease, now time.Time) time.Duration {
	if !s.looked || s.exists != l.Exists || !s.renew.Equal(l.RenewTime) {
		*s = seenLease{looked: true, renew: l.RenewTime, exists: l.Exists, since: now}
	}
	return now.Sub(s.since)
}

// seenKubelet answers whether a kubelet has renewed its Lease since a start of
// its host (R-216-20, R-228-23): by a renewal that was read after the start was
// first seen, or after the host was seen to have ended its server and not yet to
// have started what comes after it. The times that the host wrote are compared with
// none other: its clock may be put back between two renewals (safety rule 22). A
// host that reports no start counts from when it was first seen: it may come back
// from a swap that ended without it and have nothing to start.
type seenKubelet struct {
	looked bool
	start  seenStart
	base   time.Time // the renewal that was read when start was first seen
}

// seenStart is what a report says of the start of its step.
type seenStart struct {
	at      time.Time
	stopped fleet.SwapID // its server has ended in this swap
	step    fleet.Step
}

func startOf(r *status.Report) seenStart {
	s := seenStart{at: r.StartedAt.UTC()}
	if r.Stopped {
		s.stopped, s.step = r.Swap, r.Step
	}
	return s
}

// follows says whether s is the start that the stop before it led to.
func (s seenStart) follows(before seenStart) bool {
	return before.stopped != "" && before.at.IsZero() && s.stopped == before.stopped && s.step == before.step
}

func (s *seenKubelet) see(start seenStart, renewed time.Time) bool {
	if !s.looked || s.start != start && !start.follows(s.start) {
		s.base = renewed
	}
	s.looked, s.start = true, start
	return !renewed.Equal(s.base)
}

// triedEvict is the answer to a dry-run eviction and when it was given.
type triedEvict struct {
	refusal string
	at      time.Time
}

// tryAgain is how long the answer to a dry-run eviction is used again in
// observations. A drain asks anew in any case.
const tryAgain = 5 * time.Second
