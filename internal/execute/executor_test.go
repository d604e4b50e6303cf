package execute_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

const me = "controller-1"

var (
	keys = fleet.DefaultKeys()
	now  = time.Date(2026, 11, 29, 12, 0, 30, 0, time.UTC)
	id   = fleet.SwapID("20261129T120000Z-out-in")
	rec  = status.Record{
		Protocol: 1, Prefix: keys.Prefix(), ID: id, Out: "out", In: "in", Started: now, ClusterID: 0xc, OutMember: 0xa,
		Voters: []status.RecordVoter{{Node: "out", ID: 0xa, Name: "out-00000000"}},
	}
)

// held is the Lease of our swap.
func held() lease.Lease {
	return lease.Lease{
		Exists: true, Holder: fleet.LeaseHolder, Duration: 900 * time.Second,
		AcquireTime: now.Add(-time.Minute), RenewTime: now.Add(-2 * time.Second),
		Annotations: map[string]string{
			fleet.LeaseSwapID: string(id), fleet.LeaseSwapNodes: "out,in", fleet.LeaseController: me,
			fleet.LeaseRecord: rec.String(), "foreign": "kept",
		},
	}
}

// marked is a Node of our swap.
func marked(more map[string]string) observe.Node {
	a := map[string]string{keys.Swap(): string(id), keys.Controller(): me, keys.Record(): rec.String()}
	maps.Copy(a, more)
	return observe.Node{Node: swap.Node{Annotations: a, Labels: map[string]string{}}}
}

type rig struct {
	*clustertest.Cluster
	e *execute.Executor
	o *swap.Observation
}

func newRig(t *testing.T, change func(*clustertest.State)) *rig {
	t.Helper()
	s := clustertest.State{
		Nodes: map[string]observe.Node{"out": marked(nil), "in": marked(nil), "stays": {}},
		Lease: observe.Lease{Lease: held()},
		Maps:  map[string]observe.ConfigMap{fleet.ConfigMapStatus: {Data: map[string]string{}}},
	}
	if change != nil {
		change(&s)
	}
	c := clustertest.New(s)
	return &rig{
		Cluster: c,
		e: execute.New(c, execute.Settings{
			Self: me, Policy: swap.DefaultPolicy(), LeaseDuration: 900 * time.Second,
			Protected:  func(l map[string]string) bool { return l["job"] != "" },
			StillRight: func(context.Context, string) error { return nil },
		}),
		o: &swap.Observation{Now: now, Self: me, Lease: c.State().Lease.Lease},
	}
}

func (r *rig) do(t *testing.T, a swap.Action) error {
	t.Helper()
	if a.Swap == "" {
		a.Swap = id
	}
	_, err := r.e.Do(t.Context(), a, r.o)
	return err
}

func (r *rig) writes() []string {
	return slices.DeleteFunc(r.Calls(), func(c string) bool {
		return !strings.HasPrefix(c, "P") || strings.HasPrefix(c, "Pods")
	})
}

