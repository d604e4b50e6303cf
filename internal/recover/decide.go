package recover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// Action is what is done to a Node.
type Action string

// Actions.
const (
	ActNone  Action = ""
	ActTaint Action = "taint" // out of service, with our mark
	ActClear Action = "clear" // mark and taint removed
	ActPrune Action = "prune" // the Node object deleted
)

// Verdict is on one Node that is not Ready or carries our mark.
type Verdict struct {
	Node  string `json:"node"`
	UID   string `json:"uid,omitempty"`
	Ready Ready  `json:"ready"`
	// Silent is for how long it was seen to be silent.
	Silent time.Duration `json:"silent,omitempty"`
	// OutOfService: it carries our taint and mark now.
	OutOfService bool   `json:"out_of_service,omitempty"`
	Action       Action `json:"action,omitempty"`
	// Reasons say why: of an action, or of none.
	Reasons []status.Reason `json:"reasons"`
	// Write is how the action changes the Node, nil for none.
	Write *Write `json:"write,omitempty"`
}

// Codes are the reasons' codes, for whoever says something once a change.
func (v *Verdict) Codes() string {
	codes := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		codes[i] = r.Code
	}
	return strings.Join(codes, " ")
}

// Write is a change of a Node as it was read: another resourceVersion refuses it.
type Write struct {
	Node    string `json:"node"`
	UID     string `json:"uid,omitempty"`
	Version string `json:"version"`
	// Delete the Node. Else annotation and taints are written.
	Delete bool `json:"delete,omitempty"`
	// Mark is the value of the annotation, nil to remove it.
	Annotation string  `json:"annotation,omitempty"`
	Mark       *string `json:"mark,omitempty"`
	// Drop are the annotations of earlier settings that are removed.
	Drop []string `json:"drop,omitempty"`
	// Taints are all that the Node has then.
	Taints []Taint `json:"taints,omitempty"`
}

// Decision is on all Nodes, sorted by name.
type Decision struct {
	Nodes    int       `json:"nodes"` // in all
	Verdicts []Verdict `json:"verdicts"`
}

// Decide is a function of the observation: the order of its Nodes does not matter. A
// Node that is Ready and unmarked has no verdict.
func Decide(o Observation, p Policy) Decision {
	d := Decision{Nodes: len(o.Nodes)}
	exempt := leased(&o)
	crowd := crowd(&o, p, exempt)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if n.Ready == ReadyTrue && !p.marked(n) {
			continue
		}
		v := Verdict{Node: n.Name, UID: n.UID, Ready: n.Ready, Silent: n.Silent}
		_, own := n.outOfService()
		v.OutOfService = own && p.marked(n)
		switch n.Ready {
		case ReadyTrue:
			v.act(ActClear, CodeReadyAgain, "%s is Ready again", n.Name)
			v.Write = cleared(n, p)
		case ReadyFalse:
			speaking(&v, n, p)
		case ReadyUnknown:
			silent(&v, n, &o, p, exempt, crowd)
		default:
			v.hold(CodeNoReady, "%s has no Ready condition that says anything", n.Name)
		}
		d.Verdicts = append(d.Verdicts, v)
	}
	slices.SortFunc(d.Verdicts, func(a, b Verdict) int { return cmp.Compare(a.Node, b.Node) })
	return d
}

func (v *Verdict) hold(code, format string, args ...any) {
	v.Reasons = append(v.Reasons, status.Reason{Code: code, Sentence: fmt.Sprintf(format, args...), Node: v.Node})
}

// act is the one reason of an action.
func (v *Verdict) act(a Action, code, format string, args ...any) {
	v.Action = a
	v.Reasons = nil
	v.hold(code, format, args...)
}

// speaking judges a Node whose kubelet says itself that it is not Ready. One that is
// marked and says so for the threshold is cleared, for its host is not dead, and as long
// as the taint is there Kubernetes takes pods for gone that the kubelet is still ending.
// What boots is Ready sooner, and cleared by that.
func speaking(v *Verdict, n *Node, p Policy) {
	if p.marked(n) && n.Speaks >= p.After {
		v.act(ActClear, CodeKubeletBack, "%s says itself for %s that it is not Ready: its kubelet lives", n.Name, seconds(n.Speaks))
		v.Write = cleared(n, p)
		return
	}
	v.hold(CodeKubeletSpeaks, "%s says itself that it is not Ready: its kubelet lives, and ends its pods", n.Name)
}

