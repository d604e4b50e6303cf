package status

import (
	"encoding/json"
	"fmt"
)

// ParseOutcome reads how a swap ended from the Lease's annotation: a LastSwap.
func ParseOutcome(raw string) (LastSwap, error) {
	var l LastSwap
	if len(raw) > MaxDocument {
		return l, fmt.Errorf("outcome: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal([]byte(raw), &l); err != nil {
		return LastSwap{}, fmt.Errorf("outcome: %w", err)
	}
	if l.ID == "" || l.Outcome == "" {
		return LastSwap{}, fmt.Errorf("outcome: it names no swap, or no outcome")
	}
	return l, nil
}