// Each kind's effect, that a repeat writes nothing new, and what it leaves alone.
func TestEachKindHasOneEffect(t *testing.T) {
	gone := func(n observe.Node, list ...string) error {
		for _, k := range list {
			_, a := n.Annotations[k]
			_, l := n.Labels[k]
			if a || l {
				return fmt.Errorf("%s is still there", k)
			}
		}
		return nil
	}
	server := func(s *clustertest.State) {
		n := s.Nodes["out"]
		for _, l := range fleet.ServerLabels() {
			n.Labels[l] = "true"
		}
		for _, a := range fleet.EtcdAnnotations() {
			n.Annotations[a] = "x"
		}
		n.Labels[keys.Level()], n.Labels[keys.DesiredRole()], n.Labels["foreign"] = "etcd-only", "agent", "kept"
		n.Annotations[keys.Cordoned()], n.Unschedulable = string(id), true
		n.Taints = []swap.Taint{{Key: keys.Taint(), Value: fleet.TaintValue, Effect: "NoSchedule"}, {Key: "foreign", Effect: "NoExecute"}}
		s.Nodes["out"] = n
	}
	for name, test := range map[string]struct {
		before func(*clustertest.State)
		a      swap.Action
		node   string
		check  func(observe.Node) error
	}{
		"write-record marks a fresh Node": {
			before: func(s *clustertest.State) { s.Nodes["in"] = observe.Node{} },
			a:      swap.Action{Kind: swap.WriteRecord, Node: "in", Record: &rec}, node: "in",
			check: func(n observe.Node) error {
				return want(n.Annotations, map[string]string{keys.Swap(): string(id), keys.Record(): rec.String(), keys.Controller(): me})
			},
		},
		"write-record leaves no stranger's order on a fresh Node": {
			before: func(s *clustertest.State) {
				s.Nodes["in"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Step(): "promote", keys.JoinNode(): "x", keys.MemberGone(): "y", "foreign": "kept"}}}
			},
			a: swap.Action{Kind: swap.WriteRecord, Node: "in", Record: &rec}, node: "in",
			check: func(n observe.Node) error {
				return errors.Join(gone(n, keys.Step(), keys.JoinNode(), keys.MemberGone()), want(n.Annotations, map[string]string{keys.Swap(): string(id), "foreign": "kept"}))
			},
		},
		"write-record again keeps the order": {
			before: func(s *clustertest.State) {
				s.Nodes["in"] = marked(map[string]string{keys.Step(): "promote", keys.Record(): "older"})
			},
			a: swap.Action{Kind: swap.WriteRecord, Node: "in", Record: &rec}, node: "in",
			check: func(n observe.Node) error {
				return want(n.Annotations, map[string]string{keys.Step(): "promote", keys.Record(): rec.String()})
			},
		},
		"cordon marks its own": {
			a: swap.Action{Kind: swap.Cordon, Node: "in"}, node: "in",
			check: func(n observe.Node) error {
				if !n.Unschedulable {
					return errors.New("schedulable")
				}
				return want(n.Annotations, map[string]string{keys.Cordoned(): string(id)})
			},
		},
		"cordon leaves the operator's cordon the operator's": { // safety rule 27
			before: func(s *clustertest.State) { n := s.Nodes["in"]; n.Unschedulable = true; s.Nodes["in"] = n },
			a:      swap.Action{Kind: swap.Cordon, Node: "in"}, node: "in",
			check: func(n observe.Node) error { return gone(n, keys.Cordoned()) },
		},
		"cordon asserts ours again": {
			before: func(s *clustertest.State) { s.Nodes["in"] = marked(map[string]string{keys.Cordoned(): string(id)}) },
			a:      swap.Action{Kind: swap.Cordon, Node: "in"}, node: "in",
			check: func(n observe.Node) error {
				if !n.Unschedulable {
					return errors.New("schedulable")
				}
				return nil
			},
		},
		"uncordon takes our cordon": {
			before: server, a: swap.Action{Kind: swap.Uncordon, Node: "out"}, node: "out",
			check: func(n observe.Node) error {
				if n.Unschedulable {
					return errors.New("still cordoned")
				}
				return gone(n, keys.Cordoned())
			},
		},
		"uncordon leaves the operator's": {
			before: func(s *clustertest.State) { n := s.Nodes["in"]; n.Unschedulable = true; s.Nodes["in"] = n },
			a:      swap.Action{Kind: swap.Uncordon, Node: "in"}, node: "in",
			check: func(n observe.Node) error {
				if !n.Unschedulable {
					return errors.New("the operator's cordon is gone")
				}
				return nil
			},
		},
		"request-snapshot asks a staying voter": { // R-D1-05
			a: swap.Action{Kind: swap.RequestSnapshot, Node: "stays"}, node: "stays",
			check: func(n observe.Node) error {
				return want(n.Annotations, map[string]string{keys.SnapshotRequest(): string(id)})
			},
		},
		"clear-snapshot-request takes it back": {
			before: func(s *clustertest.State) {
				s.Nodes["stays"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.SnapshotRequest(): string(id)}}}
			},
			a: swap.Action{Kind: swap.ClearSnapshotRequest, Node: "stays"}, node: "stays",
			check: func(n observe.Node) error { return gone(n, keys.SnapshotRequest()) },
		},
		"withdraw-removal deletes a stale request": { // safety rule 5
			before: server, a: swap.Action{Kind: swap.WithdrawRemoval, Node: "out"}, node: "out",
			check: func(n observe.Node) error { return gone(n, fleet.AnnotationEtcdRemove) },
		},
		"clear-removed-name deletes the old name": {
			before: server, a: swap.Action{Kind: swap.ClearRemovedName, Node: "out"}, node: "out",
			check: func(n observe.Node) error { return gone(n, fleet.AnnotationEtcdRemovedName) },
		},
		"hand-over names who shall lead and nothing else": { // safety rule 8
			a: swap.Action{Kind: swap.HandOver, Node: "out", LeadTo: "stays"}, node: "out",
			check: func(n observe.Node) error {
				return errors.Join(gone(n, keys.Step()), want(n.Annotations, map[string]string{keys.LeadTo(): "stays"}))
			},
		},
		"order promote": { // R-E2-17
			before: func(s *clustertest.State) { s.Nodes["in"] = marked(map[string]string{keys.LeadTo(): "old"}) },
			a:      swap.Action{Kind: swap.Order, Node: "in", Step: fleet.StepPromote, JoinNode: "stays"}, node: "in",
			check: func(n observe.Node) error {
				if n.Labels[keys.DesiredRole()] != "server" {
					return fmt.Errorf("desired role %q", n.Labels[keys.DesiredRole()])
				}
				return errors.Join(gone(n, keys.LeadTo()), want(n.Annotations, map[string]string{keys.Step(): "promote", keys.JoinNode(): "stays"}))
			},
		},
		"order step-down": { // R-E2-20
			a:    swap.Action{Kind: swap.Order, Node: "out", Step: fleet.StepStepDown, LeadTo: "stays", Level: fleet.LevelEtcdOnly},
			node: "out",
			check: func(n observe.Node) error {
				return errors.Join(
					want(n.Labels, map[string]string{keys.DesiredRole(): "agent", keys.Level(): "etcd-only"}),
					want(n.Annotations, map[string]string{keys.Step(): "step-down", keys.LeadTo(): "stays"}))
			},
		},
		"order step-up clears the level": {
			before: server, a: swap.Action{Kind: swap.Order, Node: "out", Step: fleet.StepStepUp, Level: fleet.LevelFull}, node: "out",
			check: func(n observe.Node) error {
				return errors.Join(gone(n, keys.Level()), want(n.Labels, map[string]string{keys.DesiredRole(): "server"}))
			},
		},
		"taint adds ours beside others": {
			before: func(s *clustertest.State) {
				n := s.Nodes["out"]
				n.Taints = []swap.Taint{{Key: "foreign", Effect: "NoExecute"}}
				s.Nodes["out"] = n
			},
			a: swap.Action{Kind: swap.TaintNode, Node: "out"}, node: "out",
			check: func(n observe.Node) error {
				if len(n.Taints) != 2 || n.Taints[1] != (swap.Taint{Key: keys.Taint(), Value: "step-down", Effect: "NoSchedule"}) {
					return fmt.Errorf("taints %v", n.Taints)
				}
				return nil
			},
		},
		"untaint takes ours only": {
			before: server, a: swap.Action{Kind: swap.Untaint, Node: "out"}, node: "out",
			check: func(n observe.Node) error {
				if len(n.Taints) != 1 || n.Taints[0].Key != "foreign" {
					return fmt.Errorf("taints %v", n.Taints)
				}
				return nil
			},
		},
		"request-removal asks k3s": { // R-E2-21
			a: swap.Action{Kind: swap.RequestRemoval, Node: "out"}, node: "out",
			check: func(n observe.Node) error {
				return want(n.Annotations, map[string]string{fleet.AnnotationEtcdRemove: "true"})
			},
		},
		"repair-member names the member": { // safety rule 6
			a: swap.Action{Kind: swap.RepairMember, Node: "in", MemberName: "in-1", MemberAddress: "10.0.0.4"}, node: "in",
			check: func(n observe.Node) error {
				return errors.Join(want(n.Labels, map[string]string{fleet.LabelEtcd: "true"}),
					want(n.Annotations, map[string]string{fleet.AnnotationEtcdName: "in-1", fleet.AnnotationEtcdAddress: "10.0.0.4"}))
			},
		},
		"mark-member-gone names the swap": { // R-228-39
			a: swap.Action{Kind: swap.MarkMemberGone, Node: "out"}, node: "out",
			check: func(n observe.Node) error {
				return want(n.Annotations, map[string]string{keys.MemberGone(): string(id)})
			},
		},
		"clean-node takes all a server leaves": { // R-I-16, R-N-10
			before: server, a: swap.Action{Kind: swap.CleanNode, Node: "out"}, node: "out",
			check: func(n observe.Node) error {
				if !n.Unschedulable || len(n.Taints) != 1 {
					return fmt.Errorf("cordon %v, taints %v", n.Unschedulable, n.Taints)
				}
				return errors.Join(gone(n, append(append(fleet.ServerLabels(), fleet.EtcdAnnotations()...), keys.Level())...),
					want(n.Labels, map[string]string{"foreign": "kept", keys.DesiredRole(): "agent"}),
					want(n.Annotations, map[string]string{keys.Cordoned(): string(id), keys.Swap(): string(id)}))
			},
		},
		"clear-swap takes the swap's annotations": { // R-E2-26
			before: func(s *clustertest.State) {
				n := marked(map[string]string{keys.Cordoned(): string(id), "foreign": "kept"})
				for _, k := range keys.SwapAnnotations() {
					if _, ok := n.Annotations[k]; !ok {
						n.Annotations[k] = "x"
					}
				}
				s.Nodes["out"] = n
			},
			a: swap.Action{Kind: swap.ClearSwap, Node: "out", Desired: fleet.RoleAgent}, node: "out",
			check: func(n observe.Node) error {
				return errors.Join(gone(n, keys.SwapAnnotations()...),
					want(n.Labels, map[string]string{keys.DesiredRole(): "agent"}),
					want(n.Annotations, map[string]string{keys.Cordoned(): string(id), "foreign": "kept"}))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, test.before)
			if err := r.do(t, test.a); err != nil {
				t.Fatal(err)
			}
			if w := r.writes(); len(w) > 1 {
				t.Errorf("%d writes: %q", len(w), w)
			}
			after := r.State().Nodes[test.node]
			if err := test.check(after); err != nil {
				t.Error(err)
			}
			if test.a.Kind == swap.ClearSwap {
				return
			}
			if err := r.do(t, test.a); err != nil {
				t.Errorf("repeated: %v", err)
			}
			if w := r.writes(); len(w) != 0 {
				t.Errorf("repeated: writes %q", w)
			}
		})
	}
}

