package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/exadev/regrade/internal/k3s"
)

// SetupNodes are the cluster's Nodes as far as the setup of their hosts goes: one list.
// It needs list on nodes.
func (k *Client) SetupNodes(ctx context.Context) ([]k3s.Node, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list corev1.NodeList
	if err := k.c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]k3s.Node, len(list.Items))
	for i := range list.Items {
		n := &list.Items[i]
		nodes[i] = k3s.Node{
			Name: n.Name, Labels: n.Labels, Annotations: n.Annotations, Version: n.Status.NodeInfo.KubeletVersion, OSImage: n.Status.NodeInfo.OSImage,
		}
		for _, a := range n.Status.Addresses {
			switch a.Type {
			case corev1.NodeInternalIP:
				nodes[i].Internal = append(nodes[i].Internal, a.Address)
			case corev1.NodeExternalIP:
				nodes[i].External = append(nodes[i].External, a.Address)
			}
		}
	}
	return nodes, nil
}
