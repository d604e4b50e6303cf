package recover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/status"
)

// Witness is a host with an entry among the probes'.
type Witness struct {
	Node string `json:"node"`
	// Live: its probe was seen to go on within three of its periods.
	Live bool `json:"live,omitempty"`
	// Written is how long ago the entry was seen to change, by the own clock, zero
	// while it was not (safety rule 22).
	Written time.Duration `json:"written,omitempty"`
	Changed bool          `json:"changed,omitempty"`
	// Problem says why the entry cannot be used.
	Problem string `json:"problem,omitempty"`
	// Ways are the last connects to each host that the newest sample with any
	// connects names, the newest first, at most WayLength of them.
	Ways []Way `json:"ways,omitempty"`
}

// Way is what a witness last measured of its way to a voter.
type Way struct {
	To     string `json:"to"`
	Failed []bool `json:"failed"`
}

// Witnesses are two, and each must have failed to connect three times on end.
const (
	Enough    = 2
	WayLength = 3
	// Look is how many of the newest samples are looked at: some may have no connects.
	Look = 4 * WayLength
)

// Ways reads them off a window. The newest sample with a connect says who is measured
// now: a window keeps the names of voters that were swapped out.
func Ways(w *fitness.Window) []Way {
	var ways []Way
	for i := range slices.Backward(w.Samples) {
		connects := w.Samples[i].Connect
		if len(connects) == 0 {
			continue
		}
		if ways == nil {
			for _, c := range connects {
				ways = append(ways, Way{To: c.To, Failed: []bool{c.Failed}})
			}
			continue
		}
		more := false
		for k := range ways {
			way := &ways[k]
			if len(way.Failed) == WayLength {
				continue
			}
			more = true
			if j := slices.IndexFunc(connects, func(c fitness.Connect) bool { return c.To == way.To }); j >= 0 {
				way.Failed = append(way.Failed, connects[j].Failed)
			}
		}
		if !more {
			break
		}
	}
	return ways
}

func (w *Witness) way(to string) *Way {
	for i := range w.Ways {
		if w.Ways[i].To == to {
			return &w.Ways[i]
		}
	}
	return nil
}

// evidence is why a host that probes measure is not taken for dead: one of them still
// reaches it, or not two of them have found it unreachable since it fell silent. No
// reason is given where nobody measures it: the threshold alone decides then, or a
// crashed worker would never be recovered.
//
// Only an entry that was seen to change after the Node was first seen silent says
// anything: what it holds then was measured up to then. Of a probe that is silent
// itself nothing is taken (safety rule 24).
func evidence(n *Node, o *Observation, p Policy) []status.Reason {
	if !p.Evidence || !n.measurable() {
		return nil
	}
	say := func(code, format string, args ...any) []status.Reason {
		return []status.Reason{{Code: code, Node: n.Name, Sentence: fmt.Sprintf(format, args...)}}
	}
	if o.WitnessProblem != "" {
		return say(CodeWitnessNotRead, "whether %s is unreachable is not known: %s", n.Name, o.WitnessProblem)
	}
	measured := false
	var reach, miss, rest []string
	for i := range o.Witnesses {
		w := &o.Witnesses[i]
		if w.Node == n.Name {
			continue
		}
		way := w.way(n.Name)
		if way == nil && w.Problem == "" {
			continue // it measures others
		}
		measured = true
		switch {
		case w.Problem != "":
			rest = append(rest, w.Node+" (its entry cannot be used)")
		case !w.Live:
			rest = append(rest, w.Node+" (its probe is silent)")
		case !w.Changed || w.Written >= n.Silent:
			rest = append(rest, w.Node+" (not written since)")
		case !way.Failed[0]:
			reach = append(reach, w.Node)
		case len(way.Failed) < WayLength || slices.Contains(way.Failed, false):
			rest = append(rest, w.Node+" (not for long enough)")
		default:
			miss = append(miss, w.Node)
		}
	}
	switch {
	case len(reach) > 0:
		return say(CodeStillReached, "%s is still reached by %s: it runs", n.Name, list(reach))
	case !measured || len(miss) >= Enough:
		return nil
	}
	s := fmt.Sprintf("%s is found unreachable by %d other hosts, %d are wanted", n.Name, len(miss), Enough)
	if len(miss) > 0 {
		s += "; by " + list(miss)
	}
	if len(rest) > 0 {
		s += "; not by " + list(rest)
	}
	return say(CodeTooFewWitness, "%s", s)
}

func list(names []string) string {
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Silence is how long a probe of a period may say nothing.
func Silence(period time.Duration) time.Duration { return 3 * period }
