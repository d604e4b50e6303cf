package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// held is everything that holds any swap back now.
func (d *decider) held() []status.Reason {
	rs := append(d.fleetGates(), d.unsettled()...)
	return append(rs, d.restraints()...)
}

// lasting: a voter goes only for what is more than chance or one bad moment. Of a
// bad link that lasts neither end goes because of a bad moment on another one.
func (d *decider) lasting(out *judged) []status.Reason {
	grounds := out.v.Grounds()
	if slices.ContainsFunc(grounds, func(r fitness.Reason) bool { return r.Lasting && r.Peer == "" }) {
		return nil
	}
	if slices.ContainsFunc(grounds, func(r fitness.Reason) bool { return r.Lasting }) {
		return d.stillCause(out)
	}
	so := ""
	if m := grounds[0].Measure; m != nil {
		so = fmt.Sprintf(": so far %s beyond the limit within %s", plural(m.Beyond, "sample"), (time.Duration(m.SpreadMS) * time.Millisecond).Round(time.Second))
	}
	return []status.Reason{{Code: CodeNotLasting, Node: out.Name, Sentence: fmt.Sprintf("%s is unfit, and before it is swapped that has to last%s", out.Name, so)}}
}

// stillCause says why a voter would not be named the cause of the bad links if only
// those that last counted.
func (d *decider) stillCause(out *judged) []status.Reason {
	if out.v.Part != fitness.Cause {
		return nil
	}
	i := slices.IndexFunc(d.voters, func(j *judged) bool {
		return j != out && cmp.Or(cmp.Compare(j.v.LastingLinks, out.v.LastingLinks), cmp.Compare(j.v.Seen, out.v.Seen)) >= 0
	})
	if i < 0 {
		return nil
	}
	return []status.Reason{{Code: CodeNotLasting, Node: out.Name, Sentence: fmt.Sprintf(
		"%s is on more bad links than any other voter, and of those that last %s is on as many (%d): before %s is swapped its other bad links have to last, too",
		out.Name, d.voters[i].Name, d.voters[i].v.LastingLinks, out.Name)}}
}

// fleetGates: the fleet is one that may be swapped in at all.
func (d *decider) fleetGates() []status.Reason {
	rs := CheckTarget(d.p.Target, d.eligible, d.p.MaxServers)
	say := func(code, format string, args ...any) {
		rs = append(rs, status.Reason{Code: code, Sentence: fmt.Sprintf(format, args...)})
	}
	if d.o.UnderWay != "" {
		say(swap.CodeOtherSwap, "the swap %s is under way", d.o.UnderWay)
	}
	switch n := len(d.voters); {
	case !d.o.VotersKnown:
		say(swap.CodeNoLists, "fresh member lists do not agree on who votes")
	case n%2 == 0:
		say(swap.CodeEvenVoters, "etcd has %d voters, an even number", n)
	case n != d.p.Target:
		say(swap.CodeVoterCount, "etcd has %d voters, %d are wanted", n, d.p.Target)
	}
	for _, h := range d.o.Hosts {
		if h.Member && !h.Votes {
			rs = append(rs, status.Reason{Code: swap.CodeLearner, Node: h.Name, Sentence: fmt.Sprintf("the member of %s is a learner", h.Name)})
		}
	}
	slices.SortStableFunc(rs, func(a, b status.Reason) int { return cmp.Compare(a.Node, b.Node) })
	return append(rs, slices.SortedFunc(slices.Values(d.o.Held), func(a, b status.Reason) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Sentence, b.Sentence))
	})...)
}

// unsettled are voters that cannot be judged, each with its first reason: a
// silent one foremost (R-185-20, R-228-25), and those that began anew lately
// (R-X-11).
func (d *decider) unsettled() []status.Reason {
	var rs []status.Reason
	for _, j := range d.voters {
		i := slices.IndexFunc(j.v.Reasons, func(r fitness.Reason) bool {
			return j.v.Fitness == fitness.Unknown && r.Weight == fitness.Gap || r.Weight == fitness.Bar
		})
		if i >= 0 {
			rs = append(rs, reasons(j.Name, j.v.Reasons[i:i+1])...)
		}
	}
	return rs
}

// day is what the limit of automatic swaps is about.
const day = 24 * time.Hour

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// restraints are how often and when.
func (d *decider) restraints() []status.Reason {
	var rs []status.Reason
	say := func(code, format string, args ...any) {
		rs = append(rs, status.Reason{Code: code, Sentence: fmt.Sprintf(format, args...)})
	}
	if p := d.o.Paused; p != nil {
		why := ""
		if *p != "" {
			why = ": " + *p
		}
		say(CodePaused, "regrade is paused%s", why)
	}
	switch until := d.o.CooldownUntil; {
	case d.o.StatusMissing:
		say(CodeCooldown, "the status is missing: a cooldown starts")
	case d.o.Now.Before(until):
		say(CodeCooldown, "the cooldown ends at %s, in %s", until.UTC().Format("15:04:05"), until.Sub(d.o.Now).Round(time.Second))
	}
	if lost := d.o.HistoryLost; !lost.IsZero() {
		// Any number of swaps may have ended before, and any host may have been in one:
		// what limits them counts as reached until none of them would count any more.
		if until := lost.Add(max(day, d.p.Dwell)); d.o.Now.Before(until) {
			say(CodeLost, "the status was lost: which swaps ended before %s is not known, and none is made by itself before %s", stamp(lost), stamp(until))
		}
	}
	n := 0
	for _, s := range d.recent(day) {
		if !s.Manual && s.Outcome != fleet.OutcomeAbandoned {
			n++
		}
	}
	if n >= d.p.MaxPerDay {
		say(CodeEnough, "%s by itself ended in the last 24 hours, at most %d may", plural(n, "swap"), d.p.MaxPerDay)
	}
	return rs
}

// zones says why a swap would lower the spread of the voters: fewer zones, or
// more voters in one. Hosts without the label are in one zone together.
func (d *decider) zones(out, in *judged) string {
	count := func(with, without string) (zones, most int) {
		n := map[string]int{}
		for _, j := range d.voters {
			if j.Name != without {
				n[j.Zone]++
			}
		}
		if with != "" {
			n[in.Zone]++
		}
		for _, c := range n {
			most = max(most, c)
		}
		return len(n), most
	}
	before, mostBefore := count("", "")
	after, mostAfter := count(in.Name, out.Name)
	switch {
	case after < before:
		return fmt.Sprintf("%s in zone %q for %s in zone %q would leave the voters in %d zones, they are in %d", in.Name, in.Zone, out.Name, out.Zone, after, before)
	case mostAfter > mostBefore:
		return fmt.Sprintf("%s in zone %q for %s in zone %q would put %d voters into one zone, there are at most %d now", in.Name, in.Zone, out.Name, out.Zone, mostAfter, mostBefore)
	}
	return ""
}
