package status

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// Pause is pause.json of fleet-role-status: a person's word that no swap and no
// level step shall begin (design §3). A swap under way is ended all the same
// (safety rule 25). It stands until it is taken away.
type Pause struct {
	Protocol int       `json:"protocol"`
	At       time.Time `json:"at"` // the API server's Date
	Reason   string    `json:"reason,omitempty"`
}

// MaxPauseReason is how long a reason may be, in bytes.
const MaxPauseReason = 512

// ParsePause reads pause.json. A pause that cannot be read is still a pause: the
// caller holds what begins and shows the error.
func ParsePause(raw []byte) (Pause, error) {
	var p Pause
	if len(raw) > MaxDocument {
		return p, fmt.Errorf("pause: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return Pause{}, fmt.Errorf("pause: %w", err)
	}
	switch {
	case p.Protocol != Protocol:
		return Pause{}, fmt.Errorf("pause: protocol %d, this program speaks %d", p.Protocol, Protocol)
	case p.At.IsZero():
		return Pause{}, fmt.Errorf("pause: no time")
	}
	if err := CheckPauseReason(p.Reason); err != nil {
		return Pause{}, err
	}
	return p, nil
}

// CheckPauseReason says what is wrong with a person's reason.
func CheckPauseReason(reason string) error {
	if len(reason) > MaxPauseReason {
		return fmt.Errorf("pause: a reason of %d bytes is more than %d", len(reason), MaxPauseReason)
	}
	if !utf8.ValidString(reason) {
		return fmt.Errorf("pause: the reason is not UTF-8")
	}
	for _, c := range reason {
		if c < ' ' || c == 0x7f {
			return fmt.Errorf("pause: the reason has a control character")
		}
	}
	return nil
}

// Words say since when, and why.
func (p Pause) Words() string {
	s := "paused since " + p.At.UTC().Format("2006-01-02 15:04:05Z")
	if p.Reason != "" {
		s += ": " + p.Reason
	}
	return s
}
