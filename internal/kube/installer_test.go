package kube

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func manifest(t *testing.T, text string) Object {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

const (
	oneDeployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"fleet-role","namespace":"p","labels":{"a":"b"}},
		"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"IMAGE"}]}}}}`
	oneSecret = `{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":{"name":"t","namespace":"p"}}`
)

func TestAnObjectIsAppliedOnceAndThenUnchanged(t *testing.T) {
	i := &Installer{builder().Build()}
	first := manifest(t, strings.ReplaceAll(oneDeployment, "IMAGE", "one"))
	for _, step := range []struct {
		name    string
		object  Object
		changed bool
	}{
		{"new", first, true}, {"again", first, false},
		{"another image", manifest(t, strings.ReplaceAll(oneDeployment, "IMAGE", "two")), true},
	} {
		got, err := i.Apply(t.Context(), step.object, false)
		if err != nil || got.Changed != step.changed || got.Kind != "Deployment" || got.Name != "fleet-role" {
			t.Errorf("%s: %+v, %v", step.name, got, err)
		}
	}
	var d appsv1.Deployment
	if err := i.c.Get(t.Context(), client.ObjectKey{Namespace: "p", Name: "fleet-role"}, &d); err != nil || d.Spec.Template.Spec.Containers[0].Image != "two" {
		t.Errorf("%+v, %v", d, err)
	}
}

// With check the API server is asked and nothing is written, whichever way.
func TestACheckWritesNothing(t *testing.T) {
	var dry int
	b := builder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			t.Error("created")
			return nil
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			t.Error("deleted")
			return nil
		},
	})
	i := &Installer{applies{b.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "p"}}).Build(), func(o *client.ApplyOptions) error {
		if len(o.DryRun) == 0 {
			t.Error("applied")
		}
		dry++
		return apierrors.NewNotFound(corev1.Resource("namespaces"), "p") // so says an API server of objects in a namespace to come
	}}}
	got, err := i.Apply(t.Context(), manifest(t, oneDeployment), true)
	if err != nil || !got.Changed || got.Before != nil || got.After == nil || dry != 1 {
		t.Errorf("%+v, %v, %d dry runs", got, err, dry)
	}
	if got, err = i.Create(t.Context(), manifest(t, oneSecret), true); err != nil || !got.Changed {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = i.Delete(t.Context(), manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"p"}}`), true); err != nil || !got.Changed || got.After != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// applies looks at what is applied.
type applies struct {
	client.Client
	see func(*client.ApplyOptions) error
}

func (a applies) Apply(_ context.Context, _ runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := &client.ApplyOptions{}
	o.ApplyOptions(opts)
	return a.see(o)
}

// Safety rule 25: what is live is created and never replaced.
func TestAnObjectToBeCreatedIsLeftWhereItIs(t *testing.T) {
	i := &Installer{builder(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "p"}, Data: map[string]string{"live": "1"}}).Build()}
	got, err := i.Create(t.Context(), manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"p"}}`), false)
	if err != nil || got.Changed {
		t.Errorf("%+v, %v", got, err)
	}
	var cm corev1.ConfigMap
	if err := i.c.Get(t.Context(), client.ObjectKey{Namespace: "p", Name: "m"}, &cm); err != nil || cm.Data["live"] != "1" {
		t.Errorf("%+v, %v", cm, err)
	}
}

// Safety rule 31: a Secret's data is in no difference.
func TestAnInstalledSecretIsShownWithoutItsData(t *testing.T) {
	i := &Installer{builder(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: "p"}, Data: map[string][]byte{"token": []byte("hunter2"), "ca.crt": []byte("CA")}}).Build()}
	got, err := i.Apply(t.Context(), manifest(t, oneSecret), false)
	if err != nil || got.Before["data"] != nil || got.After["data"] != nil {
		t.Errorf("%+v, %v", got, err)
	}
	token, ca, err := i.Token(t.Context(), "p", "t")
	if err != nil || token.Reveal() != "hunter2" || string(ca) != "CA" {
		t.Errorf("%s, %s, %v", token, ca, err)
	}
	if token, _, err = i.Token(t.Context(), "p", "none"); err != nil || token != "" {
		t.Errorf("%s, %v", token, err)
	}
}

func TestWhatIsNotOursToInstallIsRefused(t *testing.T) {
	i := &Installer{builder().Build()}
	for name, text := range map[string]string{
		"another kind": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`,
		"no name":      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"p"}}`,
	} {
		if _, err := i.Apply(t.Context(), manifest(t, text), false); err == nil {
			t.Errorf("%s: applied", name)
		}
		if _, err := i.Delete(t.Context(), manifest(t, text), false); err == nil {
			t.Errorf("%s: deleted", name)
		}
	}
}

func TestObjectsAreFoundByTheirLabels(t *testing.T) {
	ours := map[string]string{"app.kubernetes.io/managed-by": "regrade"}
	i := &Installer{builder(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "p", Labels: ours}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: "q", Labels: ours}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: "p"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: ours}},
	).Build()}
	got, err := i.Labelled(t.Context(), ours, "p")
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, o := range got {
		if _, err := i.Delete(t.Context(), o, false); err != nil {
			t.Error(err)
		}
	}
	if got, err = i.Labelled(t.Context(), ours, "p"); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTheClustersCAIsWhatItPublishes(t *testing.T) {
	i := &Installer{builder().Build()}
	if ca, err := i.RootCA(t.Context()); err != nil || ca != nil {
		t.Errorf("a cluster that publishes none: %q, %v", ca, err)
	}
	i = &Installer{builder().WithObjects(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "CA"},
	}).Build()}
	if ca, err := i.RootCA(t.Context()); err != nil || string(ca) != "CA" {
		t.Errorf("%q, %v", ca, err)
	}
}
