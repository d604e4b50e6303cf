package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Decide is the swap that the verdicts ask for, or each reason why there is none.
// It never acts on what is unknown: a voter without a verdict holds every swap,
// a standby without one does not come in.
//
// Of the unfit voters the one on the most bad links goes; then the one that more
// standbys find bad to reach; then the one with the worst margin; then by name.
// Of the fit standbys the one comes that has the best margin against the voters
// that would remain, in tenths of the limit; wired before unseen; then the exact
// margin; then by name.
func Decide(o Observation, p Policy) Decision {
	d := newDecider(&o, p)
	if len(d.unfit) == 0 {
		return d.nothing()
	}
	if len(d.unfit) > max(p.MaxUnfit, 1) {
		return d.common()
	}
	out := d.unfit[0]
	against := d.outgoing(out)
	if len(against) > 0 {
		return d.decision(CodeOutBarred, fmt.Sprintf("%s should go and may not; no other voter goes in its place", out.Name), against)
	}
	in := d.choose(out)
	if in == nil {
		return d.noCandidate(out)
	}
	pair := swap.Pair{Out: out.Name, In: in.Name}
	held := append(d.lasting(out), d.held()...)
	held = append(held, d.gatesOf(pair, false)...)
	d.out.Would = &pair
	if len(held) > 0 {
		return d.decision(CodeHeld, fmt.Sprintf("%s would be swapped for %s: %s", out.Name, in.Name, d.why(out, in)), held)
	}
	d.out.Pair = &pair
	return d.decision(CodeSwap, fmt.Sprintf("%s is to be swapped for %s: %s", out.Name, in.Name, d.why(out, in)), nil)
}

// judged is a host with its verdict.
type judged struct {
	Host
	v      fitness.Verdict
	margin float64 // of a candidate, against the voters that would remain
}

type decider struct {
	o *Observation
	p Policy

	voters   []*judged // by name
	standbys []*judged // eligible and no voter, by name
	unfit    []*judged // voters, the first to go first
	eligible int
	out      Decision
}

func newDecider(o *Observation, p Policy) *decider {
	d := &decider{o: o, p: p}
	verdicts := make(map[string]*fitness.Verdict, len(o.Verdicts))
	for i := range o.Verdicts {
		verdicts[o.Verdicts[i].Node] = &o.Verdicts[i]
	}
	for _, h := range o.Hosts {
		if h.Eligible {
			d.eligible++
		}
		if !h.Votes && !h.Eligible {
			continue
		}
		j := &judged{Host: h, v: fitness.Verdict{Node: h.Name, Votes: h.Votes, Fitness: fitness.Unknown, Reasons: []fitness.Reason{{
			Code: CodeNoVerdict, Weight: fitness.Gap, Sentence: "there is no verdict on " + h.Name,
		}}}}
		if v := verdicts[h.Name]; v != nil && v.Votes == h.Votes {
			j.v = *v
		}
		if h.Votes {
			d.voters = append(d.voters, j)
		} else {
			d.standbys = append(d.standbys, j)
		}
	}
	byName := func(a, b *judged) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(d.voters, byName)
	slices.SortFunc(d.standbys, byName)
	for _, j := range d.voters {
		if j.v.Fitness == fitness.Unfit && len(j.v.Grounds()) > 0 {
			d.unfit = append(d.unfit, j)
		}
	}
	slices.SortStableFunc(d.unfit, func(a, b *judged) int {
		return cmp.Or(cmp.Compare(b.v.BadLinks, a.v.BadLinks), cmp.Compare(b.v.Seen, a.v.Seen), cmp.Compare(b.v.Margin, a.v.Margin))
	})
	for _, j := range d.unfit {
		d.out.Voters = append(d.out.Voters, ranked(j, j.v.Margin, reasons(j.Name, j.v.Grounds())))
	}
	return d
}

func ranked(j *judged, margin float64, rs []status.Reason) Ranked {
	return Ranked{Node: j.Name, BadLinks: j.v.BadLinks, Seen: j.v.Seen, Margin: margin, Link: j.v.Link, Reasons: rs}
}

func (d *decider) decision(code, sentence string, rs []status.Reason) Decision {
	d.out.Code, d.out.Sentence, d.out.Reasons = code, sentence, rs
	return d.out
}

