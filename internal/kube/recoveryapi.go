package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/status"
)

// RecoveryAPI is the half of `regrade recovery`. It needs list and patch on nodes
// (delete as well where it prunes), get on the regrade Lease by name (R-B-01), list on
// the Leases of regrade's namespace and on the kubelets', and for evidence get on the
// probes' ConfigMap by name; create on events for what it tells.
type RecoveryAPI struct {
	k    *Client
	core rest.Interface
	mark []string
	// size is how many Nodes the last list had.
	size atomic.Int64
}

// NewRecoveryAPI makes one on a connection. An empty namespace is
// fleet.DefaultNamespace; marks are the annotations of Nodes that are read whole though
// they are Ready.
func NewRecoveryAPI(conn *Connection, namespace string, marks ...string) *RecoveryAPI {
	return &RecoveryAPI{k: NewClient(conn, Options{Namespace: namespace}), core: conn.core, mark: marks}
}

// Requests counts the requests sent so far.
func (r *RecoveryAPI) Requests() int64 { return r.k.Requests() }

// Date implements recovery.Cluster.
func (r *RecoveryAPI) Date() time.Time { return r.k.Date() }

// Lease implements recovery.Cluster. A Lease that is not there is its zero value.
func (r *RecoveryAPI) Lease(ctx context.Context) (observe.Lease, error) { return r.k.Lease(ctx) }

// ConfigMap implements recovery.Cluster.
func (r *RecoveryAPI) ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error) {
	return r.k.ConfigMap(ctx, name)
}

// Heartbeats implements recovery.Cluster.
func (r *RecoveryAPI) Heartbeats(ctx context.Context) ([]observe.Heartbeat, error) {
	return r.k.Heartbeats(ctx)
}

// KubeletLeases implements recovery.Cluster: one list, from a quorum.
func (r *RecoveryAPI) KubeletLeases(ctx context.Context) (map[string]time.Time, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list coordinationv1.LeaseList
	if err := r.k.c.List(ctx, &list, client.InNamespace(fleet.KubeletLeaseNamespace)); err != nil {
		return nil, fmt.Errorf("list Leases in %s: %w", fleet.KubeletLeaseNamespace, err)
	}
	renewed := make(map[string]time.Time, len(list.Items))
	for i := range list.Items {
		if at := list.Items[i].Spec.RenewTime; at != nil {
			renewed[list.Items[i].Name] = at.UTC()
		}
	}
	return renewed, nil
}

// Tell implements recovery.Teller.
func (r *RecoveryAPI) Tell(ctx context.Context, e status.Event) error { return r.k.Tell(ctx, e) }

// Nodes implements recovery.Cluster: one list, from a quorum. Of a Node that is Ready
// and unmarked there is the name alone.
func (r *RecoveryAPI) Nodes(ctx context.Context) ([]recover.Node, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	body, err := r.core.Get().Resource("nodes").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	defer func() { _ = body.Close() }()
	nodes := make([]recover.Node, 0, r.size.Load()+1)
	err = readNodes(body, r.mark, func(n *corev1.Node) { nodes = append(nodes, recoverable(n)) })
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	r.size.Store(int64(len(nodes)))
	return nodes, nil
}

func recoverable(n *corev1.Node) recover.Node {
	o := recover.Node{
		Name: n.Name, UID: string(n.UID), Version: n.ResourceVersion, Labels: n.Labels, Annotations: n.Annotations,
		Deleting: n.DeletionTimestamp != nil,
	}
	for _, t := range n.Spec.Taints {
		x := recover.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
		if t.TimeAdded != nil {
			x.Added = t.TimeAdded.UTC()
		}
		o.Taints = append(o.Taints, x)
	}
	for i := range n.Status.Conditions {
		switch c := &n.Status.Conditions[i]; c.Type {
		case corev1.NodeReady:
			o.Ready, o.Since = recover.Ready(c.Status), c.LastTransitionTime.UTC()
		case fleet.ConditionEtcdIsVoter:
			o.EtcdIsVoter = string(c.Status)
		}
	}
	return o
}

// Write implements recovery.Cluster: one request, which another resourceVersion than
// the one that was read refuses with execute.ErrConflict. A patch names the
// annotations that change, and all taints, for a list is replaced whole.
func (r *RecoveryAPI) Write(ctx context.Context, w recover.Write) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node}}
	if w.Version == "" {
		return fmt.Errorf("write node %s: it was read without a resourceVersion", w.Node)
	}
	if w.Delete {
		uid := types.UID(w.UID)
		return written("delete node "+w.Node, r.k.c.Delete(ctx, n, client.Preconditions{UID: &uid, ResourceVersion: &w.Version}))
	}
	taints := make([]corev1.Taint, len(w.Taints))
	for i, t := range w.Taints {
		taints[i] = corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
		if !t.Added.IsZero() {
			taints[i].TimeAdded = &metav1.Time{Time: t.Added}
		}
	}
	annotations := map[string]*string{w.Annotation: w.Mark}
	for _, key := range w.Drop {
		annotations[key] = nil
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": w.Version,
			"annotations":     annotations,
		},
		"spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("patch node %s: %w", w.Node, err)
	}
	return written("patch node "+w.Node, r.k.c.Patch(ctx, n, client.RawPatch(types.MergePatchType, raw)))
}