func want(have, want map[string]string) error {
	for k, v := range want {
		if have[k] != v {
			return fmt.Errorf("%s is %q, want %q", k, have[k], v)
		}
	}
	return nil
}

// Safety rule 21: no Node is written unless Lease and Node are ours now.
func TestNoNodeIsWrittenUnlessItIsOurs(t *testing.T) {
	actions := []swap.Action{
		{Kind: swap.Cordon, Node: "out"}, {Kind: swap.Drain, Node: "out"}, {Kind: swap.TaintNode, Node: "out"},
		{Kind: swap.HandOver, Node: "out", LeadTo: "stays"},
		{Kind: swap.Order, Node: "out", Step: fleet.StepStepDown}, {Kind: swap.RequestRemoval, Node: "out"},
		{Kind: swap.RepairMember, Node: "out", MemberName: "a", MemberAddress: "b"}, {Kind: swap.MarkMemberGone, Node: "out"},
		{Kind: swap.CleanNode, Node: "out"}, {Kind: swap.Uncordon, Node: "out"}, {Kind: swap.WriteRecord, Node: "out", Record: &rec},
		{Kind: swap.WithdrawRemoval, Node: "out"}, {Kind: swap.ClearRemovedName, Node: "out"}, {Kind: swap.RequestSnapshot, Node: "out"},
	}
	lost := map[string]func(*clustertest.State){
		"the Lease is regrade's": func(s *clustertest.State) { // R-E2-35, R-228-07
			s.Lease.Holder, s.Lease.Annotations = "stays", nil
		},
		"the Lease is of another swap":      func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseSwapID] = "x" },
		"the Lease is another controller's": func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController] = "other" },
		"the Node is another controller's":  func(s *clustertest.State) { s.Nodes["out"].Annotations[keys.Controller()] = "other" },
		"the Node carries another swap":     func(s *clustertest.State) { s.Nodes["out"].Annotations[keys.Swap()] = "x" },
		"the Node is another swap's, theirs": func(s *clustertest.State) {
			s.Nodes["out"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Swap(): "x", keys.Controller(): "other"}}}
		},
	}
	for name, change := range lost {
		for _, a := range actions {
			t.Run(name+"/"+string(a.Kind), func(t *testing.T) {
				r := newRig(t, nil)
				r.Edit(change) // after the decision
				if err := r.do(t, a); !errors.Is(err, execute.ErrConflict) {
					t.Errorf("got %v, want a conflict", err)
				}
				if w := r.writes(); len(w) != 0 {
					t.Errorf("wrote %q", w)
				}
			})
		}
	}
}

func TestALostWriteRaceChangesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.Hook = func(call string) error {
		if call == "PatchNode out" { // between our read and our write, the other controller takes over
			r.Edit(func(s *clustertest.State) { s.Nodes["out"].Annotations[keys.Controller()] = "other" })
		}
		return nil
	}
	if err := r.do(t, swap.Action{Kind: swap.Cordon, Node: "out"}); !errors.Is(err, execute.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if r.State().Nodes["out"].Unschedulable {
		t.Error("cordoned by the controller that lost the swap")
	}
}

func TestADeletedNodeHasNothingToUndo(t *testing.T) {
	r := newRig(t, func(s *clustertest.State) { delete(s.Nodes, "out") })
	for _, k := range []swap.Kind{swap.Uncordon, swap.Untaint, swap.CleanNode, swap.ClearSwap, swap.WithdrawRemoval, swap.ClearRemovedName, swap.ClearSnapshotRequest} {
		if err := r.do(t, swap.Action{Kind: k, Node: "out"}); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	if err := r.do(t, swap.Action{Kind: swap.Cordon, Node: "out"}); !errors.Is(err, execute.ErrConflict) {
		t.Errorf("cordon: got %v, want a conflict", err)
	}
}

func TestARemovalIsJudgedAgain(t *testing.T) { // safety rules 2, 8, 23
	c := newRig(t, nil)
	e := execute.New(c, execute.Settings{Self: me, Policy: swap.DefaultPolicy(), StillRight: func(_ context.Context, node string) error {
		return fmt.Errorf("%s still leads etcd", node)
	}})
	_, err := e.Do(t.Context(), swap.Action{Kind: swap.RequestRemoval, Node: "out", Swap: id}, c.o)
	if !errors.Is(err, execute.ErrConflict) || !strings.Contains(err.Error(), "out still leads etcd") {
		t.Errorf("got %v", err)
	}
	if w := c.writes(); len(w) != 0 {
		t.Errorf("wrote %q", w)
	}
}

func TestTakeLease(t *testing.T) {
	take := swap.Action{Kind: swap.TakeLease, Record: &rec}
	for name, test := range map[string]struct {
		now, later func(*clustertest.State)
		taken      bool
		acquired   time.Time
	}{
		"there is none":       {now: func(s *clustertest.State) { s.Lease = observe.Lease{} }, taken: true, acquired: now},
		"it is free":          {now: func(s *clustertest.State) { s.Lease.Lease = lease.Lease{Exists: true} }, taken: true, acquired: now},
		"it ran out":          {now: func(s *clustertest.State) { s.Lease.Holder, s.Lease.RenewTime = "stays", now.Add(-time.Hour) }, taken: true, acquired: now},
		"it is held":          {now: func(s *clustertest.State) { s.Lease.Holder = "stays" }},
		"it cannot be dated":  {now: func(s *clustertest.State) { s.Lease.Holder, s.Lease.RenewTime = "stays", time.Time{} }},
		"another swap has it": {now: func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseSwapID] = "x" }},
		"it is ours already":  {taken: true, acquired: now.Add(-time.Minute)},
		"its controller is gone": {
			now:   func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController] = "other" },
			taken: true, acquired: now.Add(-time.Minute),
		},
		"its controller has just renewed": {
			now:   func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController] = "other" },
			later: func(s *clustertest.State) { s.Lease.RenewTime = now },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, test.now)
			if test.later != nil {
				r.Edit(test.later)
			}
			before := r.State().Lease
			err := r.do(t, take)
			after := r.State().Lease
			if !test.taken {
				if !errors.Is(err, execute.ErrConflict) || !cmp.Equal(before, after) {
					t.Errorf("got %v, Lease changed: %s", err, cmp.Diff(before, after))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if after.Holder != fleet.LeaseHolder || !after.RenewTime.Equal(now) || after.Duration != 900*time.Second || !after.AcquireTime.Equal(test.acquired) {
				t.Errorf("got %+v", after)
			}
			if err := want(after.Annotations, map[string]string{
				fleet.LeaseSwapID: string(id), fleet.LeaseSwapNodes: "out,in", fleet.LeaseController: me, fleet.LeaseRecord: rec.String(),
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// R-E1-01, R-E1-05, R-228-06.
func TestARenewalKeepsEverythingButTheTime(t *testing.T) {
	r := newRig(t, nil)
	before := r.State().Lease.Lease
	if err := r.e.Renew(t.Context(), id, now); err != nil {
		t.Fatal(err)
	}
	wantLease := before
	wantLease.RenewTime = now
	if diff := cmp.Diff(wantLease, r.State().Lease.Lease); diff != "" {
		t.Error(diff)
	}
	r.Calls()
	if err := r.e.Renew(t.Context(), id, now); err != nil || len(r.writes()) != 0 {
		t.Errorf("renewed twice in a second: %v", err)
	}
	for name, change := range map[string]func(*clustertest.State){
		"another holder":     func(s *clustertest.State) { s.Lease.Holder = "stays" },
		"another swap":       func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseSwapID] = "x" },
		"another controller": func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController] = "x" },
		"no Lease":           func(s *clustertest.State) { s.Lease = observe.Lease{} },
	} {
		r := newRig(t, change)
		if err := r.e.Renew(t.Context(), id, now); !errors.Is(err, execute.ErrConflict) || len(r.writes()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// R-228-01, R-228-42.
func TestAReleasedLeaseCarriesNothingOfOurs(t *testing.T) {
	r := newRig(t, nil)
	release := swap.Action{Kind: swap.ReleaseLease}
	if err := r.do(t, release); err != nil {
		t.Fatal(err)
	}
	l := r.State().Lease.Lease
	if diff := cmp.Diff(lease.Lease{Exists: true, Annotations: map[string]string{"foreign": "kept"}}, l); diff != "" {
		t.Error(diff)
	}
	r.Calls()
	if err := r.do(t, release); err != nil || len(r.writes()) != 0 {
		t.Errorf("released twice: %v", err)
	}
	for name, change := range map[string]func(*clustertest.State){
		"another holder's":                func(s *clustertest.State) { s.Lease.Holder = "stays" },
		"another swap's":                  func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseSwapID] = "x" },
		"another controller's, and alive": func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController], s.Lease.RenewTime = "x", now },
	} {
		r := newRig(t, nil)
		r.Edit(change)
		if err := r.do(t, release); !errors.Is(err, execute.ErrConflict) || len(r.writes()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Safety rule 21: the former controller's next write fails.
func TestTakingOverASwap(t *testing.T) {
	other := func(s *clustertest.State) {
		s.Lease.Annotations[fleet.LeaseController] = "other"
		s.Nodes["out"].Annotations[keys.Controller()] = "other"
	}
	r := newRig(t, other)
	if err := r.do(t, swap.Action{Kind: swap.TakeOver, Node: "out"}); err != nil {
		t.Fatal(err)
	}
	if got := r.State().Nodes["out"].Annotations[keys.Controller()]; got != me {
		t.Errorf("controller is %q", got)
	}
	r = newRig(t, other)
	r.Edit(func(s *clustertest.State) { s.Lease.RenewTime = now })
	if err := r.do(t, swap.Action{Kind: swap.TakeOver, Node: "out"}); !errors.Is(err, execute.ErrConflict) {
		t.Errorf("the other is alive: %v", err)
	}
}

// Safety rule 16: what is owed after a swap, with the Lease free or run out.
func TestOwedCleanUpNeedsNoSwap(t *testing.T) {
	for name, l := range map[string]lease.Lease{
		"free": {Exists: true}, "none": {}, "run out": {Exists: true, Holder: "stays", Duration: time.Second, RenewTime: now.Add(-time.Hour)},
	} {
		r := newRig(t, func(s *clustertest.State) {
			s.Lease.Lease = l
			s.Nodes["out"] = observe.Node{Node: swap.Node{
				Unschedulable: true, Annotations: map[string]string{keys.Cordoned(): string(id)},
				Labels: map[string]string{fleet.LabelEtcd: "true"},
			}}
		})
		// One that the operator had cordoned keeps that cordon (safety rule 27).
		r.Edit(func(s *clustertest.State) {
			s.Nodes["operators"] = observe.Node{Node: swap.Node{
				Unschedulable: true, Labels: map[string]string{fleet.LabelEtcd: "true", keys.DesiredRole(): "agent"},
			}}
		})
		if err := r.do(t, swap.Action{Kind: swap.CleanNode, Node: "operators"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.do(t, swap.Action{Kind: swap.Uncordon, Node: "operators"}); !errors.Is(err, execute.ErrConflict) {
			t.Errorf("%s: the operator's cordon was taken: %v", name, err)
		}
		if n := r.State().Nodes["operators"]; !n.Unschedulable || n.Labels[fleet.LabelEtcd] != "" {
			t.Errorf("%s: got %+v", name, n)
		}
		for _, k := range []swap.Kind{swap.CleanNode, swap.Uncordon} {
			if err := r.do(t, swap.Action{Kind: k, Node: "out"}); err != nil {
				t.Errorf("%s, %s: %v", name, k, err)
			}
		}
		if n := r.State().Nodes["out"]; n.Unschedulable || len(n.Labels) != 0 || len(n.Annotations) != 0 {
			t.Errorf("%s: got %+v", name, n)
		}
		if err := r.do(t, swap.Action{Kind: swap.CleanNode, Node: "stays"}); !errors.Is(err, execute.ErrConflict) {
			t.Errorf("%s: a Node that owes nothing was cleaned: %v", name, err)
		}
	}
}

func TestDrain(t *testing.T) { // safety rule 20, R-I-07
	pod := func(name string, p observe.Pod) clustertest.Pod {
		p.Namespace, p.Name, p.UID = "ns", name, name
		return clustertest.Pod{Node: "out", Pod: p}
	}
	web := pod("web", observe.Pod{Owner: "ReplicaSet"})
	stay := []clustertest.Pod{
		pod("daemon", observe.Pod{Owner: "DaemonSet"}), pod("static", observe.Pod{Mirror: true, Owner: "Node"}),
		pod("leaving", observe.Pod{Owner: "ReplicaSet", Terminating: true}),
		pod("done", observe.Pod{Finished: true, Labels: map[string]string{"job": "1"}}),
	}
	blocked := pod("db", observe.Pod{Owner: "StatefulSet"})
	blocked.Budget = "budget db needs 2"
	for name, test := range map[string]struct {
		pods    []clustertest.Pod
		evicted int
		words   string
	}{
		"what may go goes":                    {append(slices.Clone(stay), web, pod("api", observe.Pod{Owner: "ReplicaSet"})), 2, ""},
		"nothing to do":                       {stay, 0, ""},
		"a job turned up":                     {[]clustertest.Pod{web, pod("job", observe.Pod{Owner: "Runner", Labels: map[string]string{"job": "1"}})}, 0, "running job"},
		"a job on its way out is still a job": {[]clustertest.Pod{web, pod("job", observe.Pod{Owner: "Runner", Terminating: true, Labels: map[string]string{"job": "1"}})}, 0, "running job"},
		"a pod nothing would make again":      {[]clustertest.Pod{web, pod("bare", observe.Pod{})}, 0, "no owner"},
		"a budget blocks one, so none is cut": {[]clustertest.Pod{web, blocked}, 0, "budget db needs 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(s *clustertest.State) {
				n := marked(map[string]string{keys.Cordoned(): string(id)})
				n.Unschedulable = true
				s.Nodes["out"], s.Pods = n, test.pods
			})
			eff, err := r.e.Do(t.Context(), swap.Action{Kind: swap.Drain, Node: "out", Swap: id}, r.o)
			if (test.words == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), test.words)) {
				t.Errorf("got %v, want %q", err, test.words)
			}
			if eff.Evicted != test.evicted || len(r.State().Pods) != len(test.pods)-test.evicted {
				t.Errorf("%d evicted, %d left of %d", eff.Evicted, len(r.State().Pods), len(test.pods))
			}
		})
	}
	r := newRig(t, func(s *clustertest.State) { s.Pods = []clustertest.Pod{web} })
	if err := r.do(t, swap.Action{Kind: swap.Drain, Node: "out"}); !errors.Is(err, execute.ErrConflict) || len(r.State().Pods) != 1 {
		t.Errorf("a Node without a cordon was drained: %v", err)
	}
}

