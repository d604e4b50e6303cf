package alert

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Event is what a message tells of a condition.
type Event string

// Events.
const (
	Began Event = "alert"
	Ended Event = "recovery"
)

// Message is one thing to tell a person. Its JSON is what a webhook and a command
// are given; the schema is alert.json in internal/status/schemas.
type Message struct {
	Protocol int `json:"protocol"`
	// ID is the same each time this message is sent: a receiver that has had it may
	// drop it. Two messages never share one.
	ID       string    `json:"id"`
	Event    Event     `json:"event"`
	Kind     Kind      `json:"kind"`
	Subject  string    `json:"subject,omitempty"`
	Severity Severity  `json:"severity"`
	Title    string    `json:"title"`
	Sentence string    `json:"sentence"`
	Since    time.Time `json:"since,omitzero"` // of the condition
	At       time.Time `json:"at,omitzero"`    // of the document that it was seen, or no longer seen, in
}

// Protocol is the version of messages and of the state.
const Protocol = 1

// maxSentence is how long one may be, in bytes.
const maxSentence = 1024

// began is the message of a condition, number n of all that a state has made; born is
// that state's own name.
func began(c Condition, at time.Time, n uint64, born string) Message {
	return Message{
		Protocol: Protocol, ID: id(c, Began, n, born), Event: Began, Kind: c.Kind, Subject: clean(c.Subject), Severity: c.Severity,
		Title: title(c), Sentence: clean(c.Sentence), Since: c.Since, At: at,
	}
}

func ended(c Condition, at time.Time, n uint64, born string) Message {
	m := began(c, at, n, born)
	m.ID, m.Event, m.Title = id(c, Ended, n, born), Ended, "Over: "+m.Title
	m.Sentence = clean("It is over, as of " + stamp(at) + ". It was: " + c.Sentence)
	return m
}

// id has the condition's own time in it, so that the ids of a state that was lost
// and begun anew are not those of other conditions. That no document was ever seen has
// none, and has the state's name in its place: a receiver drops what it has had.
func id(c Condition, e Event, n uint64, born string) string {
	if c.Since.IsZero() && born != "" {
		return clean(fmt.Sprintf("%s-%s-%s-%s-%d", e, c.Kind, c.Subject, born, n))
	}
	return clean(fmt.Sprintf("%s-%s-%s-%s-%d", e, c.Kind, c.Subject, c.Since.UTC().Format("20060102T150405Z"), n))
}

func title(c Condition) string {
	s := map[Kind]string{
		HeartbeatStale:  "fleet health is not heard of",
		FleetUnhealthy:  "the fleet is not vouched for",
		ServerNotReady:  "server " + c.Subject + " is not Ready",
		RoleSwapOverdue: "swap " + c.Subject + " is overdue",
		VotersEven:      "etcd has an even number of voters",
		NoTolerance:     "no etcd voter may fail any more",
	}[c.Kind]
	return clean("regrade: " + s)
}

// clean takes out of a text what could break a line or a header, and bounds it: it
// was written by others.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	if len(s) > maxSentence {
		s = strings.ToValidUTF8(s[:maxSentence-4], "") + " …"
	}
	return s
}
