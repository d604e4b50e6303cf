package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Apply applies the documents as kubectl apply --server-side does, but for the kinds to leave out.
func (c *Cluster) Apply(ctx context.Context, documents []byte, leaveOut ...string) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(api.Discovery())
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096)
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("apply: read document: %w", err)
		}
		if len(object.Object) == 0 || slices.Contains(leaveOut, object.GetKind()) {
			continue
		}
		if err := applyOne(ctx, api, mapper, &object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func applyOne(ctx context.Context, api *API, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = api.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = "default"
		}
		resource = api.Dynamic.Resource(mapping.Resource).Namespace(namespace)
	}
	// A ConfigMap that is there holds live data (safety rule 25).
	if kind.Kind == "ConfigMap" {
		if _, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{}); err == nil {
			return nil
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "regrade-lab", Force: &force})
	return err
}
