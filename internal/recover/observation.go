package recover

import (
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
)

// Ready is the status of a Node's Ready condition.
type Ready string

// Ready. False is the word of a kubelet that lives; Unknown is Kubernetes' for one
// that has fallen silent.
const (
	ReadyAbsent  Ready = ""
	ReadyTrue    Ready = "True"
	ReadyFalse   Ready = "False"
	ReadyUnknown Ready = "Unknown"
)

// Node is what a Node object says.
type Node struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid,omitempty"`
	Version     string            `json:"version,omitempty"` // resourceVersion
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []Taint           `json:"taints,omitempty"`
	Deleting    bool              `json:"deleting,omitempty"`

	Ready Ready `json:"ready,omitempty"`
	// Since is when Ready became what it is, by the clock of whoever wrote it.
	Since time.Time `json:"since,omitzero"`
	// EtcdIsVoter is the status of k3s's condition, empty for none.
	EtcdIsVoter string `json:"etcd_is_voter,omitempty"`

	// Silent is for how long Ready was seen to be Unknown without a change, by the
	// monotonic clock of who looked (safety rule 22). Zero for any other Node.
	Silent time.Duration `json:"silent,omitempty"`
	// Gone is for how long it was seen to be, pauses between looks left out: the silence
	// is one as long as the condition's time stays the same.
	Gone time.Duration `json:"gone,omitempty"`
	// Speaks is for how long Ready was seen to be False, in the same way.
	Speaks time.Duration `json:"speaks,omitempty"`
	// Signs are what else was seen of the host, of each kind at most one. Empty for a
	// Node of which nothing hangs on them.
	Signs []Sign `json:"signs,omitempty"`
}

// Taint is one taint of a Node.
type Taint struct {
	Key    string    `json:"key"`
	Value  string    `json:"value,omitempty"`
	Effect string    `json:"effect"`
	Added  time.Time `json:"added,omitzero"`
}

// Observation is all that a decision is made from.
type Observation struct {
	// Now is the API server's Date.
	Now   time.Time `json:"now"`
	Nodes []Node    `json:"nodes"`

	// Lease is kube-system/fleet-regrade, its zero value when there is none.
	// LeaseUnchanged is how long its renew time was seen to stand still, by the own
	// clock. LeaseProblem says why it could not be read.
	Lease          lease.Lease   `json:"lease,omitzero"`
	LeaseUnchanged time.Duration `json:"lease_unchanged,omitempty"`
	LeaseProblem   string        `json:"lease_problem,omitempty"`

	// SignsProblem says why the Nodes' signs could not be read.
	SignsProblem string `json:"signs_problem,omitempty"`

	// Probed: the cluster has probes, by an entry or a heartbeat of any of them, now or
	// earlier. Witnesses are the hosts with an entry, whatever it is worth.
	// WitnessProblem says why they could not be read.
	Probed         bool      `json:"probed,omitempty"`
	Witnesses      []Witness `json:"witnesses,omitempty"`
	WitnessProblem string    `json:"witness_problem,omitempty"`

	// DateJumped: the API's Date has not kept pace with the own clock.
	DateJumped bool `json:"date_jumped,omitempty"`
}

// Policy is what an operator may set.
type Policy struct {
	Keys fleet.Keys `json:"-"`
	// Self is the Node that this process runs on, empty where that is not known.
	Self string `json:"self,omitempty"`
	// After is how long Ready must have been Unknown.
	After time.Duration `json:"after"`
	// Period is that of the fleet's probes and host daemons.
	Period time.Duration `json:"period"`
	// Annotation marks a Node as tainted by us; Former are those that did so under earlier
	// settings, which are cleared and not written.
	Annotation string   `json:"annotation,omitempty"`
	Former     []string `json:"former,omitempty"`
	// Evidence: a host that probes measure, where there are probes, must be found
	// unreachable by those of two other hosts.
	Evidence bool `json:"evidence"`
	// MaxPercent of the Nodes may be silent and out of service together; one always may.
	MaxPercent int `json:"max_percent"`
	// Prune is how long a Node stays tainted before it is deleted, by what one process has
	// seen; zero for ever.
	Prune time.Duration `json:"prune,omitempty"`
}

