package sim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// badInput are the kinds of fault of issue 3's section "Bad input", and how long each
// lasts: an API that is slow or refuses, a clock that is off, a report with values from
// the future, a daemon of an older version.
var badInput = map[string]time.Duration{
	"API refuses the controller":        60 * time.Second,
	"API refuses the controller a part": 60 * time.Second,
	"API refuses a daemon":              60 * time.Second,
	"API is slow for the controller":    180 * time.Second,
	"API is slow for a daemon":          60 * time.Second,
	"clock steps":                       20 * time.Second, // by 400 s
	"an API server's clock is off":      20 * time.Second, // the same, of a voter
	"report from the future":            0,
	"older daemon":                      40 * time.Second,
}

// Issue 3, bad input: each kind strikes in each state of a swap, on the host going out,
// the one coming in and one that stays in turn. The invariants hold after every event, and
// the swap ends and leaves nothing behind.
func TestBadInputInEachStateOfASwap(t *testing.T) {
	states := []swap.State{
		swap.Prepare, swap.Wait, swap.TakeSnapshot, swap.Recheck, swap.Promote, swap.Settle, swap.DrainOut, swap.StepDown, swap.Remove, swap.Finish, swap.End,
	}
	hosts := []string{"v1", "s1", "v2"}
	for kind, lasts := range badInput {
		t.Run(kind, func(t *testing.T) {
			for i, at := range states {
				f := fault{At: at, After: i % 3, Kind: kind, Host: hosts[i%3], For: lasts, Effect: i % 8}
				again := f
				again.At, again.After, again.Host, again.Effect = "", 3+i, hosts[(i+1)%3], (i+3)%8
				p := plan{Voters: 3, Standbys: 1, Seed: uint64(i + 1), Out: "v1", In: "s1", Faults: []fault{f, again}}
				synctest.Test(t, func(t *testing.T) {
					r, wrong := live(p)
					for _, s := range wrong {
						t.Error(fmt.Sprint(f, ": ", s))
					}
					if got := r.outcome(); got == "not begun" || got == "none" {
						t.Errorf("%s: the swap is %s", f, got)
					}
				})
			}
		})
	}
}