func TestAFailedActionSaysWhatAndWhere(t *testing.T) { // R-228-21, R-228-42
	for call, kind := range map[string]swap.Kind{
		"Lease": swap.Cordon, "Node in": swap.Cordon, "PatchNode in": swap.Cordon, "PutLease": swap.ReleaseLease,
		"Pods in": swap.Drain, "PatchConfigMap " + fleet.ConfigMapStatus: swap.Conclude,
	} {
		r := newRig(t, func(s *clustertest.State) {
			if kind == swap.Drain {
				n := marked(nil)
				n.Unschedulable = true
				s.Nodes["in"] = n
			}
		})
		r.Hook = func(c string) error {
			if c == call {
				return errors.New("no answer")
			}
			return nil
		}
		err := r.do(t, swap.Action{Kind: kind, Node: "in", Last: &status.LastSwap{ID: id}})
		if err == nil || errors.Is(err, execute.ErrConflict) || !strings.Contains(err.Error(), string(kind)) || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%s: got %v", call, err)
		}
	}
}

func TestConcludePublishesTheOutcome(t *testing.T) {
	r := newRig(t, func(s *clustertest.State) {
		s.Maps[fleet.ConfigMapStatus].Data[fleet.KeyRequest] = `{"out":"a"}`
	})
	last := status.LastSwap{ID: id, Out: "out", In: "in", Outcome: fleet.OutcomeCompleted, EndedAt: now}
	if err := r.do(t, swap.Action{Kind: swap.Conclude, Last: &last}); err != nil {
		t.Fatal(err)
	}
	data := r.State().Maps[fleet.ConfigMapStatus].Data
	st, err := status.ParseStatus([]byte(data[fleet.KeyStatus]))
	if err != nil || st.LastSwap == nil || st.LastSwap.Outcome != fleet.OutcomeCompleted || !st.CooldownUntil.After(now) || st.Controller != me {
		t.Errorf("got %+v, %v", st, err)
	}
	if data[fleet.KeyRequest] != `{"out":"a"}` {
		t.Error("the request was touched") // R-228-10
	}
}

