package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// The fault-free swap in every order, then one fault at the beginning
// of every beat, walked to its end in one order: what a build has time for.
// REGRADE_SIM_WALK walks more; docs/testing.md says what is walked and what not.
func TestTheSmallCaseIsWalked(t *testing.T) {
	if spec := os.Getenv("REGRADE_SIM_WALK"); spec != "" {
		t.Skip("TestTheWholeSmallCaseIsWalked walks it")
	}
	if underRace {
		t.Skip("one goroutine, and ten times as long")
	}
	k, err := newWalk(swap.Next)
	if err != nil {
		t.Fatal(err)
	}
	k.bursts, k.budget = true, 1
	k.faults = slices.DeleteFunc(walkFaults(), func(f walkFault) bool { return !slices.Contains(everyBuild, f.name) })
	k.run(t)
}

// everyBuild are the faults of the walk that a build makes.
var everyBuild = []string{"crash of s1, short"}

// REGRADE_SIM_WALK is faults,orders,within,anywhere,fine, for example 1,2,0,0,0:
// how many faults; for how many beats after one all orders are walked; within how
// many beats the second follows the first; whether faults strike between any two
// passes; whether processes pass action by action.
func TestTheWholeSmallCaseIsWalked(t *testing.T) {
	spec := os.Getenv("REGRADE_SIM_WALK")
	if spec == "" {
		t.Skip("REGRADE_SIM_WALK is not set: see docs/testing.md")
	}
	var anywhere, fine int
	k, err := newWalk(swap.Next)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(spec, "%d,%d,%d,%d,%d", &k.budget, &k.orders, &k.within, &anywhere, &fine); err != nil || k.budget > 2 {
		t.Fatalf("REGRADE_SIM_WALK=%q: %v", spec, err)
	}
	k.anywhere, k.bursts, k.faults = anywhere > 0, fine == 0, walkFaults()
	if only := os.Getenv("REGRADE_SIM_WALK_FAULTS"); only != "" {
		names := strings.Split(only, ";")
		k.faults = slices.DeleteFunc(k.faults, func(f walkFault) bool { return !slices.Contains(names, f.name) })
		if len(k.faults) != len(names) {
			t.Fatalf("REGRADE_SIM_WALK_FAULTS=%q: not each is a fault of the walk", only)
		}
	}
	if l := os.Getenv("REGRADE_SIM_WALK_LIMIT"); l != "" {
		if k.limit, err = time.ParseDuration(l); err != nil {
			t.Fatal(err)
		}
	}
	k.run(t)
	if k.stopped {
		t.Error("the limit was reached: not everything was walked")
	}
}

// The break check: a walk that cannot fail proves nothing. A swap said to be
// completed while its newcomer is a learner is found, with the way that leads there.
func TestTheWalkFindsWhatABrokenRuleDoes(t *testing.T) {
	k, err := newWalk(func(o swap.Observation, p swap.Policy) swap.Decision {
		d := swap.Next(o, p)
		if d.Row == "LearnerWait" {
			d.Action = swap.Action{Kind: swap.Conclude, Swap: d.Swap.ID, Last: &status.LastSwap{
				ID: d.Swap.ID, Out: d.Swap.Out, In: d.Swap.In, Outcome: fleet.OutcomeCompleted, EndedAt: o.Now,
			}}
		}
		return d
	})
	if err != nil {
		t.Fatal(err)
	}
	k.bursts = true
	k.explore(k.digest())
	if len(k.wrong) != 1 || !strings.Contains(k.wrong[0], string(Exchanged)) {
		t.Errorf("%d states, found %q", k.states, k.wrong)
	}
}

// The same state has the same digest however it was reached, and what was put back
// is what was frozen.
func TestAThawedSystemIsTheOneThatWasFrozen(t *testing.T) {
	k, err := newWalk(swap.Next)
	if err != nil {
		t.Fatal(err)
	}
	k.bursts = true
	before := k.digest()
	here := k.freezer.freeze(k.w, k.boss, k.daemons[0], k.daemons[1], k.daemons[2], k.daemons[3])
	pos := k.pos
	var first []digest
	for range 3 {
		var ds []digest
		for range 12 {
			for i := range processes {
				k.pass(i)
			}
			k.beat()
			ds = append(ds, k.digest())
		}
		if first == nil {
			first = ds
		}
		if !slices.Equal(first, ds) || slices.Contains(ds, before) {
			t.Fatalf("the same moves lead elsewhere: %x, then %x", first, ds)
		}
		k.freezer.thaw(here)
		k.pos = pos
		if d := k.digest(); d != before {
			t.Fatalf("thawed %x, frozen %x", d, before)
		}
	}
}

func (k *walk) run(t *testing.T) {
	began := spent()
	k.explore(k.digest())
	t.Logf("%d states (%d without a fault, %d with one, %d with two), %d steps, %d beats deep, %s of processor time; ends: %v",
		k.states, k.byFaults[0], k.byFaults[1], k.byFaults[2], k.steps, k.deepest, (spent() - began).Round(time.Second), k.outcomes)
	for _, s := range k.wrong {
		t.Error(s)
	}
}
