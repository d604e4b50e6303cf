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
// Without a state that has watched it, a document is too old when it is by the clock
// of where it came from: the API server's, which dated it, or that of a web server.
// A document that is not there or cannot be read is wrong at once.
func Check(l Look, s State, after time.Duration) (due, early []Condition) {
	c := Condition{Kind: HeartbeatStale, Severity: Critical, Since: s.Last}
	if l.Document == nil {
		c.Sentence = "fleet-health.json cannot be read: " + l.Problem + "."
		return []Condition{c}, nil
	}
	c.Since = l.Document.At
	if age := l.Date.Sub(l.Document.At); !l.Date.IsZero() && age > after {
		c.Sentence = "fleet-health.json is of " + stamp(l.Document.At) + ", " + age.Round(time.Second).String() + " old."
		return []Condition{c}, nil
	}
	first := s.noticed
	if s.Protocol == 0 {
		first = nil // nobody has watched
	}
	j := Judge(l.Document, after, first)
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

// Would is the message that a condition would be told by.
func Would(c Condition, at time.Time) Message { return began(c, at, 0) }
