package decide

import (
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Rules are the limits of verdicts and the rules of decisions.
type Rules struct {
	Fitness fitness.Policy
	Decide  Policy
}

// Judgement is what the probes' entries come to.
type Judgement struct {
	Verdicts []fitness.Verdict
	Decision Decision
}

// Judge gives every voter and eligible host a verdict, and decides. A host
// without an entry among probes is judged as one whose probe has never written.
// Who votes is what the member lists say; the Votes of probes are not looked at.
func (r Rules) Judge(o swap.Observation, probes []fitness.Host, p swap.Policy) Judgement {
	d := From(o, p)
	entries := make(map[string]*fitness.Host, len(probes))
	for i := range probes {
		entries[probes[i].Node] = &probes[i]
	}
	hosts := make([]fitness.Host, 0, len(d.Hosts))
	for _, h := range d.Hosts {
		if !h.Votes && !h.Eligible {
			continue // a learner that is not eligible: the gates name it
		}
		f := fitness.Host{Node: h.Name}
		if e := entries[h.Name]; e != nil {
			f = *e
		}
		f.Votes = h.Votes
		hosts = append(hosts, f)
	}
	d.Verdicts = fitness.Judge(hosts, r.Fitness)
	d.Held = append(d.Held, ProbeGates(hosts, r.Fitness.Period)...)
	return Judgement{Verdicts: d.Verdicts, Decision: Decide(d, r.Decide)}
}

// Published is a decision as the status shows it.
func (d *Decision) Published() *status.Automatic {
	a := &status.Automatic{Sentence: d.Sentence, Reasons: d.Reasons}
	if d.Would != nil {
		a.Out, a.In = d.Would.Out, d.Would.In
	}
	return a
}
