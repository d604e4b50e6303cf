package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// ClaimNode keeps the etcd label and annotations on this server's own Node on every event, also after the server was
// removed from the cluster, until the process ends (k3s facts §6.2).
func ClaimNode(ctx context.Context, n *Nodes, node, member, address string) error {
	return n.Handle(ctx, "managed-etcd-metadata-controller", func(ctx context.Context, o *corev1.Node) error {
		if o.Name != node || o.DeletionTimestamp != nil {
			return nil
		}
		annotations, label := membership.Claim(view(o), member, address)
		if len(annotations) == 0 && !label {
			return nil
		}
		labels := map[string]*string{}
		if label {
			yes := "true"
			labels[membership.EtcdLabel] = &yes
		}
		return patchMetadata(ctx, n.Client, node, labels, annotations)
	})
}

// UnclaimNode removes the etcd label and annotations from this server's own Node: what a server with --disable-etcd
// does. The condition stays, as k3s patches it on the main resource, where Kubernetes drops it.
func UnclaimNode(ctx context.Context, n *Nodes, node string) error {
	return n.Handle(ctx, "managed-etcd-metadata-controller", func(ctx context.Context, o *corev1.Node) error {
		if o.Name != node || o.DeletionTimestamp != nil {
			return nil
		}
		labels, annotations := map[string]*string{}, map[string]*string{}
		if _, has := o.Labels[membership.EtcdLabel]; has {
			labels[membership.EtcdLabel] = nil
		}
		for _, a := range []string{membership.NameAnnotation, membership.AddressAnnotation} {
			if _, has := o.Annotations[a]; has {
				annotations[a] = nil
			}
		}
		if len(labels)+len(annotations) == 0 {
			return nil
		}
		return patchMetadata(ctx, n.Client, node, labels, annotations)
	})
}

// LabelControlPlane sets the control-plane label once per start, tried every second. Nobody removes it.
func LabelControlPlane(ctx context.Context, n *Nodes, node string) {
	for {
		o, err := n.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && o.Labels[membership.ControlPlaneLabel] == "true" {
			return
		}
		if err == nil {
			yes := "true"
			if err = patchMetadata(ctx, n.Client, node, map[string]*string{membership.ControlPlaneLabel: &yes}, nil); err == nil {
				n.Log.Info("Labels and annotations have been set successfully on node: " + node)
				return
			}
		}
		n.Log.Info("Waiting for control-plane node to be registered", "node", node, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}