// silent judges a Node whose kubelet is silent. What exempts it is said alone; how
// long and what the probes say is of no matter then.
func silent(v *Verdict, n *Node, o *Observation, p Policy, leased map[string]bool, crowd string) {
	anyones, own := n.outOfService()
	switch {
	case own && p.marked(n):
		v.hold(CodeOutOfService, "%s is out of service since %s, by its mark; the taint goes when it is Ready", n.Name, n.Annotations[p.mark(n)])
		prune(v, n, o, p, leased)
		return
	case anyones:
		v.hold(CodeForeignTaint, "%s carries a taint %s that is not ours: it stays as it is", n.Name, ours().Key)
		return
	}
	v.Reasons = append(v.Reasons, p.exempt(n)...)
	v.Reasons = append(v.Reasons, underLease(n, o, leased)...)
	if len(v.Reasons) > 0 {
		return
	}
	if n.Silent < p.After {
		v.hold(CodeSilentShort, "%s is silent for %s of %s", n.Name, seconds(n.Silent), seconds(p.After))
		return
	}
	if crowd != "" {
		v.hold(CodeManySilent, "%s", crowd)
	}
	v.Reasons = append(v.Reasons, alive(n, o, p)...)
	v.Reasons = append(v.Reasons, evidence(n, o, p)...)
	if len(v.Reasons) > 0 {
		return
	}
	v.act(ActTaint, CodeSilentLong, "%s is silent for %s, the limit is %s", n.Name, seconds(n.Silent), seconds(p.After))
	v.Write = tainted(n, o.Now, p)
}

// exempt is why a Node is left alone whatever its kubelet does, by what it says
// itself.
func (p Policy) exempt(n *Node) (reasons []status.Reason) {
	say := func(code, format string, args ...any) {
		reasons = append(reasons, status.Reason{Code: code, Node: n.Name, Sentence: fmt.Sprintf(format, args...)})
	}
	if p.Self != "" && n.Name == p.Self {
		say(CodeOwnNode, "%s is the node that this process runs on", n.Name)
	}
	if key := p.swapMark(n); key != "" {
		say(CodeSwapNode, "%s takes part in a swap, by its annotation %s", n.Name, key)
	}
	// R-B-05, R-N-08: an etcd-only server runs no kubelet.
	if level, ok := n.Labels[p.Keys.Level()]; ok {
		say(CodeAtALevel, "%s is held at level %q, which may have no kubelet", n.Name, level)
	}
	if n.Deleting {
		say(CodeBeingDeleted, "%s is being deleted", n.Name)
	}
	return reasons
}

// leased are the nodes that the Lease exempts (R-B-02..04): while it is held by the
// API's Date, and until it was seen to stand still for its whole duration. A Date that
// jumps ends no Lease, and a level's is not renewed in its step (safety rules 21, 22).
func leased(o *Observation) map[string]bool {
	names := o.Lease.Exempt(o.Now)
	if o.Lease.At(o.Now) == lease.Expired && o.LeaseUnchanged <= o.Lease.Duration {
		names = o.Lease.Exempt(o.Lease.RenewTime)
	}
	exempt := make(map[string]bool, len(names))
	for _, n := range names {
		exempt[n] = true
	}
	return exempt
}

func underLease(n *Node, o *Observation, leased map[string]bool) []status.Reason {
	switch {
	case o.LeaseProblem != "":
		return []status.Reason{{Code: CodeLeaseNotRead, Node: n.Name, Sentence: "whether a Lease exempts " + n.Name + " is not known: " + o.LeaseProblem}}
	case leased[n.Name]:
		return []status.Reason{{Code: CodeLeaseHeld, Node: n.Name, Sentence: fmt.Sprintf("%s is named in the Lease that %s holds", n.Name, o.Lease.Holder)}}
	}
	return nil
}

// crowd says why nobody is tainted for now: so many Nodes have fallen silent that what
// is broken is more likely between them and the API than each of them. Those that are
// out of service already count, so that in the end no more are than may be; those that
// are left alone anyway do not. One Node may always be.
func crowd(o *Observation, p Policy, leased map[string]bool) string {
	silent, out := 0, 0
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if anyones, _ := n.outOfService(); anyones {
			out++
		} else if n.Ready == ReadyUnknown && !leased[n.Name] && len(p.exempt(n)) == 0 {
			silent++
		}
	}
	most := max(1, p.MaxPercent*len(o.Nodes)/100)
	if silent+out <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes are silent and %d out of service, together %d may be (%d %%): a common cause is likely", silent, len(o.Nodes), out, most, p.MaxPercent)
}

// tainted adds our taint and mark (design §3). The mark is the API's Date.
func tainted(n *Node, now time.Time, p Policy) *Write {
	mark := FormatMark(now)
	t := ours()
	t.Added = now
	return &Write{
		Node: n.Name, UID: n.UID, Version: n.Version, Annotation: p.Annotation, Mark: &mark, Drop: p.former(n),
		Taints: append(slices.Clone(n.Taints), t),
	}
}

// cleared removes our mark, and the taint that is ours by key, value and effect. One
// of the same key that a person has added beside it stays (safety rule 27).
func cleared(n *Node, p Policy) *Write {
	w := &Write{Node: n.Name, UID: n.UID, Version: n.Version, Annotation: p.Annotation, Drop: p.former(n)}
	for _, t := range n.Taints {
		if !t.is(ours()) {
			w.Taints = append(w.Taints, t)
		}
	}
	return w
}

func seconds(d time.Duration) string { return d.Truncate(time.Second).String() }
