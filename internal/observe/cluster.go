package observe

import (
	"context"
	"time"

	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/swap"
)

// Cluster is what an observation reads. Every read is from a quorum (safety
// rule 23) and ends by itself within seconds. An object that does not exist is
// an answer, not an error; an error means that nobody knows.
type Cluster interface {
	// Nodes are all Nodes, in any order.
	Nodes(ctx context.Context) ([]Node, error)
	// Lease is kube-system/fleet-regrade, its zero value when there is none.
	Lease(ctx context.Context) (Lease, error)
	// ConfigMap is a ConfigMap in regrade's namespace.
	ConfigMap(ctx context.Context, name string) (ConfigMap, error)
	// Heartbeats are the heartbeat Leases of host daemons and probes in regrade's
	// namespace, found by fleet.HeartbeatLabel, in any order.
	Heartbeats(ctx context.Context) ([]Heartbeat, error)
	// Pods are all pods bound to a node, finished ones included.
	Pods(ctx context.Context, node string) ([]Pod, error)
	// TryEvict is an eviction as a dry run. refusal is the API server's words
	// when it would not evict, such as the name of a disruption budget; a pod
	// that is gone is not refused.
	TryEvict(ctx context.Context, pod Pod) (refusal string, err error)
	// KubeletRenewed is the renew time of a node's Lease in kube-node-lease,
	// zero when it has none.
	KubeletRenewed(ctx context.Context, node string) (time.Time, error)
	// Snapshots are all ETCDSnapshotFile objects. A cluster that does not know
	// the kind has none.
	Snapshots(ctx context.Context) ([]swap.Snapshot, error)
	// Date is the API server's clock as its last answer gave it, in whole
	// seconds; zero before the first answer. It sends nothing.
	Date() time.Time
}

// Node is a Node object. Version is its resourceVersion.
type Node struct {
	Name    string
	Version string
	swap.Node
}

// Lease is the regrade Lease with its resourceVersion, which is empty when the
// Lease does not exist.
type Lease struct {
	lease.Lease
	Version string
}

// ConfigMap is a ConfigMap's text with its resourceVersion. Exists tells an
// empty one from none.
type ConfigMap struct {
	Exists  bool
	Version string
	Data    map[string]string
}

// Heartbeat is a host daemon's or a probe's Lease: what it vouches for, and when it
// was last renewed by the host's clock, which is only ever compared with its
// own former value.
type Heartbeat struct {
	Node string
	// Probe: it is the probe's, not the host daemon's.
	Probe   bool
	BootID  string
	Counter string // decimal, as in the annotation
	Renewed time.Time
}

// Pod is a pod as the API server holds it.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	Labels    map[string]string
	// Finished: phase Succeeded or Failed.
	Finished bool
	// Mirror: a static pod's copy, which no eviction ends.
	Mirror bool
	// Owner is the kind of the controlling owner, such as ReplicaSet, or empty.
	Owner string
	// Terminating: it has a deletion timestamp.
	Terminating bool
}
