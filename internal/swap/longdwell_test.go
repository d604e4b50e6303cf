package swap

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// The longest dwell that can be set is thirty days: a swap that ended within it must
// not be forgotten because another one ends.
func TestASwapIsRememberedForTheLongestDwell(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	old := status.PastSwap{ID: "a", Out: "n1", In: "n4", Outcome: fleet.OutcomeCompleted, EndedAt: now.Add(-29 * 24 * time.Hour)}
	s := Concluded(&status.Status{History: []status.PastSwap{old}}, status.LastSwap{ID: "b", Out: "n2", In: "n5", Outcome: fleet.OutcomeCompleted, EndedAt: now}, DefaultPolicy())
	if len(s.History) != 2 {
		t.Errorf("n1 was swapped out 29 days ago and a dwell of 30 days would not hold it: %+v", s.History)
	}
}
