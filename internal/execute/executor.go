package execute

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Settings of an Executor.
type Settings struct {
	// Self is the controller's own id.
	Self   string
	Policy swap.Policy
	// LeaseDuration of a Lease that is taken, in whole seconds.
	LeaseDuration time.Duration
	// Protected is as in observe.Settings; nil protects every pod.
	Protected func(labels map[string]string) bool
	// StillRight observes again, judges the removal of Node's member and says
	// what speaks against it, nil when nothing does. It is asked right before
	// k3s is asked to remove a member (safety rules 2, 8, 23).
	StillRight func(ctx context.Context, node string) error
}

// Executor carries out actions.
type Executor struct {
	cluster  Cluster
	settings Settings
}

// New makes an Executor.
func New(cluster Cluster, s Settings) *Executor {
	if s.Protected == nil {
		s.Protected = func(map[string]string) bool { return true }
	}
	return &Executor{cluster: cluster, settings: s}
}

// Effect is what an action did besides its write.
type Effect struct {
	// Status is set by Conclude: the status as it now stands.
	Status *status.Status
	// Evicted counts the pods a Drain evicted.
	Evicted int
}

// Do carries out one action decided on o. ErrConflict says that the cluster is
// no longer as the decision saw it; nothing was written then. Any other error
// may have left the effect made or not made: both are safe to repeat.
func (e *Executor) Do(ctx context.Context, a swap.Action, o *swap.Observation) (Effect, error) {
	eff, err := e.do(ctx, a, o)
	if err != nil {
		return eff, fmt.Errorf("%s %s: %w", a.Kind, a.Node, err)
	}
	return eff, nil
}

