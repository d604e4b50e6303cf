package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/sleep"
)

func TestASleepEndsWithItsTimeOrItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		ends, sleeps, took time.Duration
		slept              bool
	}{
		"its time":                      {time.Hour, time.Minute, time.Minute, true},
		"its context":                   {time.Second, time.Minute, time.Second, false},
		"a context that ended before":   {0, time.Minute, 0, false},
		"no time":                       {time.Hour, 0, 0, true},
		"no time, and an ended context": {0, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				if slept := sleep.For(ctx, c.sleeps); slept != c.slept || time.Since(began) != c.took {
					t.Errorf("slept %t, for %s", slept, time.Since(began))
				}
			})
		})
	}
}
