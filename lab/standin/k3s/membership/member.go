// Package membership holds k3s's rules about etcd members as pure functions: joining, removal by annotation, removal
// on Node deletion, learners and the EtcdIsVoter condition (k3s facts §3.3, §4, §5). Deliberate faults of k3s are kept.
package membership

import (
	"net/url"
	"strings"
)

// Labels and annotations on Nodes.
const (
	EtcdLabel         = "node-role.kubernetes.io/etcd"
	ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

	RemoveAnnotation      = "etcd.k3s.cattle.io/remove"
	RemovedNameAnnotation = "etcd.k3s.cattle.io/removed-node-name"
	NameAnnotation        = "etcd.k3s.cattle.io/node-name"
	AddressAnnotation     = "etcd.k3s.cattle.io/node-address"
)

// Finalizers k3s's leader-elected controllers put on every Node (k3s facts §5.5).
const (
	EtcdFinalizer = "wrangler.cattle.io/managed-etcd-controller"
	NodeFinalizer = "wrangler.cattle.io/node"
)

// Member is one entry of etcd's member list, in the list's own order.
type Member struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
}

// at says whether one of the member's peer URLs has this host.
func (m Member) at(address string) bool {
	for _, p := range m.PeerURLs {
		if hostOf(p) == address {
			return true
		}
	}
	return false
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// baseName is a member name without its last -xxxxxxxx part.
func baseName(member string) string {
	if i := strings.LastIndex(member, "-"); i > 0 {
		return member[:i]
	}
	return member
}