func (d *decider) nothing() Decision {
	rs, unsettled := d.fleetGates(), d.unsettled()
	switch {
	case len(d.voters) == 0:
		return d.decision(CodeNothing, "who votes is not known: nothing is swapped", rs)
	case len(unsettled) > 0:
		return d.decision(CodeNothing, fmt.Sprintf("no voter is known to be unfit, and not all of the %d are known to be fit", len(d.voters)), append(rs, unsettled...))
	case d.eligible == 0:
		return d.decision(CodeNoneEligible, "no host is marked eligible: regrade only reports", rs)
	}
	return d.decision(CodeNothing, fmt.Sprintf("all %d voters are fit", len(d.voters)), rs)
}

// common: several voters that turn unfit at once have rarely each their own
// fault, and a swap adds load to what they share.
func (d *decider) common() Decision {
	names := make([]string, len(d.unfit))
	for i, j := range d.unfit {
		names[i] = j.Name
	}
	sentence := fmt.Sprintf("%d of %d voters are unfit at once (%s) and at most %d may be (setting max-unfit): a common cause is likely, nothing is swapped",
		len(d.unfit), len(d.voters), strings.Join(names, ", "), max(d.p.MaxUnfit, 1))
	if !slices.ContainsFunc(d.unfit, func(j *judged) bool { return j.v.Part != fitness.Suspect }) {
		sentence = fmt.Sprintf("the links between %s are bad and which end is the cause cannot be told; nothing is swapped (setting max-unfit)", strings.Join(names, ", "))
	}
	return d.decision(CodeCommonCause, sentence, append(d.fleetGates(), d.unsettled()...))
}

// outgoing is what keeps a voter from going. No other goes in its place: the
// ranking says that it is the cause (R-185-22).
func (d *decider) outgoing(out *judged) []status.Reason {
	var rs []status.Reason
	say := func(code, format string) {
		rs = append(rs, status.Reason{Code: code, Node: out.Name, Sentence: fmt.Sprintf(format, out.Name)})
	}
	if out.Pinned {
		say(swap.CodePinned, "%s is pinned")
	}
	if !out.Eligible {
		say(swap.CodeIneligible, "%s is not eligible: it could not be brought back")
	}
	if out.Cordoned {
		say(swap.CodeOperatorCordon, "%s was cordoned by somebody: it is being worked on")
	}
	return rs
}

// choose ranks the candidates and gives the best that nothing speaks against.
func (d *decider) choose(out *judged) *judged {
	var fit []*judged
	var barred []Ranked
	for _, j := range d.standbys {
		rs := d.candidate(j, out)
		if len(rs) > 0 {
			barred = append(barred, ranked(j, j.margin, rs))
			continue
		}
		fit = append(fit, j)
	}
	slices.SortStableFunc(fit, func(a, b *judged) int {
		return cmp.Or(cmp.Compare(tenths(a.margin), tenths(b.margin)), cmp.Compare(linkRank(a.v.Link), linkRank(b.v.Link)), cmp.Compare(a.margin, b.margin))
	})
	// The gates read much of the fleet: only those are asked that could come next.
	for len(fit) > 0 {
		rs := d.gatesOf(swap.Pair{Out: out.Name, In: fit[0].Name}, true)
		if len(rs) == 0 {
			break
		}
		barred = append(barred, ranked(fit[0], fit[0].margin, rs))
		fit = fit[1:]
	}
	for _, j := range fit {
		d.out.Candidates = append(d.out.Candidates, ranked(j, j.margin, nil))
	}
	slices.SortStableFunc(barred, func(a, b Ranked) int { return cmp.Compare(a.Node, b.Node) })
	d.out.Candidates = append(d.out.Candidates, barred...)
	if len(fit) == 0 {
		return nil
	}
	return fit[0]
}

func tenths(m float64) float64 { return math.Ceil(m*10 - 1e-9) }

func linkRank(k fitness.LinkKind) int {
	return slices.Index([]fitness.LinkKind{fitness.Wired, fitness.Unseen, fitness.WiFi, ""}, k)
}

