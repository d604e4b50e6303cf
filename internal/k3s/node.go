package k3s

import "github.com/exadev/regrade/internal/fleet"

// Node is what the API has of a host that k3s runs on, as far as its setup goes.
type Node struct {
	Name string
	// Internal and External are its addresses in the order in which the Node has them.
	Internal, External  []string
	Labels, Annotations map[string]string
	// Version is k3s's, OSImage the name of the system that the kubelet sees: in k3s's
	// own image that is k3s.
	Version, OSImage string
}

// Server says whether it is labelled as one. A server that became an agent may keep
// these labels (k3s-facts §6.1).
func (n Node) Server() bool {
	return n.Labels[fleet.LabelControlPlane] != "" || n.Labels[fleet.LabelEtcd] != ""
}