func (e *Executor) do(ctx context.Context, a swap.Action, o *swap.Observation) (Effect, error) {
	switch a.Kind {
	case swap.TakeLease:
		return Effect{}, e.takeLease(ctx, a, o)
	case swap.ReleaseLease:
		return Effect{}, e.releaseLease(ctx, a, o)
	case swap.Conclude:
		return e.conclude(ctx, a, o)
	case swap.DropRequest:
		return Effect{}, e.dropRequest(ctx, o)
	case swap.Drain:
		return e.drain(ctx, a, o)
	case swap.RequestRemoval:
		if e.settings.StillRight == nil {
			return Effect{}, fmt.Errorf("nothing judges the removal again")
		}
		if err := e.settings.StillRight(ctx, a.Node); err != nil {
			return Effect{}, fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return Effect{}, e.onNode(ctx, a, o)
	default:
		return Effect{}, e.onNode(ctx, a, o)
	}
}

// onNode makes the effects that are one patch of one Node.
func (e *Executor) onNode(ctx context.Context, a swap.Action, o *swap.Observation) error {
	if _, err := e.leaseFor(ctx, a, o); err != nil {
		return err
	}
	n, found, err := e.cluster.Node(ctx, a.Node)
	switch {
	case err != nil:
		return err
	case !found && undoes(a.Kind):
		return nil // a deleted Node has nothing left to undo
	case !found:
		return fmt.Errorf("%w: there is no Node", ErrConflict)
	}
	if err := e.nodeFor(n, a); err != nil {
		return err
	}
	p, err := e.patch(n, a)
	if err != nil || p.empty(n) {
		return err
	}
	return e.cluster.PatchNode(ctx, n.Name, n.Version, p)
}

// undoes says whether the kind only takes something off a Node.
func undoes(k swap.Kind) bool {
	switch k {
	case swap.Uncordon, swap.Untaint, swap.CleanNode, swap.ClearSwap, swap.ClearSnapshotRequest,
		swap.WithdrawRemoval, swap.ClearRemovedName:
		return true
	}
	return false
}

// patch is the change an action makes to a Node.
func (e *Executor) patch(n observe.Node, a swap.Action) (NodePatch, error) {
	k := e.settings.Policy.Keys
	id := string(a.Swap)
	switch a.Kind {
	case swap.WriteRecord:
		if a.Record == nil {
			return NodePatch{}, fmt.Errorf("no record")
		}
		p := NodePatch{Annotations: map[string]*string{}}
		if n.Annotations[k.Swap()] != id {
			// What stands here is of no swap: a host would take it for an order of this one.
			for _, key := range k.SwapAnnotations() {
				p.Annotations[key] = nil
			}
		}
		p.Annotations[k.Swap()], p.Annotations[k.Record()], p.Annotations[k.Controller()] = &id, new(a.Record.String()), &e.settings.Self
		return p, nil
	case swap.TakeOver:
		return NodePatch{Annotations: map[string]*string{k.Controller(): &e.settings.Self}}, nil
	case swap.Cordon:
		if n.Unschedulable && n.Annotations[k.Cordoned()] == "" {
			return NodePatch{}, nil // the operator's own cordon stays the operator's
		}
		return NodePatch{Unschedulable: new(true), Annotations: map[string]*string{k.Cordoned(): &id}}, nil
	case swap.Uncordon:
		if _, ours := n.Annotations[k.Cordoned()]; !ours {
			return NodePatch{}, nil
		}
		return NodePatch{Unschedulable: new(false), Annotations: map[string]*string{k.Cordoned(): nil}}, nil
	case swap.RequestSnapshot:
		return NodePatch{Annotations: map[string]*string{k.SnapshotRequest(): &id}}, nil
	case swap.WithdrawRemoval:
		return NodePatch{Annotations: map[string]*string{fleet.AnnotationEtcdRemove: nil}}, nil
	case swap.ClearRemovedName:
		return NodePatch{Annotations: map[string]*string{fleet.AnnotationEtcdRemovedName: nil}}, nil
	case swap.HandOver:
		if a.LeadTo == "" {
			return NodePatch{}, fmt.Errorf("no voter that shall lead")
		}
		return NodePatch{Annotations: map[string]*string{k.LeadTo(): &a.LeadTo}}, nil
	case swap.Order:
		return e.order(a)
	case swap.TaintNode:
		return NodePatch{AddTaint: &swap.Taint{Key: k.Taint(), Value: fleet.TaintValue, Effect: NoSchedule}}, nil
	case swap.RequestRemoval:
		return NodePatch{Annotations: map[string]*string{fleet.AnnotationEtcdRemove: new(fleet.True)}}, nil
	case swap.RepairMember:
		if a.MemberName == "" || a.MemberAddress == "" {
			return NodePatch{}, fmt.Errorf("no name or address of the member")
		}
		return NodePatch{
			Labels: map[string]*string{fleet.LabelEtcd: new(fleet.True)},
			Annotations: map[string]*string{
				fleet.AnnotationEtcdName: &a.MemberName, fleet.AnnotationEtcdAddress: &a.MemberAddress,
			},
		}, nil
	case swap.MarkMemberGone:
		return NodePatch{Annotations: map[string]*string{k.MemberGone(): &id}}, nil
	case swap.CleanNode:
		return e.clean(), nil
	case swap.Untaint:
		return NodePatch{DropTaint: k.Taint()}, nil
	case swap.ClearSnapshotRequest:
		return NodePatch{Annotations: map[string]*string{k.SnapshotRequest(): nil}}, nil
	case swap.ClearSwap:
		p := NodePatch{Labels: map[string]*string{}, Annotations: map[string]*string{}}
		if a.Desired != "" {
			p.Labels[k.DesiredRole()] = new(string(a.Desired))
		}
		for _, key := range k.SwapAnnotations() {
			p.Annotations[key] = nil
		}
		return p, nil
	}
	return NodePatch{}, fmt.Errorf("unknown kind of action")
}

// NoSchedule is the effect of the step-4 taint.
const NoSchedule = "NoSchedule"

// order writes desired-role and role-step with all that goes with the step, so
// that a host never reads half an order. What the step has no use for is
// cleared: a join node of the step before would send a host to the wrong server.
func (e *Executor) order(a swap.Action) (NodePatch, error) {
	if _, err := fleet.ParseStep(string(a.Step)); err != nil {
		return NodePatch{}, err
	}
	k := e.settings.Policy.Keys
	p := NodePatch{
		Labels: e.levelLabel(a.Level),
		Annotations: map[string]*string{
			k.Step():     new(string(a.Step)),
			k.JoinNode(): orNil(a.JoinNode),
			k.LeadTo():   orNil(a.LeadTo),
		},
	}
	p.Labels[k.DesiredRole()] = new(string(a.Step.DesiredRole()))
	return p, nil
}

func (e *Executor) levelLabel(l fleet.Level) map[string]*string {
	switch l {
	case "":
		return map[string]*string{}
	case fleet.LevelFull:
		return map[string]*string{e.settings.Policy.Keys.Level(): nil}
	default:
		return map[string]*string{e.settings.Policy.Keys.Level(): new(string(l))}
	}
}

// clean takes off all that a server leaves on its Node. Desired-role stays, and
// so does the cordon marker: only Uncordon takes it, with the cordon.
func (e *Executor) clean() NodePatch {
	k := e.settings.Policy.Keys
	p := NodePatch{
		Labels:      map[string]*string{k.Level(): nil},
		Annotations: map[string]*string{},
		DropTaint:   k.Taint(),
	}
	for _, l := range fleet.ServerLabels() {
		p.Labels[l] = nil
	}
	for _, an := range fleet.EtcdAnnotations() {
		p.Annotations[an] = nil
	}
	return p
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// empty says whether the patch would change nothing of n.
func (p NodePatch) empty(n observe.Node) bool {
	same := func(want map[string]*string, have map[string]string) bool {
		for k, v := range want {
			now, ok := have[k]
			if (v == nil && ok) || (v != nil && (!ok || now != *v)) {
				return false
			}
		}
		return true
	}
	if !same(p.Labels, n.Labels) || !same(p.Annotations, n.Annotations) {
		return false
	}
	if p.Unschedulable != nil && *p.Unschedulable != n.Unschedulable {
		return false
	}
	has := false
	for _, t := range n.Taints {
		if p.DropTaint != "" && t.Key == p.DropTaint {
			return false
		}
		has = has || (p.AddTaint != nil && t == *p.AddTaint)
	}
	return p.AddTaint == nil || has
}
