package recover_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fitness"
	. "github.com/exadev/regrade/internal/recover"
)

// The newest sample with connects says who is measured now, the last three how it
// went, and all of them whether the host ever answered.
func TestTheLastConnectsAreReadOffAWindow(t *testing.T) {
	ok := func(to string) fitness.Connect { return fitness.Connect{To: to, Took: time.Millisecond} }
	bad := func(to string) fitness.Connect { return fitness.Connect{To: to, Failed: true, Why: fitness.Unanswered} }
	no := func(to string) fitness.Connect { return fitness.Connect{To: to, Failed: true, Why: fitness.Refused} }
	odd := func(to string) fitness.Connect { return fitness.Connect{To: to, Failed: true} }
	for name, c := range map[string]struct {
		samples [][]fitness.Connect // oldest first
		want    []Way
	}{
		"no samples":                  {nil, nil},
		"a host that measures nobody": {[][]fitness.Connect{nil, nil}, nil},
		"the newest first": {
			[][]fitness.Connect{{bad("a")}, {ok("a")}, {no("a")}, {bad("a")}},
			[]Way{{To: "a", Connects: []Outcome{Unanswered, Refused, Reached}, Answered: true}},
		},
		"a failure that says nothing": {[][]fitness.Connect{{odd("a")}}, []Way{{To: "a", Connects: []Outcome{Untold}}}},
		"a sample without connects is passed over": {
			[][]fitness.Connect{{bad("a")}, {bad("a")}, nil, {bad("a")}, nil},
			[]Way{{To: "a", Connects: []Outcome{Unanswered, Unanswered, Unanswered}}},
		},
		"an answer of long ago is one": {
			append([][]fitness.Connect{{ok("a")}}, slices.Repeat([][]fitness.Connect{{bad("a")}}, 50)...),
			[]Way{{To: "a", Connects: []Outcome{Unanswered, Unanswered, Unanswered}, Answered: true}},
		},
		"a refusal is an answer": {
			[][]fitness.Connect{{no("a")}, {bad("a")}, {bad("a")}, {bad("a")}},
			[]Way{{To: "a", Connects: []Outcome{Unanswered, Unanswered, Unanswered}, Answered: true}},
		},
		"what came before the probe stood still was not on end": {
			append(append([][]fitness.Connect{{bad("a")}, {bad("a")}}, slices.Repeat([][]fitness.Connect{nil}, 12)...), []fitness.Connect{bad("a")}),
			[]Way{{To: "a", Connects: []Outcome{Unanswered}}},
		},
		"one that was measured earlier is not": {
			[][]fitness.Connect{{bad("a"), bad("b")}, {bad("b")}},
			[]Way{{To: "b", Connects: []Outcome{Unanswered, Unanswered}}},
		},
		"one that is new": {
			[][]fitness.Connect{{bad("b")}, {bad("b")}, {bad("b")}, {bad("a"), ok("b")}},
			[]Way{{To: "a", Connects: []Outcome{Unanswered}}, {To: "b", Connects: []Outcome{Reached, Unanswered, Unanswered}, Answered: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fitness.Window{Period: 15 * time.Second}
			for i, s := range c.samples {
				w.Samples = append(w.Samples, fitness.Sample{At: now.Add(time.Duration(i) * w.Period), Connect: s})
			}
			if diff := cmp.Diff(c.want, Ways(&w)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
