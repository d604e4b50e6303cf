package kube

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
)

// Lease implements observe.Cluster.
func (k *Client) Lease(ctx context.Context) (observe.Lease, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var l coordinationv1.Lease
	err := k.c.Get(ctx, leaseKey(), &l)
	switch {
	case apierrors.IsNotFound(err):
		return observe.Lease{}, nil
	case err != nil:
		return observe.Lease{}, fmt.Errorf("get Lease %s: %w", leaseKey(), err)
	}
	return observe.Lease{Lease: fromLease(&l), Version: l.ResourceVersion}, nil
}

func leaseKey() client.ObjectKey {
	return client.ObjectKey{Namespace: fleet.LeaseNamespace, Name: fleet.LeaseName}
}

// PutLease implements execute.Cluster.
func (k *Client) PutLease(ctx context.Context, version string, o lease.Lease) error {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.LeaseNamespace, Name: fleet.LeaseName}}
	if version == "" {
		intoLease(o, l)
		return written("create Lease "+leaseKey().String(), each(ctx, func(ctx context.Context) error { return k.c.Create(ctx, l) }))
	}
	if err := each(ctx, func(ctx context.Context) error { return k.c.Get(ctx, leaseKey(), l) }); err != nil {
		return written("get Lease "+leaseKey().String(), err)
	}
	if l.ResourceVersion != version {
		return fmt.Errorf("update Lease %s: %w", leaseKey(), execute.ErrConflict)
	}
	intoLease(o, l)
	return written("update Lease "+leaseKey().String(), each(ctx, func(ctx context.Context) error { return k.c.Update(ctx, l) }))
}

// PatchNode implements execute.Cluster.
func (k *Client) PatchNode(ctx context.Context, name, version string, p execute.NodePatch) error {
	var n corev1.Node
	if err := each(ctx, func(ctx context.Context) error { return k.c.Get(ctx, client.ObjectKey{Name: name}, &n) }); err != nil {
		return written("get node "+name, err)
	}
	if n.ResourceVersion != version {
		return fmt.Errorf("patch node %s: %w", name, execute.ErrConflict)
	}
	old := n.DeepCopy()
	apply(&n, p)
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	return written("patch node "+name, each(ctx, func(ctx context.Context) error { return k.c.Patch(ctx, &n, patch) }))
}

func apply(n *corev1.Node, p execute.NodePatch) {
	n.Labels = merged(n.Labels, p.Labels)
	n.Annotations = merged(n.Annotations, p.Annotations)
	if p.Unschedulable != nil {
		n.Spec.Unschedulable = *p.Unschedulable
	}
	if p.DropTaint == "" && p.AddTaint == nil {
		return
	}
	var taints []corev1.Taint
	for _, t := range n.Spec.Taints {
		replaced := p.AddTaint != nil && t.Key == p.AddTaint.Key && string(t.Effect) == p.AddTaint.Effect
		if t.Key != p.DropTaint && !replaced {
			taints = append(taints, t)
		}
	}
	if p.AddTaint != nil {
		taints = append(taints, corev1.Taint{
			Key: p.AddTaint.Key, Value: p.AddTaint.Value, Effect: corev1.TaintEffect(p.AddTaint.Effect),
		})
	}
	n.Spec.Taints = taints
}

func merged(have map[string]string, want map[string]*string) map[string]string {
	if len(want) == 0 {
		return have
	}
	out := make(map[string]string, len(have)+len(want))
	for k, v := range have {
		out[k] = v
	}
	for k, v := range want {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = *v
		}
	}
	return out
}

// PatchConfigMap implements execute.Cluster.
func (k *Client) PatchConfigMap(ctx context.Context, name, version string, keys map[string]*string) error {
	what := fmt.Sprintf("ConfigMap %s/%s", k.namespace, name)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: name}}
	body := map[string]any{}
	if len(keys) > 0 {
		body["data"] = keys
	}
	if version != "" {
		body["metadata"] = map[string]string{"resourceVersion": version}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("patch %s: %w", what, err)
	}
	// No key to set means: make it. The controller may create the report map and
	// not patch it (R-E2-12), so that a patch first would be its last.
	if len(keys) > 0 || version != "" {
		err = each(ctx, func(ctx context.Context) error { return k.c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw)) })
		if !apierrors.IsNotFound(err) || version != "" {
			return written("patch "+what, err)
		}
	}
	// It has been deleted, or was never made. Only text goes in that is at hand
	// now: what it held before is not invented (safety rule 25).
	fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: name}, Data: map[string]string{}}
	for key, v := range keys {
		if v != nil {
			fresh.Data[key] = *v
		}
	}
	return written("create "+what, each(ctx, func(ctx context.Context) error { return k.c.Create(ctx, fresh) }))
}

// written turns the API's ways of saying "not what you read" into ErrConflict.
func written(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w (%w)", what, execute.ErrConflict, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
