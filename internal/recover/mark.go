package recover

import (
	"fmt"
	"time"
)

// FormatMark is the value of our mark: the API server's Date at the taint.
func FormatMark(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// ParseMark reads one. Anything else than a time in RFC 3339 is refused.
func ParseMark(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	t = t.UTC() // which may be a year on
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, fmt.Errorf("%q is no time like 2026-11-30T12:00:00Z", s)
	}
	return t, nil
}