func TestOnlyTheJudgedRequestIsDropped(t *testing.T) {
	ask := func(out string) string {
		raw, err := json.Marshal(status.Request{Out: out, In: "in", At: now})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	judged := &status.Request{Out: "out", In: "in", At: now}
	for name, test := range map[string]struct {
		stands  string
		req     *status.Request
		problem string
		dropped bool
	}{
		"the one that was judged":    {ask("out"), judged, "", true},
		"a newer one":                {ask("other"), judged, "", false},
		"a malformed one":            {"{", nil, "no JSON", true},
		"a good one after a bad one": {ask("out"), nil, "no JSON", false},
		"a bad one after a good one": {"{", judged, "", false},
	} {
		r := newRig(t, func(s *clustertest.State) { s.Maps[fleet.ConfigMapStatus].Data[fleet.KeyRequest] = test.stands })
		r.o.Request, r.o.RequestProblem = test.req, test.problem
		err := r.do(t, swap.Action{Kind: swap.DropRequest})
		_, there := r.State().Maps[fleet.ConfigMapStatus].Data[fleet.KeyRequest]
		if there == test.dropped || (err == nil) != test.dropped {
			t.Errorf("%s: %v, still there %v", name, err, there)
		}
	}
	r := newRig(t, nil)
	if err := r.do(t, swap.Action{Kind: swap.DropRequest}); err != nil || len(r.writes()) != 0 {
		t.Errorf("none there: %v", err)
	}
}

func TestAnActionThatMakesNoSenseIsRefused(t *testing.T) {
	for name, a := range map[string]swap.Action{
		"an unknown kind":           {Kind: "dance", Node: "out"},
		"an unknown step":           {Kind: swap.Order, Node: "out", Step: "jump"},
		"a finish as an order":      {Kind: swap.Order, Node: "out", Step: fleet.StepFinishDemote},
		"a record that is missing":  {Kind: swap.WriteRecord, Node: "out"},
		"a Lease without a record":  {Kind: swap.TakeLease},
		"a Lease of another record": {Kind: swap.TakeLease, Swap: "x", Record: &rec},
		"a repair without a name":   {Kind: swap.RepairMember, Node: "in", MemberAddress: "b"},
		"a conclusion of nothing":   {Kind: swap.Conclude},
	} {
		r := newRig(t, nil)
		if err := r.do(t, a); err == nil {
			t.Errorf("%s: no error", name)
		}
		if w := r.writes(); len(w) != 0 {
			t.Errorf("%s: wrote %q", name, w)
		}
	}
}

// Safety rules 21 and 25: the Lease says first how a swap ended, which only its
// controller can write; and no status is written over one that was not read.
func TestAnOutcomeIsWrittenByWhoHasTheLease(t *testing.T) {
	last := status.LastSwap{ID: id, Out: "out", In: "in", Outcome: fleet.OutcomeAbandoned, EndedAt: now}
	conclude := swap.Action{Kind: swap.Conclude, Last: &last}
	t.Run("it stands on the Lease before the status is written", func(t *testing.T) {
		r := newRig(t, nil)
		onLease := ""
		r.Hook = func(call string) error {
			if call == "PatchConfigMap "+fleet.ConfigMapStatus {
				onLease = r.State().Lease.Annotations[fleet.LeaseOutcome]
			}
			return nil
		}
		if err := r.do(t, conclude); err != nil {
			t.Fatal(err)
		}
		if got, err := status.ParseOutcome(onLease); err != nil || got.ID != id || got.Outcome != fleet.OutcomeAbandoned {
			t.Errorf("the Lease said %q, %v", onLease, err)
		}
	})
	for name, between := range map[string]func(*clustertest.State){
		"another controller takes the Lease meanwhile": func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController] = "another" },
		"another status is published meanwhile": func(s *clustertest.State) {
			st, err := json.Marshal(status.Status{Protocol: status.Protocol, At: now.Add(time.Minute), Controller: "another"})
			if err != nil {
				t.Fatal(err)
			}
			m := s.Maps[fleet.ConfigMapStatus]
			m.Data[fleet.KeyStatus] = string(st)
			s.Maps[fleet.ConfigMapStatus] = m
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			asked := false
			r.Hook = func(call string) error {
				if call == "Lease" && !asked {
					asked = true
					r.Edit(between)
				}
				return nil
			}
			before := r.State().Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]
			if err := r.do(t, conclude); err == nil {
				t.Error("it was concluded")
			}
			now := r.State().Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]
			if st, err := status.ParseStatus([]byte(now)); now != before && (err != nil || st.Controller != "another") {
				t.Errorf("the status is %s", now)
			}
		})
	}
}
