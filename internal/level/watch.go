package level

import "time"

// Watch is what a series of readings has come to: since when it is over the limits, and
// since when it is calm, without a break. It is kept by one process, by its monotonic
// clock, and no further: a window is never filled by what nobody saw (safety rules 22
// and 24).
type Watch struct {
	// Begun is the first reading of the series, Last the last.
	Begun time.Time `json:"begun,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// OverSince and CalmSince are zero where the last reading was not so.
	OverSince time.Time `json:"over_since,omitzero"`
	CalmSince time.Time `json:"calm_since,omitzero"`
	// Over are the limits that the last reading breaks, Missing what it lacks.
	Over    []Reason `json:"over,omitempty"`
	Missing []Reason `json:"missing,omitempty"`
}

// See goes on with one more reading. A clock that went back, a pause, and a reading
// that lacks something end both stretches: unknown is neither pressure nor calm.
func (w Watch) See(at time.Time, r Reading, p Policy) Watch {
	next := Watch{Begun: w.Begun, Last: at}
	if since := at.Sub(w.Last); w.Last.IsZero() || since < 0 || since > p.Gap {
		w, next.Begun = Watch{}, at
	}
	over, why := Over(r, p.Over)
	next.Over, next.Missing = why, Missing(r, p.Over)
	if len(next.Missing) > 0 {
		return next
	}
	first := func(was time.Time) time.Time {
		if was.IsZero() {
			return at
		}
		return was
	}
	switch {
	case over:
		next.OverSince = first(w.OverSince)
	case Calm(r, p.CalmLimits()):
		next.CalmSince = first(w.CalmSince)
	}
	return next
}

// Calm says whether nothing speaks against a step up: the averages of ten seconds are
// looked at as well, for who has just begun to wait is not calm yet.
func Calm(r Reading, l Limits) bool {
	if len(Missing(r, l)) > 0 {
		return false
	}
	if p := r.Pressure; p != nil && (l.SomeAvg60 > 0 && max(p.SomeAvg10, p.SomeAvg60) >= l.SomeAvg60 || l.FullAvg60 > 0 && max(p.FullAvg10, p.FullAvg60) >= l.FullAvg60) {
		return false
	}
	return r.AvailableBytes >= l.AvailableFloorBytes
}

func lasted(since, at time.Time, d time.Duration) bool {
	return !since.IsZero() && at.Sub(since) >= d
}
