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
	// while it was not (safety rule 22). Period is that of the probe.
	Written time.Duration `json:"written,omitempty"`
	Changed bool          `json:"changed,omitempty"`
	Period  time.Duration `json:"period,omitempty"`
	// Problem says why the entry cannot be used.
	Problem string `json:"problem,omitempty"`
	// Ways are the last connects to each host that the newest sample with any
	// connects names.
	Ways []Way `json:"ways,omitempty"`
}

// Way is what a witness last measured of its way to a voter.
type Way struct {
	To string `json:"to"`
	// Connects are the last ones, the newest first, at most WayLength of them.
	Connects []Outcome `json:"connects"`
	// Answered: the host has answered on this way before, as far back as the window goes.
	// From a host that never saw it answer, silence says nothing: a packet filter on the
	// way looks the same.
	Answered bool `json:"answered,omitempty"`
}

// Outcome is what a connect says of the host at its end.
type Outcome string

// Outcomes. A host that refuses runs: its kernel answers, or what stands before it.
const (
	Reached    Outcome = "reached"
	Refused    Outcome = "refused"
	Unanswered Outcome = "unanswered"
	Untold     Outcome = "untold" // it failed, and why says nothing of the host
)

// Witnesses are two, and of each the last three connects must have been left without an
// answer, in samples at most lookBack periods older than the newest. What they say is
// evidence for EvidencePeriods after it was seen to be written: a probe of nine hosts
// writes every eight periods.
const (
	Enough          = 2
	WayLength       = 3
	EvidencePeriods = 8
	lookBack        = 4 * WayLength
	// Look is how many of the newest samples are kept of each entry.
	Look = fitness.DefaultSize
)

func outcome(c fitness.Connect) Outcome {
	switch {
	case !c.Failed:
		return Reached
	case c.Why == fitness.Refused:
		return Refused
	case c.Why == fitness.Unanswered:
		return Unanswered
	}
	return Untold
}

// Ways reads them off a window. The newest sample with a connect says who is measured
// now: a window keeps the names of voters that were swapped out. Samples of long before
// it, as a probe that stood still leaves them, are no part of what was seen on end.
func Ways(w *fitness.Window) []Way {
	var ways []Way
	var newest time.Time
	for i := range slices.Backward(w.Samples) {
		s := &w.Samples[i]
		if len(s.Connect) == 0 {
			continue
		}
		if ways == nil {
			newest = s.At
			for _, c := range s.Connect {
				ways = append(ways, Way{To: c.To})
			}
		}
		late := newest.Sub(s.At) > lookBack*w.Period
		for k := range ways {
			way := &ways[k]
			j := slices.IndexFunc(s.Connect, func(c fitness.Connect) bool { return c.To == way.To })
			if j < 0 {
				continue
			}
			out := outcome(s.Connect[j])
			way.Answered = way.Answered || out == Reached || out == Refused
			if !late && len(way.Connects) < WayLength {
				way.Connects = append(way.Connects, out)
			}
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

// speaks is why a witness says nothing of a host now, empty when it does. Only an entry
// that was seen to change after the Node was first seen silent says anything, and not
// for long: what it holds was measured up to then. Of a probe that is silent itself
// nothing is taken (safety rule 24).
func (w *Witness) speaks(n *Node) string {
	switch {
	case w.Problem != "":
		return "its entry cannot be used"
	case w.way(n.Name) == nil || len(w.way(n.Name).Connects) == 0:
		return "it does not measure it"
	case !w.Live:
		return "its probe is silent"
	case !w.Changed || w.Written >= n.Silent:
		return "not written since"
	case w.Written > EvidencePeriods*w.Period:
		return "written " + seconds(w.Written) + " ago"
	}
	return ""
}

// misses is why the last connects are no evidence that nobody answers, empty when they
// are.
func (w *Way) misses() string {
	switch {
	case slices.Contains(w.Connects, Untold):
		return "it does not say why it failed"
	case len(w.Connects) < WayLength || slices.ContainsFunc(w.Connects, func(o Outcome) bool { return o != Unanswered }):
		return "not for long enough"
	case !w.Answered:
		return "it has not reached it before"
	}
	return ""
}

// evidence is why a host that probes measure is not taken for dead: one of them still
// gets an answer from it, or not two of them have had none since it fell silent. No
// reason is given where there are no probes, and of a host that they do not measure: the
// threshold alone decides then, or a crashed worker would never be recovered. An entry
// that is missing, or does not name the host, is no evidence of anything.
func evidence(n *Node, o *Observation, p Policy) []status.Reason {
	if !p.Evidence || !n.measurable() {
		return nil
	}
	say := func(code, format string, args ...any) []status.Reason {
		return []status.Reason{{Code: code, Node: n.Name, Sentence: fmt.Sprintf(format, args...)}}
	}
	switch {
	case o.WitnessProblem != "":
		return say(CodeWitnessNotRead, "whether %s is unreachable is not known: %s", n.Name, o.WitnessProblem)
	case !o.Probed:
		return nil
	}
	var reach, refuse, miss, rest []string
	for i := range o.Witnesses {
		w := &o.Witnesses[i]
		if w.Node == n.Name {
			continue
		}
		if why := w.speaks(n); why != "" {
			rest = append(rest, w.Node+" ("+why+")")
			continue
		}
		way := w.way(n.Name)
		switch way.Connects[0] {
		case Reached:
			reach = append(reach, w.Node)
			continue
		case Refused:
			refuse = append(refuse, w.Node)
			continue
		}
		if why := way.misses(); why != "" {
			rest = append(rest, w.Node+" ("+why+")")
			continue
		}
		miss = append(miss, w.Node)
	}
	switch {
	case len(reach) > 0:
		return say(CodeStillReached, "%s is still reached by %s: it runs", n.Name, list(reach))
	case len(refuse) > 0:
		return say(CodeStillRefuses, "%s refuses the connects of %s: its kernel answers, so that it runs", n.Name, list(refuse))
	case len(miss) >= Enough:
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
