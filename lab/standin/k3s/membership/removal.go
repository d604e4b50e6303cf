package membership

import (
	"errors"
	"strings"
)

// Node is what the member controller reads of a Node.
type Node struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Deleting    bool
}

// Action is what the member controller does about one Node.
type Action string

// The actions of the member controller.
const (
	// Nothing: not an etcd Node, no request, or a request for a member that is already gone.
	Nothing Action = "nothing"
	// Retry: node-name or node-address is missing; an error until they appear.
	Retry Action = "retry"
	// Swallow: an old removed-node-name is on the Node, so the request is wiped and nothing is removed.
	Swallow Action = "swallow"
	// Remove: remove the member, then patch.
	Remove Action = "remove"
	// Release: the Node is being deleted and nothing has to be removed; drop the finalizer.
	Release Action = "release"
)

// ErrMissing is the error behind Retry.
var ErrMissing = errors.New("node name or address annotation is not set on the node")

// Decide is steps 1 and 2 of the member controller, and its handling of a deleted Node (k3s facts §5.1, §5.5).
func Decide(n Node) Action {
	_, etcd := n.Labels[EtcdLabel]
	name, address := n.Annotations[NameAnnotation], n.Annotations[AddressAnnotation]
	removed, hasRemoved := n.Annotations[RemovedNameAnnotation]

	if n.Deleting {
		switch {
		case !etcd, removed != "":
			return Release
		case name == "" || address == "":
			return Retry
		default:
			return Remove
		}
	}
	if !etcd || !strings.EqualFold(n.Annotations[RemoveAnnotation], "true") {
		return Nothing
	}
	if name == "" || address == "" {
		return Retry
	}
	if hasRemoved {
		if removed == name {
			return Nothing
		}
		return Swallow
	}
	return Remove
}

// Find looks for the member of that name at that address. No match is k3s's false success: a wrong address counts as
// removed.
func Find(members []Member, name, address string) (Member, bool) {
	for _, m := range members {
		if m.Name == name && m.at(address) {
			return m, true
		}
	}
	return Member{}, false
}

// ErrNotEnough is etcd's and k3s's word for the last voter. It clears the request instead of repeating it.
var ErrNotEnough = errors.New("etcdserver: re-configuration failed due to not enough started members")

// IsNotEnough recognises the error from etcd's client too.
func IsNotEnough(err error) bool {
	return err != nil && (errors.Is(err, ErrNotEnough) || strings.Contains(err.Error(), "not enough started members"))
}

// NewLeader is the member leadership moves to before the leader is removed: the first other voter in list order,
// dead or not.
func NewLeader(members []Member, leader uint64) (Member, error) {
	for _, m := range members {
		if !m.Learner && m.ID != leader {
			return m, nil
		}
	}
	return Member{}, ErrNotEnough
}

// Patch lists the annotations to change on a Node: an empty pointer deletes.
type Patch map[string]*string

// Removed is the patch after a removal. Before 1.34.2 the request stayed (dropRequest false).
func Removed(name string, dropRequest bool) Patch {
	p := Patch{RemovedNameAnnotation: &name, NameAnnotation: nil, AddressAnnotation: nil}
	if dropRequest {
		p[RemoveAnnotation] = nil
	}
	return p
}

// Swallowed is the patch that wipes a request on a Node with an old removed-node-name.
func Swallowed() Patch { return Patch{RemovedNameAnnotation: nil, RemoveAnnotation: nil} }

// Refused is the patch after "not enough started members": the requester must ask again.
func Refused() Patch { return Patch{RemoveAnnotation: nil} }

// Claim is the patch a live etcd server writes on its own Node, and whether the label has to be set; nothing to do
// where both are false and empty (k3s facts §6.2).
func Claim(n Node, name, address string) (Patch, bool) {
	p := Patch{}
	if n.Annotations[NameAnnotation] != name {
		p[NameAnnotation] = &name
	}
	if n.Annotations[AddressAnnotation] != address {
		p[AddressAnnotation] = &address
	}
	return p, n.Labels[EtcdLabel] != "true"
}
