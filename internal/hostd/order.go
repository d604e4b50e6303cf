package hostd

import (
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// order is the step that the Node's annotations or a command ask of this host.
type order struct {
	swap   fleet.SwapID
	step   fleet.Step
	join   string // role-join-node
	leadTo string // role-lead-to
	record *status.Record
	local  bool
	// problem holds everything: the order cannot be read, or is not for this
	// program (safety rule 25).
	problem Problem
}

// Problem is a reason code and its sentence.
type Problem struct{ Code, Sentence string }

func (p Problem) is() bool { return p.Code != "" }

func problem(code, format string, args ...any) Problem {
	return Problem{code, fmt.Sprintf(format, args...)}
}

// out is the outgoing node, empty when it is unknown.
func (o order) out() string {
	if o.record != nil {
		return o.record.Out
	}
	return ""
}

// order reads what is asked of this host. Without an API server there is none.
func (f Facts) order() order {
	var o order
	if f.View == nil || f.View.Self == nil {
		c := f.Command
		switch {
		case c == nil || c.Step == fleet.StepFinishDemote || c.levels():
		case c.Local:
			return order{swap: c.Swap, step: c.Step, join: c.Join, local: true}
		case f.View == nil:
			o.problem = problem(CodeNoAPI, "no API server answers: %s", f.ViewProblem)
		default:
			o.problem = problem(CodeNoNode, "the cluster has no Node %q: is host.yaml's node right?", f.Node)
		}
		return o
	}
	k, ann := f.Policy.Keys, f.View.Self.Annotations
	for key := range ann {
		if k.ForeignSwapKey(key) {
			o.problem = problem(CodeForeignPrefix, "the Node carries the swap annotation %s of another prefix than %s", key, k.Prefix())
			return o
		}
	}
	if c := f.Command; c != nil && c.Step != fleet.StepFinishDemote && !c.levels() {
		o.swap, o.step, o.local = c.Swap, c.Step, c.Local
		if raw := ann[k.Swap()]; raw != "" && raw != string(c.Swap) {
			o.problem = problem(CodeStaleSwap, "the Node takes part in swap %q, not in %s", raw, c.Swap)
			return o
		}
		o.join, o.leadTo = ann[k.JoinNode()], ann[k.LeadTo()]
		if c.Join != "" {
			o.join = c.Join
		}
		return o.withRecord(ann[k.Record()])
	}
	raw := ann[k.Swap()]
	if raw == "" {
		return o
	}
	id, err := fleet.ParseSwapID(raw)
	if err != nil {
		o.problem = problem(CodeBadOrder, "%v", err)
		return o
	}
	o.swap, o.join, o.leadTo = id, ann[k.JoinNode()], ann[k.LeadTo()]
	if raw := ann[k.Step()]; raw != "" {
		if o.step, err = fleet.ParseStep(raw); err != nil {
			o.problem = problem(CodeBadOrder, "%v", err)
			return o
		}
	}
	return o.withRecord(ann[k.Record()])
}

// withRecord reads the record of the swap. None is none: a person may order a
// step by hand. One that cannot be read, or is another swap's, holds the step.
func (o order) withRecord(raw string) order {
	if raw == "" {
		return o
	}
	r, err := status.ParseRecord(raw)
	switch {
	case err != nil:
		o.problem = problem(CodeBadRecord, "%v", err)
	case r.ID != o.swap:
		o.problem = problem(CodeBadRecord, "the record is of swap %s, the order of %s", r.ID, o.swap)
	default:
		o.record = &r
	}
	return o
}

// held says whether the Lease stands behind the step now (R-D1-19, R-216-04);
// for an installer's own step it must be free (design §3).
func (f Facts) held(o order) (Problem, bool) {
	switch {
	case f.View == nil:
		return problem(CodeNoAPI, "no API server answers: %s", f.ViewProblem), false
	case o.local:
		if s := f.View.Lease.At(f.View.Date); s != lease.Free {
			return problem(CodeLeaseTaken, "the Lease %s is %s by %q", fleet.LeaseName, s, f.View.Lease.Holder), false
		}
		return Problem{}, true
	case f.View.Lease.HeldFor(o.swap, f.View.Date):
		return Problem{}, true
	case f.View.Lease.At(f.View.Date) == lease.Held && f.View.Lease.SwapID() != "":
		return problem(CodeStaleSwap, "the Lease %s is held for swap %s, not for %s", fleet.LeaseName, f.View.Lease.SwapID(), o.swap), false
	}
	return problem(CodeLeaseNotHeld, "the Lease %s is not held by %s for swap %s: it is %s, holder %q",
		fleet.LeaseName, fleet.LeaseHolder, o.swap, f.View.Lease.At(f.View.Date), f.View.Lease.Holder), false
}

// labelled says whether the desired-role label goes with the step (R-216-12).
func (f Facts) labelled(o order) (Problem, bool) {
	if o.local {
		return Problem{}, true
	}
	got := f.View.Self.Labels[f.Policy.Keys.DesiredRole()]
	if want := o.step.DesiredRole(); got != string(want) {
		return problem(CodeRoleMismatch, "the step %s needs the label %s=%s, the Node has %q", o.step, f.Policy.Keys.DesiredRole(), want, got), false
	}
	return Problem{}, true
}