// candidate is everything that keeps a standby from coming in for a voter.
func (d *decider) candidate(j, out *judged) []status.Reason {
	fit, left, margin := j.v.Without(out.Name)
	j.margin = margin
	var rs []status.Reason
	say := func(code, format string, args ...any) {
		rs = append(rs, status.Reason{Code: code, Node: j.Name, Sentence: fmt.Sprintf(format, args...)})
	}
	if j.Pinned {
		say(swap.CodePinned, "%s is pinned", j.Name)
	}
	if j.Cordoned {
		say(swap.CodeOperatorCordon, "%s was cordoned by somebody else", j.Name)
	}
	if j.Member {
		say(CodeNotSettled, "%s is a member of etcd already", j.Name)
	}
	if fit != fitness.Fit {
		rs = append(rs, reasons(j.Name, slices.DeleteFunc(left, func(r fitness.Reason) bool { return r.Weight == fitness.Note }))...)
	}
	for _, s := range d.recent(d.p.Dwell) {
		since := d.o.Now.Sub(s.EndedAt).Round(time.Second)
		switch {
		case s.Outcome == fleet.OutcomeCompleted && s.Out == j.Name:
			say(CodeDwell, "%s was swapped out %s ago and is no candidate for %s", j.Name, since, d.p.Dwell)
		case s.Outcome == fleet.OutcomeRolledBack && s.In == j.Name:
			say(CodeFailed, "%s was to come in %s ago and was rolled back; it is no candidate for %s", j.Name, since, d.p.Dwell)
		}
	}
	var b status.Backoff
	for _, x := range d.o.Backoff {
		if x.Out == out.Name && x.In == j.Name && x.Until.After(b.Until) {
			b = x
		}
	}
	if d.o.Now.Before(b.Until) {
		say(CodeBackedOff, "swapping %s for %s was abandoned %s; not again before %s", b.Out, b.In, plural(b.Count, "time"), stamp(b.Until))
	}
	if r := d.zones(out, j); r != "" {
		say(CodeZone, "%s", r)
	}
	return rs
}

// gatesOf are a pair's gates that are about IN, or those that are not.
func (d *decider) gatesOf(pair swap.Pair, aboutIn bool) []status.Reason {
	if d.o.Gates == nil {
		return nil
	}
	var rs []status.Reason
	for _, r := range d.o.Gates(pair) {
		if (r.Node == pair.In) == aboutIn {
			rs = append(rs, r)
		}
	}
	return rs
}

// recent are the swaps that ended within so long. One in the future counts too:
// the API server's Date may have been set back.
func (d *decider) recent(within time.Duration) []PastSwap {
	var all []PastSwap
	for _, s := range d.o.History {
		if s.EndedAt.After(d.o.Now.Add(-within)) {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b PastSwap) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.Out, b.Out), cmp.Compare(a.In, b.In))
	})
	return all
}

func (d *decider) noCandidate(out *judged) Decision {
	rs := d.held()
	for _, c := range d.out.Candidates {
		rs = append(rs, c.Reasons...)
	}
	switch {
	case d.eligible == 0:
		return d.decision(CodeNoneEligible, fmt.Sprintf("%s is unfit; no host is marked eligible, so regrade only reports", out.Name), rs)
	case len(d.standbys) == 0:
		return d.decision(CodeNoCandidate, fmt.Sprintf("%s is unfit and there is no standby: no eligible host that does not vote", out.Name), rs)
	}
	return d.decision(CodeNoCandidate, fmt.Sprintf("%s is unfit and none of %d standbys may come in for it", out.Name, len(d.standbys)), rs)
}

// why explains the pair with its numbers.
func (d *decider) why(out, in *judged) string {
	var b strings.Builder
	grounds := out.v.Grounds()
	fmt.Fprintf(&b, "%s", grounds[0].Sentence)
	if n := len(grounds) - 1; n > 0 {
		fmt.Fprintf(&b, " (and %d more)", n)
	}
	switch {
	case out.v.Part == fitness.Cause:
		fmt.Fprintf(&b, "; it is on %s, more than any other voter", plural(out.v.BadLinks, "bad link"))
	case out.v.Part == fitness.Suspect:
		fmt.Fprintf(&b, "; it is on %s as others are, with the worst margin", plural(out.v.BadLinks, "bad link"))
	}
	fmt.Fprintf(&b, "; %s is fit, its worst measure is %.0f %% of what is asked of a newcomer, the best of %s", in.Name, in.margin*100, plural(len(d.standbys), "standby"))
	return b.String()
}

func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

func reasons(node string, rs []fitness.Reason) []status.Reason {
	out := make([]status.Reason, len(rs))
	for i, r := range rs {
		out[i] = status.Reason{Code: r.Code, Sentence: r.Sentence, Node: node}
	}
	return out
}
