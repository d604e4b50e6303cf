package execute

import (
	"context"
	"errors"

	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// Cluster is what actions read again and write. Reads are from a quorum.
type Cluster interface {
	// Node reads one Node; found is false when there is none.
	Node(ctx context.Context, name string) (node observe.Node, found bool, err error)
	Lease(ctx context.Context) (observe.Lease, error)
	ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error)
	Pods(ctx context.Context, node string) ([]observe.Pod, error)
	TryEvict(ctx context.Context, pod observe.Pod) (refusal string, err error)

	// Evict evicts a pod. refusal is as in TryEvict; a pod that is gone is evicted.
	Evict(ctx context.Context, pod observe.Pod) (refusal string, err error)
	// PatchNode changes a Node if its resourceVersion is still version, in one
	// write. ErrConflict says that it is not, or that the Node is gone.
	PatchNode(ctx context.Context, name, version string, p NodePatch) error
	// PutLease writes the regrade Lease as given: holder, times, duration and
	// annotations. An empty version creates it. ErrConflict says that the Lease
	// has changed, has gone, or exists after all.
	PutLease(ctx context.Context, version string, l lease.Lease) error
	// PatchConfigMap sets the given keys of a ConfigMap in regrade's namespace
	// and leaves all others; nil deletes a key. A ConfigMap that does not exist
	// is made. version, when not empty, is tested as in PatchNode.
	PatchConfigMap(ctx context.Context, name, version string, keys map[string]*string) error
}

// ErrConflict is a write that was refused because its object has changed since
// it was read. Nothing was written.
var ErrConflict = errors.New("changed since it was read")

// NodePatch is one change of a Node. Nil and empty fields change nothing.
type NodePatch struct {
	// Labels and Annotations to set; nil deletes a key.
	Labels      map[string]*string
	Annotations map[string]*string
	// Unschedulable is spec.unschedulable.
	Unschedulable *bool
	// AddTaint replaces a taint of the same key and effect, or is added.
	AddTaint *swap.Taint
	// DropTaint removes every taint of this key and leaves all others as they are.
	DropTaint string
}
