package sim

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/exadev/regrade/internal/swap"
)

// The short cuts (docs/testing.md) leave out what leads nowhere new: with them and
// without the walk comes to the same states at the beginnings of beats, and to the
// same ends.
func TestShortCutsLeadToTheSameStates(t *testing.T) {
	if underRace {
		t.Skip("one goroutine, and ten times as long")
	}
	for _, c := range []struct {
		spec, faults string
	}{
		{"faults=1 orders=1 line", "crash of s1, short;lease taken by another"},
		{"faults=2 within=3 line", "lease taken by another"},
	} {
		c.spec, c.faults = cmp.Or(os.Getenv("REGRADE_SIM_WALK"), c.spec), cmp.Or(os.Getenv("REGRADE_SIM_WALK_FAULTS"), c.faults)
		walks := map[bool]*walk{}
		for _, plain := range []bool{true, false} {
			k, err := newWalk(swap.Next)
			if err != nil {
				t.Fatal(err)
			}
			k.bursts, k.seen = true, map[digest]bool{}
			if err := errors.Join(k.choose(c.faults), k.set(c.spec)); err != nil {
				t.Fatal(err)
			}
			k.plain = plain
			k.run(t)
			walks[plain] = k
		}
		long, short := walks[true], walks[false]
		for d := range long.seen {
			if !short.seen[d] {
				t.Errorf("%s: a state is not reached with the short cuts", c.spec)
				break
			}
		}
		if len(long.seen) != len(short.seen) {
			t.Errorf("%s: %d states at the beginnings of beats, %d with the short cuts", c.spec, len(long.seen), len(short.seen))
		}
		if l, s := slices.Sorted(maps.Keys(long.outcomes)), slices.Sorted(maps.Keys(short.outcomes)); !slices.Equal(l, s) {
			t.Errorf("%s: ends %q, with the short cuts %q", c.spec, l, s)
		}
	}
}