// DefaultAfter, DefaultPoll and DefaultMaxPercent: with Kubernetes' grace of 40 to 50
// s before a silent node is Unknown, pods are replaced about four minutes after a crash.
const (
	DefaultAfter      = 120 * time.Second
	DefaultPoll       = 15 * time.Second
	DefaultMaxPercent = 50
)

// DefaultPolicy is group B's, with the evidence rule on.
func DefaultPolicy() Policy {
	return Policy{
		Keys: fleet.DefaultKeys(), After: DefaultAfter, Period: fitness.DefaultPeriod, Annotation: fleet.AnnotationOutOfService,
		Evidence: true, MaxPercent: DefaultMaxPercent,
	}
}

// ours is the taint as we set it.
func ours() Taint {
	return Taint{Key: fleet.TaintOutOfService, Value: fleet.TaintOutOfServiceValue, Effect: fleet.EffectNoExecute}
}

func (t Taint) is(o Taint) bool {
	return t.Key == o.Key && t.Value == o.Value && t.Effect == o.Effect
}

// Marks are the annotations that are ours, the one that is written first.
func (p Policy) Marks() []string { return append([]string{p.Annotation}, p.Former...) }

// mark is the first of ours that the Node carries, whatever its value; empty for none.
func (p Policy) mark(n *Node) string {
	for _, key := range p.Marks() {
		if _, ok := n.Annotations[key]; ok {
			return key
		}
	}
	return ""
}

func (p Policy) marked(n *Node) bool { return p.mark(n) != "" }

// former are the Node's marks of earlier settings.
func (p Policy) former(n *Node) (keys []string) {
	for _, key := range p.Former {
		if _, ok := n.Annotations[key]; ok && key != p.Annotation {
			keys = append(keys, key)
		}
	}
	return keys
}

// outOfService says whether anybody's taint of that key is there, and ours.
func (n *Node) outOfService() (anyones, own bool) {
	for _, t := range n.Taints {
		if t.Key == fleet.TaintOutOfService {
			anyones = true
			own = own || t.is(ours())
		}
	}
	return anyones, own
}

// measurable is whom a probe takes for a voter and connects to: etcd's label, and no
// condition that denies it.
func (n *Node) measurable() bool {
	return n.Labels[fleet.LabelEtcd] == fleet.True && n.EtcdIsVoter != "False"
}

// swapMark is an annotation of a swap on the Node, under whatever prefix, empty for
// none. A cordon of ours without a swap is none: the clean-up of that host is owed,
// and it is recovered as any agent (R-I-25).
func (p Policy) swapMark(n *Node) string {
	for _, key := range p.Keys.SwapAnnotations() {
		if _, ok := n.Annotations[key]; ok {
			return key
		}
	}
	var foreign []string
	for key := range n.Annotations {
		if p.Keys.ForeignSwapKey(key) {
			foreign = append(foreign, key)
		}
	}
	if len(foreign) == 0 {
		return ""
	}
	return slices.Min(foreign)
}

// etcdAnnotation is one of k3s's about a member, empty for none.
func (n *Node) etcdAnnotation() string {
	var keys []string
	for key := range n.Annotations {
		if strings.HasPrefix(key, fleet.EtcdAnnotationPrefix) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	return slices.Min(keys)
}

// Need is what a decision depends on besides the Nodes.
type Need struct {
	// Lease: the regrade Lease. Signs: what goes on, on hosts whose kubelets are silent.
	// Probes: what other hosts' probes say.
	Lease, Signs, Probes bool
}

// Needs says what a decision on these Nodes depends on besides: Lease and signs while
// one of them may be tainted or deleted, the probes while one that they may measure may
// be tainted. Where all is well a pass is one list.
func Needs(nodes []Node, p Policy) (need Need) {
	for i := range nodes {
		n := &nodes[i]
		if n.Ready != ReadyUnknown {
			continue
		}
		anyones, own := n.outOfService()
		if anyones {
			if p.Prune > 0 && own && p.marked(n) {
				need.Lease, need.Signs = true, true
			}
			continue
		}
		if len(p.exempt(n)) > 0 {
			continue
		}
		need.Lease, need.Signs = true, true
		need.Probes = need.Probes || p.Evidence && n.measurable()
	}
	return need
}
