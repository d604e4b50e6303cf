package recover_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fitness"
	. "github.com/exadev/regrade/internal/recover"
)

// The newest sample with connects says who is measured now, the last three how it
// went.
func TestTheLastConnectsAreReadOffAWindow(t *testing.T) {
	ok := func(to string) fitness.Connect { return fitness.Connect{To: to, Took: time.Millisecond} }
	bad := func(to string) fitness.Connect { return fitness.Connect{To: to, Failed: true} }
	for name, c := range map[string]struct {
		samples [][]fitness.Connect // oldest first
		want    []Way
	}{
		"no samples":                  {nil, nil},
		"a host that measures nobody": {[][]fitness.Connect{nil, nil}, nil},
		"the newest first": {
			[][]fitness.Connect{{bad("a")}, {ok("a")}, {ok("a")}, {bad("a")}},
			[]Way{{To: "a", Failed: []bool{true, false, false}}},
		},
		"a sample without connects is passed over": {
			[][]fitness.Connect{{bad("a")}, {bad("a")}, nil, {bad("a")}, nil},
			[]Way{{To: "a", Failed: []bool{true, true, true}}},
		},
		"one that was measured earlier is not": {
			[][]fitness.Connect{{bad("a"), bad("b")}, {bad("b")}},
			[]Way{{To: "b", Failed: []bool{true, true}}},
		},
		"one that is new": {
			[][]fitness.Connect{{bad("b")}, {bad("b")}, {bad("b")}, {bad("a"), ok("b")}},
			[]Way{{To: "a", Failed: []bool{true}}, {To: "b", Failed: []bool{false, true, true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fitness.Window{}
			for _, s := range c.samples {
				w.Samples = append(w.Samples, fitness.Sample{Connect: s})
			}
			if diff := cmp.Diff(c.want, Ways(&w)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
