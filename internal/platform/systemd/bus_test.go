package systemd

import (
	"context"
	"testing"
	"time"
)

// Safety rules 2 and 18: a daemon that stood still sends nothing of what it had
// decided before, though the timer of its context has not run yet. The break check:
// ask the context alone.
func TestNoCallGoesOutAfterItsTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	now := time.Now()
	if err := overdue(ctx, now); err != nil {
		t.Errorf("in time: %v", err)
	}
	if overdue(ctx, now.Add(2*time.Hour)) == nil {
		t.Error("an hour late, and it goes out")
	}
	if err := overdue(t.Context(), now); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}

func TestWhatSystemdSaysOfAUnit(t *testing.T) {
	if s := unitState(map[string]any{"LoadState": "masked"}); s.Loaded || !s.Masked {
		t.Errorf("masked: %+v", s)
	}
	if s := unitState(map[string]any{"LoadState": "loaded"}); !s.Loaded || s.Masked {
		t.Errorf("loaded: %+v", s)
	}
}
