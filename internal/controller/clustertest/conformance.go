package clustertest

import (
	"errors"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// Subject is what the suite is run on: a cluster with a Node "n1" that has the
// label keep=1, the annotation keep=1, a foreign taint, and is schedulable, and
// nothing else.
type Subject interface {
	observe.Cluster
	execute.Cluster
}

// Conformance is what every implementation of the ports has to do alike.
func Conformance(t *testing.T, fresh func(t *testing.T) Subject) {
	t.Run("a Node patch changes what it names and nothing else", func(t *testing.T) {
		c, ctx := fresh(t), t.Context()
		n := node(t, c)
		taint := swap.Taint{Key: "ours", Value: "v", Effect: "NoSchedule"}
		err := c.PatchNode(ctx, "n1", n.Version, execute.NodePatch{
			Labels: map[string]*string{"a": new("1"), "absent": nil}, Annotations: map[string]*string{"b": new("2")},
			Unschedulable: new(true), AddTaint: &taint,
		})
		if err != nil {
			t.Fatal(err)
		}
		n = node(t, c)
		if n.Labels["a"] != "1" || n.Labels["keep"] != "1" || n.Annotations["b"] != "2" || n.Annotations["keep"] != "1" || !n.Unschedulable || len(n.Taints) != 2 {
			t.Errorf("got %+v", n)
		}
		err = c.PatchNode(ctx, "n1", n.Version, execute.NodePatch{
			Labels: map[string]*string{"a": nil}, Annotations: map[string]*string{"b": nil}, Unschedulable: new(false), DropTaint: "ours",
		})
		if err != nil {
			t.Fatal(err)
		}
		n = node(t, c)
		if _, ok := n.Labels["a"]; ok || n.Annotations["b"] != "" || n.Unschedulable || len(n.Taints) != 1 || n.Taints[0].Key == "ours" {
			t.Errorf("got %+v", n)
		}
	})
	t.Run("a Node patch on a stale version is refused and changes nothing", func(t *testing.T) { // safety rule 21
		c, ctx := fresh(t), t.Context()
		old := node(t, c)
		if err := c.PatchNode(ctx, "n1", old.Version, execute.NodePatch{Labels: map[string]*string{"a": new("1")}}); err != nil {
			t.Fatal(err)
		}
		err := c.PatchNode(ctx, "n1", old.Version, execute.NodePatch{Labels: map[string]*string{"a": new("2")}})
		if !errors.Is(err, execute.ErrConflict) {
			t.Errorf("got %v, want a conflict", err)
		}
		if got := node(t, c).Labels["a"]; got != "1" {
			t.Errorf("label is %q, want 1", got)
		}
		if err := c.PatchNode(ctx, "gone", "1", execute.NodePatch{}); !errors.Is(err, execute.ErrConflict) {
			t.Errorf("a Node that is gone: got %v, want a conflict", err)
		}
		if _, found, err := c.Node(ctx, "gone"); found || err != nil {
			t.Errorf("found %v, error %v", found, err)
		}
	})
	t.Run("a Lease is made, kept and refused to a stale writer", func(t *testing.T) {
		c, ctx := fresh(t), t.Context()
		l, err := c.Lease(ctx)
		if err != nil || l.Exists || l.Version != "" {
			t.Fatalf("got %+v, %v: want none", l, err)
		}
		at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		want := lease.Lease{
			Exists: true, Holder: fleet.LeaseHolder, RenewTime: at, AcquireTime: at, Duration: 900 * time.Second,
			Annotations: map[string]string{fleet.LeaseSwapID: "x"},
		}
		if err := c.PutLease(ctx, "", want); err != nil {
			t.Fatal(err)
		}
		if err := c.PutLease(ctx, "", want); !errors.Is(err, execute.ErrConflict) {
			t.Errorf("made twice: got %v, want a conflict", err)
		}
		l, err = c.Lease(ctx)
		if err != nil || l.Holder != want.Holder || !l.RenewTime.Equal(at) || !l.AcquireTime.Equal(at) || l.Duration != want.Duration || l.Annotations[fleet.LeaseSwapID] != "x" {
			t.Errorf("got %+v, %v", l, err)
		}
		if err := c.PutLease(ctx, l.Version, lease.Lease{Exists: true}); err != nil {
			t.Fatal(err)
		}
		if err := c.PutLease(ctx, l.Version, want); !errors.Is(err, execute.ErrConflict) {
			t.Errorf("stale: got %v, want a conflict", err)
		}
		l, err = c.Lease(ctx)
		if err != nil || l.Holder != "" || !l.RenewTime.IsZero() || l.Duration != 0 || l.Annotations[fleet.LeaseSwapID] != "" {
			t.Errorf("released: got %+v, %v", l, err)
		}
	})
	t.Run("a ConfigMap is made when absent and patched by key", func(t *testing.T) { // R-228-10
		c, ctx := fresh(t), t.Context()
		m, err := c.ConfigMap(ctx, "m")
		if err != nil || m.Exists {
			t.Fatalf("got %+v, %v: want none", m, err)
		}
		if err := c.PatchConfigMap(ctx, "m", "", map[string]*string{"a": new("1"), "b": new("2"), "none": nil}); err != nil {
			t.Fatal(err)
		}
		if err := c.PatchConfigMap(ctx, "m", "", map[string]*string{"a": nil, "c": new("3")}); err != nil {
			t.Fatal(err)
		}
		m, err = c.ConfigMap(ctx, "m")
		if err != nil || !m.Exists || len(m.Data) != 2 || m.Data["b"] != "2" || m.Data["c"] != "3" {
			t.Errorf("got %+v, %v", m, err)
		}
		old := m.Version
		if err := c.PatchConfigMap(ctx, "m", old, map[string]*string{"b": new("4")}); err != nil {
			t.Fatal(err)
		}
		if err := c.PatchConfigMap(ctx, "m", old, map[string]*string{"b": nil}); !errors.Is(err, execute.ErrConflict) {
			t.Errorf("stale: got %v, want a conflict", err)
		}
		if err := c.PatchConfigMap(ctx, "empty", "", nil); err != nil {
			t.Fatal(err)
		}
		if m, err := c.ConfigMap(ctx, "empty"); err != nil || !m.Exists || len(m.Data) != 0 {
			t.Errorf("got %+v, %v: want an empty one", m, err)
		}
	})
}

func node(t *testing.T, c Subject) observe.Node {
	t.Helper()
	n, found, err := c.Node(t.Context(), "n1")
	if err != nil || !found {
		t.Fatalf("Node n1: found %v, %v", found, err)
	}
	return n
}
