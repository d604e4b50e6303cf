package sim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
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
	if err := k.choose(everyBuild); err != nil {
		t.Fatal(err)
	}
	k.run(t)
}

// everyBuild are the faults of the walk that a build makes.
const everyBuild = "crash of s1, short"

// REGRADE_SIM_WALK says how much is walked: see docs/testing.md.
func TestTheWholeSmallCaseIsWalked(t *testing.T) {
	spec := os.Getenv("REGRADE_SIM_WALK")
	if spec == "" {
		t.Skip("REGRADE_SIM_WALK is not set: see docs/testing.md")
	}
	k, err := newWalk(swap.Next)
	if err != nil {
		t.Fatal(err)
	}
	k.bursts, k.more = true, 20
	if err := k.set(spec); err != nil {
		t.Fatalf("REGRADE_SIM_WALK=%q: %v", spec, err)
	}
	if err := k.choose(cmp.Or(os.Getenv("REGRADE_SIM_WALK_FAULTS"), theSet)); err != nil {
		t.Fatalf("REGRADE_SIM_WALK_FAULTS: %v", err)
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

// set reads what is to be walked, such as "faults=2 orders=1,0 within=3 fine".
func (k *walk) set(spec string) error {
	for word := range strings.FieldsSeq(spec) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "faults":
			k.budget, err = strconv.Atoi(value)
		case "within":
			k.within, err = strconv.Atoi(value)
		case "orders":
			for i, v := range strings.Split(value, ",") {
				if i < faultsMax && err == nil {
					k.orders[i+1], err = strconv.Atoi(v)
				}
			}
		case "line":
			k.orders[0] = 0
		case "anywhere":
			k.anywhere = true
		case "fine":
			k.bursts = false
		case "plain":
			k.plain = true
		case "heads":
			k.heads = true
		default:
			err = errors.New("no such word")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	if k.budget > faultsMax || k.orders[2] > k.orders[1] && k.budget > 1 {
		return errors.New("two faults at most, and no more orders after the second")
	}
	return nil
}

const (
	theSet   = "the set"
	theOther = "the others"
)

// choose says which faults strike, by their names, with semicolons between them: for
// example "power cut;crash of s1, short", or "the others>the set" where the second
// shall be one of others than the first.
func (k *walk) choose(names string) error {
	first, second, apart := strings.Cut(names, ">")
	if !apart {
		second = first
	}
	k.apart = apart
	for i, names := range []string{first, second} {
		k.faults[i] = nil
		for name := range strings.SplitSeq(names, ";") {
			switch name {
			case theSet:
				k.faults[i] = append(k.faults[i], walkFaults()...)
				continue
			case theOther:
				k.faults[i] = append(k.faults[i], moreWalkFaults()...)
				continue
			}
			all := append(walkFaults(), moreWalkFaults()...)
			at := slices.IndexFunc(all, func(f walkFault) bool { return f.name == name })
			if at < 0 {
				return fmt.Errorf("%q is no fault of the walk", name)
			}
			k.faults[i] = append(k.faults[i], all[at])
		}
	}
	return nil
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
	k.whole()
	if len(k.wrong) != 1 || !strings.Contains(k.wrong[0], string(Exchanged)) {
		t.Errorf("%d states, found %q", k.states, k.wrong)
	}
}

// A rule that matters only when two things fail: a candidate that falls is taken back,
// and then the order for that is lost. Whoever takes the lost order for the end of the
// rollback leaves a member behind. No walk of one fault can find it.
func TestTheWalkOfTwoFaultsFindsWhatNoWalkOfOneDoes(t *testing.T) {
	if underRace {
		t.Skip("one goroutine, and ten times as long")
	}
	for faults, finds := range []bool{1: false, 2: true} {
		if faults == 0 {
			continue
		}
		k, err := newWalk(func(o swap.Observation, p swap.Policy) swap.Decision {
			d := swap.Next(o, p)
			if d.Row == "RollbackLost" {
				d.Action = swap.Action{Kind: swap.Conclude, Swap: d.Swap.ID, Last: &status.LastSwap{
					ID: d.Swap.ID, Out: d.Swap.Out, In: d.Swap.In, Outcome: fleet.OutcomeRolledBack, EndedAt: o.Now,
				}}
			}
			return d
		})
		if err != nil {
			t.Fatal(err)
		}
		k.bursts, k.budget = true, faults
		k.orders[0] = 0 // one order is enough to find it
		if err := k.choose("crash of s1, short;order of s1 deleted"); err != nil {
			t.Fatal(err)
		}
		k.whole()
		if found := len(k.wrong) == 1 && strings.Contains(k.wrong[0], string(AsBefore)); found != finds {
			t.Errorf("%d faults: %d states, found %q", faults, k.states, k.wrong)
		}
		t.Logf("%d faults: %d states, found %q", faults, k.states, k.wrong)
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
	k.sumAll()
	before, _ := k.digest()
	here := k.freeze()
	var first []digest
	for range 3 {
		var ds []digest
		for range 12 {
			for i := range processes {
				k.pass(i)
			}
			k.oneBeat()
			k.sumAll()
			d, _ := k.digest()
			ds = append(ds, d)
		}
		if first == nil {
			first = ds
		}
		if !slices.Equal(first, ds) || slices.Contains(ds, before) {
			t.Fatalf("the same moves lead elsewhere: %x, then %x", first, ds)
		}
		k.thaw(here)
		k.sumAll()
		if d, _ := k.digest(); d != before {
			t.Fatalf("thawed %x, frozen %x", d, before)
		}
	}
}

func (k *walk) run(t *testing.T) {
	k.tell = func(when string) {
		t.Logf("%s: %d states (%d without a fault, %d with one, %d with two; %d the beginning of a beat), %d passes, %d beats deep, %s of processor time; ends: %v",
			when, k.states, k.byFaults[0], k.byFaults[1], k.byFaults[2], k.beats, k.steps, k.deepest, (spent() - k.began).Round(time.Second/10), k.outcomes)
	}
	k.whole()
	k.tell("walked")
	for _, s := range k.examples {
		t.Log(s)
	}
	for _, s := range k.wrong {
		t.Error(s)
	}
}
