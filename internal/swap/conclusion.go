package swap

import (
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// maxBackoff ends the doubling; a pair forgotten for longer starts over.
const maxBackoff = 7 * 24 * time.Hour

// Concluded is the status after an outcome: the swap is the last swap, a
// cooldown starts unless it was abandoned, and an abandoned pair backs off
// (design §3 "rollback starts the cooldown; an abandoned swap does not",
// safety rule 20, R-228-45). A nil status is a missing one: its cooldown has
// started anyway, and what ended before is not known (safety rule 25).
func Concluded(prev *status.Status, last status.LastSwap, p Policy) status.Status {
	var s status.Status
	if prev != nil {
		s = *prev
		s.Backoff = slices.Clone(prev.Backoff)
		if prev.LastSwap != nil && prev.LastSwap.ID == last.ID {
			return s // concluded before: nothing is counted twice
		}
	}
	if prev == nil {
		s.HistoryLost = last.EndedAt
	}
	s.Protocol = status.Protocol
	s.Swap, s.LastSwap = nil, &last
	s.History = remember(s.History, last)
	if last.Outcome == fleet.OutcomeAbandoned {
		s.Backoff = backOff(s.Backoff, last, p)
		return s
	}
	s.CooldownUntil = last.EndedAt.Add(p.Cooldown)
	s.Backoff = slices.DeleteFunc(s.Backoff, func(b status.Backoff) bool { return b.Out == last.Out && b.In == last.In })
	return s
}

// HistoryLife and maxHistory bound what is remembered of ended swaps: for longer than
// the longest dwell that can be set.
const (
	HistoryLife = 31 * 24 * time.Hour
	maxHistory  = 100
)

func remember(old []status.PastSwap, last status.LastSwap) []status.PastSwap {
	all := []status.PastSwap{{ID: last.ID, Out: last.Out, In: last.In, Manual: last.Manual, Outcome: last.Outcome, EndedAt: last.EndedAt}}
	for _, h := range old {
		if last.EndedAt.Sub(h.EndedAt) < HistoryLife && len(all) < maxHistory {
			all = append(all, h)
		}
	}
	return all
}

func backOff(old []status.Backoff, last status.LastSwap, p Policy) []status.Backoff {
	entry := status.Backoff{Out: last.Out, In: last.In}
	kept := old[:0]
	for _, b := range old {
		switch {
		case b.Out == last.Out && b.In == last.In:
			entry = b
		case last.EndedAt.Sub(b.Until) < maxBackoff:
			kept = append(kept, b)
		}
	}
	wait := p.AbandonBackoff
	for range min(entry.Count, 16) {
		wait = min(2*wait, maxBackoff)
	}
	entry.Count++
	entry.Until = last.EndedAt.Add(wait)
	return append(kept, entry)
}
