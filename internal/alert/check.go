package alert

import (
	"time"

	"github.com/exadev/regrade/internal/heartbeat"
)

// Look is one look without any before it, as cron and a monitoring program take.
type Look struct {
	Document *heartbeat.Document
	Problem  string
	// Date is the clock of where the document came from; zero when it has none.
	Date time.Time
}

// Check says what is wrong by one look: what is due, and what will be if it stays.
// Whether the document is too old is told by the clock of where it came from (the API
// server's, which dated it, or that of a web server) and by a state that has watched it.
// Where that cannot be told, and where the document is not there or cannot be read, it
// is wrong at once: what nobody knows is not well (safety rule 24).
func Check(l Look, s State, after time.Duration) (due, early []Condition) {
	c := Condition{Kind: HeartbeatStale, Severity: Critical, Since: s.Last}
	if l.Document == nil {
		c.Sentence = "fleet-health.json cannot be read: " + l.Problem + "."
		return []Condition{c}, nil
	}
	watched := s.Protocol != 0
	c.Since = l.Document.At
	if c.Sentence = aged(l, patience(after, l.Document.Interval)); c.Sentence == "" && watched {
		c.Sentence = s.stale(l.Document.At, after)
	}
	if c.Sentence != "" {
		return []Condition{c}, nil
	}
	j := judge(weigher{d: l.Document, after: after, first: s.noticed, once: true})
	for _, c := range j.Due {
		if !j.Held(c) {
			due = append(due, c)
		}
	}
	for _, a := range s.Active {
		if a.Kind != HeartbeatStale && j.Held(a) {
			due = append(due, a)
		}
	}
	return due, j.Early
}

// aged says what is wrong with a document's age by the clock of where it came from,
// empty when nothing is.
func aged(l Look, after time.Duration) string {
	words := "fleet-health.json is of " + stamp(l.Document.At)
	// Each by itself: a time that is centuries off has no negative.
	age, ahead := l.Date.Sub(l.Document.At).Round(time.Second), l.Document.At.Sub(l.Date).Round(time.Second)
	switch {
	case l.Date.IsZero():
		return words + ", and where it comes from says no time: how old it is cannot be told."
	case age > after:
		return words + ", " + age.String() + " old."
	case ahead > after:
		return words + ", " + ahead.String() + " ahead of the clock of where it comes from: how old it is cannot be told."
	}
	return ""
}

// Would is the message that a condition would be told by.
func Would(c Condition, at time.Time) Message { return began(c, at, 0, "") }
