package snapshot

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var (
	crdResource  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	fileResource = schema.GroupVersionResource{Group: "k3s.cattle.io", Version: "v1", Resource: "etcdsnapshotfiles"}
)

// EnsureCRD creates the definition of ETCDSnapshotFile: cluster scope, no status subresource.
func EnsureCRD(ctx context.Context, c dynamic.Interface) error {
	free := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "etcdsnapshotfiles.k3s.cattle.io"},
		"spec": map[string]any{
			"group": "k3s.cattle.io", "scope": "Cluster",
			"names": map[string]any{
				"kind": "ETCDSnapshotFile", "listKind": "ETCDSnapshotFileList",
				"plural": "etcdsnapshotfiles", "singular": "etcdsnapshotfile",
			},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": free, "status": free},
				}},
			}},
		},
	}}
	_, err := c.Resource(crdResource).Create(ctx, crd, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create definition of ETCDSnapshotFile: %w", err)
	}
	return nil
}

// Object is the ETCDSnapshotFile of a file, ready to use from the first.
func Object(f File) *unstructured.Unstructured {
	spec := map[string]any{"snapshotName": f.Name, "nodeName": f.Node, "location": f.Location()}
	if len(f.Metadata) > 0 {
		m := map[string]any{}
		for k, v := range f.Metadata {
			m[k] = v
		}
		spec["metadata"] = m
	}
	meta := map[string]any{
		"name":   ObjectName(f),
		"labels": map[string]any{NodeLabel: f.Node},
	}
	if f.TokenHash != "" {
		meta["annotations"] = map[string]any{TokenHashAnnotation: f.TokenHash}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k3s.cattle.io/v1", "kind": "ETCDSnapshotFile",
		"metadata": meta, "spec": spec,
		"status": map[string]any{
			"size": fmt.Sprint(f.Size), "creationTime": f.Created.UTC().Format(time.RFC3339), "readyToUse": true,
		},
	}}
}

func createObject(ctx context.Context, c dynamic.Interface, f File) error {
	_, err := c.Resource(fileResource).Create(ctx, Object(f), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create snapshot object of %s: %w", f.Name, err)
	}
	return nil
}

// reconcileObjects makes the objects of files on this node's disk, and deletes those of this node without a file and
// those of nodes without the etcd label.
func reconcileObjects(ctx context.Context, c dynamic.Interface, files []File, node string, etcdNodes map[string]bool) error {
	have := map[string]bool{}
	for _, f := range files {
		have[ObjectName(f)] = true
		if err := createObject(ctx, c, f); err != nil {
			return err
		}
	}
	list, err := c.Resource(fileResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list snapshot objects: %w", err)
	}
	for _, o := range list.Items {
		owner := o.GetLabels()[NodeLabel]
		stale := owner == node && !have[o.GetName()]
		orphan := owner != "s3" && owner != node && !etcdNodes[owner]
		if !stale && !orphan {
			continue
		}
		if err := c.Resource(fileResource).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete snapshot object %s: %w", o.GetName(), err)
		}
	}
	return nil
}
