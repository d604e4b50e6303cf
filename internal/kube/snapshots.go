package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exadev/regrade/internal/swap"
)

// snapshotKind is k3s's record of an etcd snapshot (k3s-facts §8).
var snapshotKind = schema.GroupVersionKind{Group: "k3s.cattle.io", Version: "v1", Kind: "ETCDSnapshotFile"}

// Snapshots implements observe.Cluster.
func (k *Client) Snapshots(ctx context.Context) ([]swap.Snapshot, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(snapshotKind.GroupVersion().WithKind(snapshotKind.Kind + "List"))
	err := k.c.List(ctx, list)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil // no k3s with embedded etcd
	case err != nil:
		return nil, fmt.Errorf("list etcd snapshots: %w", err)
	}
	var out []swap.Snapshot
	for i := range list.Items {
		o := list.Items[i].Object
		// A field of another type than expected reads as empty: such a snapshot
		// matches no swap and is not ready.
		s := swap.Snapshot{}
		s.Name, _, _ = unstructured.NestedString(o, "spec", "snapshotName")
		s.Node, _, _ = unstructured.NestedString(o, "spec", "nodeName")
		s.Ready, _, _ = unstructured.NestedBool(o, "status", "readyToUse")
		s.Error, _, _ = unstructured.NestedString(o, "status", "error", "message")
		out = append(out, s)
	}
	return out, nil
}
