package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// Etcd is what the controllers need of etcd.
type Etcd interface {
	Members(ctx context.Context) ([]membership.Member, error)
	// Leader is the leader's member id as the local member knows it.
	Leader(ctx context.Context) (uint64, error)
	// MoveLeader asks the leader at its own client URL.
	MoveLeader(ctx context.Context, leader, to membership.Member) error
	Remove(ctx context.Context, id uint64) error
}

// RemoveMembers is the member controller, run by the holder of Lease kube-system/k3s-etcd: removal by annotation,
// removal on Node deletion and its finalizer on every Node (k3s facts §5.1, §5.5).
func RemoveMembers(ctx context.Context, n *Nodes, etcd Etcd, moveLeader, dropRequest bool) error {
	m := &members{n: n, etcd: etcd, moveLeader: moveLeader, dropRequest: dropRequest}
	n.Log.Info("Starting managed etcd member removal controller")
	return n.Handle(ctx, "managed-etcd-controller", m.sync)
}

type members struct {
	n                       *Nodes
	etcd                    Etcd
	moveLeader, dropRequest bool
}

func (m *members) sync(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp != nil {
		return m.deleted(ctx, node)
	}
	if !slices.Contains(node.Finalizers, membership.EtcdFinalizer) {
		if err := setFinalizers(ctx, m.n.Client, node, append(node.Finalizers, membership.EtcdFinalizer)); err != nil {
			return err
		}
	}
	name := node.Annotations[membership.NameAnnotation]
	switch membership.Decide(view(node)) {
	case membership.Retry:
		return membership.ErrMissing
	case membership.Swallow:
		return patchMetadata(ctx, m.n.Client, node.Name, nil, membership.Swallowed())
	case membership.Remove:
		m.n.Log.Info("Removing etcd member", "member", name, "node", node.Name)
		err := m.remove(ctx, name, node.Annotations[membership.AddressAnnotation])
		if membership.IsNotEnough(err) {
			m.n.Log.Error("etcd member removal rejected by cluster", "member", name, "error", err)
			return patchMetadata(ctx, m.n.Client, node.Name, nil, membership.Refused())
		}
		if err != nil {
			return err
		}
		return patchMetadata(ctx, m.n.Client, node.Name, nil, membership.Removed(name, m.dropRequest))
	case membership.Nothing, membership.Release:
	}
	return nil
}

func (m *members) deleted(ctx context.Context, node *corev1.Node) error {
	i := slices.Index(node.Finalizers, membership.EtcdFinalizer)
	if i < 0 {
		return nil
	}
	switch membership.Decide(view(node)) {
	case membership.Retry:
		return membership.ErrMissing
	case membership.Remove:
		name := node.Annotations[membership.NameAnnotation]
		m.n.Log.Info("Removing etcd member of a deleted node", "member", name, "node", node.Name)
		if err := m.remove(ctx, name, node.Annotations[membership.AddressAnnotation]); err != nil {
			return err
		}
	case membership.Nothing, membership.Release, membership.Swallow:
	}
	return setFinalizers(ctx, m.n.Client, node, slices.Delete(node.Finalizers, i, i+1))
}

// remove is steps 3 to 5: no matching member counts as success.
func (m *members) remove(ctx context.Context, name, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	list, err := m.etcd.Members(ctx)
	if err != nil {
		return err
	}
	victim, found := membership.Find(list, name, address)
	if !found {
		return nil
	}
	if m.moveLeader {
		leader, err := m.etcd.Leader(ctx)
		if err != nil {
			return err
		}
		if leader == victim.ID {
			to, err := membership.NewLeader(list, victim.ID)
			if err != nil {
				return err
			}
			m.n.Log.Info("Moving etcd leadership", "from", victim.Name, "to", to.Name)
			if err := m.etcd.MoveLeader(ctx, victim, to); err != nil {
				return fmt.Errorf("move etcd leadership to %s: %w", to.Name, err)
			}
		}
	}
	return m.etcd.Remove(ctx, victim.ID)
}

// KeepNodeFinalizer is the node controller's share of Node deletion: its finalizer is on every Node and goes when the
// Node is deleted.
func KeepNodeFinalizer(ctx context.Context, n *Nodes) error {
	return n.Handle(ctx, "node", func(ctx context.Context, node *corev1.Node) error {
		i := slices.Index(node.Finalizers, membership.NodeFinalizer)
		switch {
		case node.DeletionTimestamp == nil && i < 0:
			return setFinalizers(ctx, n.Client, node, append(node.Finalizers, membership.NodeFinalizer))
		case node.DeletionTimestamp != nil && i >= 0:
			return setFinalizers(ctx, n.Client, node, slices.Delete(node.Finalizers, i, i+1))
		default:
			return nil
		}
	})
}
