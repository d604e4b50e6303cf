package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is whose fields an apply owns.
const fieldManager = "regrade"

type installedKind struct {
	schema.GroupVersionKind
	scope meta.RESTScope
}

// installedKinds are those that regrade's manifests are of.
var installedKinds = []installedKind{
	{corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot},
	{corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace},
	{corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace},
	{corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace},
	{rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), meta.RESTScopeRoot},
	{rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), meta.RESTScopeRoot},
	{rbacv1.SchemeGroupVersion.WithKind("Role"), meta.RESTScopeNamespace},
	{rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace},
	{appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace},
	{appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace},
	{coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace},
}

// Object is a manifest as it is written: apiVersion, kind, metadata and the rest.
type Object = map[string]any

// Installed is what became of one manifest, or would become. Before is nil where there
// was none, After where it is taken away; both are without what the API server keeps for
// itself, and Secrets without their data. Changed: they differ.
type Installed struct {
	Kind, Namespace, Name string
	Before, After         Object
	Changed               bool
}

// Installer puts regrade's own objects into a cluster, and takes them off. It needs the
// rights of a person who may do that.
type Installer struct{ c client.Client }

// NewInstaller makes one on a connection.
func NewInstaller(conn *Connection) *Installer { return &Installer{conn.Client} }

// Apply makes an object what the manifest says, by server-side apply: fields that
// others own and the manifest does not name stay. With check nothing is written: the
// API server is asked what would come of it.
func (i *Installer) Apply(ctx context.Context, o Object, check bool) (Installed, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, want, before, err := i.before(ctx, o)
	if err != nil {
		return out, err
	}
	after := want.DeepCopy()
	options := []client.ApplyOption{client.ForceOwnership, client.FieldOwner(fieldManager)}
	if check {
		options = append(options, client.DryRunAll)
	}
	err = i.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), options...)
	switch {
	case apierrors.IsNotFound(err) && check && before == nil:
		// Its namespace is not there yet: what the manifest says is what it would be.
		after = want
	case err != nil:
		return out, fmt.Errorf("apply %s: %w", describe(want), err)
	}
	out.After = shown(after)
	out.Changed = before == nil || !same(out.Before, out.After)
	return out, nil
}

// Create makes an object that is not there, and leaves one that is alone.
func (i *Installer) Create(ctx context.Context, o Object, check bool) (Installed, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, want, before, err := i.before(ctx, o)
	if err != nil {
		return out, err
	}
	if before != nil {
		out.After = out.Before
		return out, nil
	}
	out.After, out.Changed = shown(want), true
	if check {
		return out, nil
	}
	if err := i.c.Create(ctx, want, client.FieldOwner(fieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return out, fmt.Errorf("create %s: %w", describe(want), err)
	}
	return out, nil
}

// Delete takes an object away, with what it owns. One that is gone is no error.
func (i *Installer) Delete(ctx context.Context, o Object, check bool) (Installed, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, want, before, err := i.before(ctx, o)
	if err != nil || before == nil {
		return out, err
	}
	out.Changed = true
	if check {
		return out, nil
	}
	if err := i.c.Delete(ctx, want, client.PropagationPolicy("Background")); client.IgnoreNotFound(err) != nil {
		return out, fmt.Errorf("delete %s: %w", describe(want), err)
	}
	return out, nil
}

// Labelled are the installed objects that carry all of labels: the cluster's, and those in
// the given namespaces.
func (i *Installer) Labelled(ctx context.Context, labels map[string]string, namespaces ...string) ([]Object, error) {
	var out []Object
	for _, kind := range installedKinds {
		places := namespaces
		if kind.scope == meta.RESTScopeRoot {
			places = []string{""}
		}
		for _, namespace := range places {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			err := each(ctx, func(ctx context.Context) error {
				return i.c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(labels))
			})
			if err != nil {
				return nil, fmt.Errorf("list each %s of regrade: %w", kind.Kind, err)
			}
			for n := range list.Items {
				out = append(out, shown(&list.Items[n]))
			}
		}
	}
	return out, nil
}

// Token is a ServiceAccount's token and the cluster's CA, from the Secret that the token
// controller fills in. Empty: it has not yet, or there is no such Secret.
func (i *Installer) Token(ctx context.Context, namespace, name string) (token Secret, ca []byte, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var s corev1.Secret
	err = i.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("get Secret %s/%s: %w", namespace, name, err)
	}
	return Secret(s.Data[corev1.ServiceAccountTokenKey]), s.Data[corev1.ServiceAccountRootCAKey], nil
}

// RootCA is the CA that the cluster publishes for its pods, nil where it does not.
func (i *Installer) RootCA(ctx context.Context) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var m corev1.ConfigMap
	err := i.c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-root-ca.crt"}, &m)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get the cluster's CA: %w", err)
	}
	return []byte(m.Data["ca.crt"]), nil
}

// before reads what a manifest is about: the object as it is wanted and as it is, nil where
// there is none.
func (i *Installer) before(ctx context.Context, o Object) (out Installed, want, have *unstructured.Unstructured, err error) {
	if want, err = object(o); err != nil {
		return Installed{}, nil, nil, err
	}
	out = Installed{Kind: want.GetKind(), Namespace: want.GetNamespace(), Name: want.GetName()}
	have = &unstructured.Unstructured{}
	have.SetGroupVersionKind(want.GroupVersionKind())
	err = i.c.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		return out, want, nil, nil
	case err != nil:
		return out, nil, nil, fmt.Errorf("get %s: %w", describe(want), err)
	}
	out.Before = shown(have)
	return out, want, have, nil
}

// object is a manifest as the client wants it: with JSON's own types.
func object(o Object) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	known := slices.ContainsFunc(installedKinds, func(k installedKind) bool { return k.GroupVersionKind == u.GroupVersionKind() })
	if !known || u.GetName() == "" {
		return nil, errors.New("manifest: of a kind that regrade does not install, or without a name")
	}
	return u, nil
}

func describe(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetKind() + " " + u.GetName()
	}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// kept are the API server's own fields, and the token controller's.
var kept = []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"}

func shown(u *unstructured.Unstructured) Object {
	o := u.DeepCopy().Object
	delete(o, "status")
	if u.GetKind() == "Secret" {
		delete(o, "data")
	}
	if m, ok := o["metadata"].(map[string]any); ok {
		for _, key := range kept {
			delete(m, key)
		}
	}
	return o
}

func same(a, b Object) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}
