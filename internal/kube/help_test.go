package kube

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/exadev/regrade/internal/lease"
)

func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func mustText(s Secret) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func leaseOf(holder string) lease.Lease { return lease.Lease{Exists: true, Holder: holder} }

// newScheme knows k3s's kind, too.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s)
	s.AddKnownTypeWithName(snapshotKind, &unstructured.Unstructured{})
	s.AddKnownTypeWithName(snapshotKind.GroupVersion().WithKind(snapshotKind.Kind+"List"), &unstructured.UnstructuredList{})
	return s
}
