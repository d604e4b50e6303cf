package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

func builder(objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithRESTMapper(mapper()).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, podNodeField, func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		})
}

func fakeClient(b *fake.ClientBuilder) *Client {
	return newClient(b.Build(), time.Now, Options{})
}

func n1() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"keep": "1"}, Annotations: map[string]string{"keep": "1"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "foreign", Effect: "NoExecute", TimeAdded: &metav1.Time{Time: time.Unix(1, 0)}}}},
	}
}

func TestConformance(t *testing.T) {
	clustertest.Conformance(t, func(*testing.T) clustertest.Subject { return fakeClient(builder(n1())) })
}

func TestANodeIsReadWhole(t *testing.T) {
	n := n1()
	n.Spec.Unschedulable = true
	n.DeletionTimestamp, n.Finalizers = &metav1.Time{Time: time.Unix(9, 0)}, []string{"wrangler.cattle.io/node"}
	n.Status = corev1.NodeStatus{
		NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.34.2+k3s1"},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: fleet.ConditionEtcdIsVoter, Status: corev1.ConditionUnknown},
		},
	}
	got := fromNode(n)
	if got.UID != "u1" || !got.Ready || got.EtcdIsVoter != "Unknown" || got.InternalIP != "10.0.0.1" || got.KubeletVersion != "v1.34.2+k3s1" ||
		!got.Unschedulable || !got.Deleting || !slices.Equal(got.Taints, []swap.Taint{{Key: "foreign", Effect: "NoExecute"}}) {
		t.Errorf("got %+v", got)
	}
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	if fromNode(n).Ready {
		t.Error("Ready by an unknown condition")
	}
}

// Safety rule 27: another's taint keeps all it has, the time of an eviction included.
func TestAForeignTaintKeepsItsTime(t *testing.T) {
	c := fakeClient(builder(n1()))
	n, _, err := c.Node(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	err = c.PatchNode(t.Context(), "n1", n.Version, execute.NodePatch{AddTaint: &swap.Taint{Key: "ours", Effect: "NoSchedule"}})
	if err != nil {
		t.Fatal(err)
	}
	var raw corev1.Node
	if err := c.c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &raw); err != nil {
		t.Fatal(err)
	}
	if len(raw.Spec.Taints) != 2 || raw.Spec.Taints[0].TimeAdded == nil {
		t.Errorf("taints %+v", raw.Spec.Taints)
	}
}

func TestHeartbeatsAreFoundByLabel(t *testing.T) {
	beat := func(name, namespace string, labels map[string]string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, Annotations: map[string]string{
				fleet.HeartbeatBootID: "b", fleet.HeartbeatCounter: "7",
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(5, 1000)}},
		}
	}
	marked := map[string]string{fleet.HeartbeatLabel: fleet.HeartbeatLabelValue}
	c := fakeClient(builder(
		beat(fleet.HeartbeatName("n1"), fleet.DefaultNamespace, marked),
		beat(fleet.HeartbeatName("n2"), fleet.DefaultNamespace, nil),
		beat("another", fleet.DefaultNamespace, marked),
		beat(fleet.HeartbeatName("n3"), "elsewhere", marked),
	))
	got, err := c.Heartbeats(t.Context())
	want := observe.Heartbeat{Node: "n1", BootID: "b", Counter: "7", Renewed: time.Unix(5, 1000).UTC()}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestKubeletLease(t *testing.T) {
	c := fakeClient(builder(
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "kube-node-lease"}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(5, 0)}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n2", Namespace: "kube-node-lease"}},
	))
	for node, want := range map[string]time.Time{"n1": time.Unix(5, 0).UTC(), "n2": {}, "n3": {}} {
		if got, err := c.KubeletRenewed(t.Context(), node); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %s, %v", node, got, err)
		}
	}
}

func TestPodsOfANode(t *testing.T) {
	yes := true
	pod := func(name, node string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "u"}, Spec: corev1.PodSpec{NodeName: node}}
		if change != nil {
			change(p)
		}
		return p
	}
	c := fakeClient(builder(
		pod("other", "n2", nil),
		pod("bare", "n1", nil),
		pod("done", "n1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		pod("static", "n1", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		pod("owned", "n1", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Thing", Name: "t", UID: "1", APIVersion: "v1"}, {Kind: "DaemonSet", Name: "d", UID: "2", APIVersion: "apps/v1", Controller: &yes}}
			p.Labels = map[string]string{"actions-ephemeral-runner": "True"}
		}),
	))
	pods, err := c.Pods(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]observe.Pod{}
	for _, p := range pods {
		got[p.Name] = p
	}
	if len(got) != 4 || got["bare"].Owner != "" || !got["done"].Finished || !got["static"].Mirror || got["owned"].Owner != "DaemonSet" || got["bare"].UID != "u" {
		t.Errorf("got %+v", got)
	}
	match, err := Selector(fleet.DefaultRunnerSelector)
	if err != nil || !match(got["owned"].Labels) || match(got["bare"].Labels) {
		t.Errorf("selector: %v", err)
	}
	for _, s := range []string{"", "a=b=c", "in ("} {
		if _, err := Selector(s); err == nil {
			t.Errorf("selector %q was taken", s)
		}
	}
}

// Safety rule 20: a budget's refusal is an answer with its name in it.
func TestEvictionAnswers(t *testing.T) {
	busy := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	busy.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	for name, test := range map[string]struct {
		err     error
		refusal string
		fails   bool
	}{
		"evicted":         {nil, "", false},
		"a budget blocks": {busy, "disruption budget web needs 2", false},
		"two budgets":     {apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")), "more than one", false},
		"gone":            {apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p"), "", false},
		"another pod now": {apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("uid")), "", false},
		"a busy server":   {apierrors.NewTooManyRequests("too many requests, please try again later", 1), "", true},
		"forbidden":       {apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no")), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var dry [][]string
			c := fakeClient(builder().WithInterceptorFuncs(interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
					e, ok := body.(*policyv1.Eviction)
					if sub != "eviction" || !ok || o.GetName() != "p" || *e.DeleteOptions.Preconditions.UID != "u" {
						t.Errorf("%s of %s: %+v", sub, o.GetName(), body)
						return nil
					}
					var so client.SubResourceCreateOptions
					so.ApplyOptions(opts)
					if !slices.Equal(so.DryRun, e.DeleteOptions.DryRun) {
						t.Errorf("dry run %v and %v: the API server refuses two answers", so.DryRun, e.DeleteOptions.DryRun)
					}
					dry = append(dry, so.DryRun)
					return test.err
				},
			}))
			pod := observe.Pod{Namespace: "a", Name: "p", UID: "u"}
			for _, evict := range []func(context.Context, observe.Pod) (string, error){c.TryEvict, c.Evict} {
				refusal, err := evict(t.Context(), pod)
				if (err != nil) != test.fails || (test.refusal == "") != (refusal == "") || !strings.Contains(refusal, test.refusal) {
					t.Errorf("got %q, %v", refusal, err)
				}
			}
			if len(dry) != 2 || !slices.Equal(dry[0], []string{"All"}) || len(dry[1]) != 0 {
				t.Errorf("dry runs %v", dry)
			}
		})
	}
}

func TestEtcdSnapshots(t *testing.T) { // k3s-facts §8
	snap := func(name string, fields map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(snapshotKind)
		u.SetName(name)
		return u
	}
	s := newScheme()
	b := fake.NewClientBuilder().WithScheme(s).WithRESTMapper(mapper()).WithObjects(
		snap("a", map[string]any{
			"spec":   map[string]any{"snapshotName": "fleet-role-x-n1-1", "nodeName": "n1"},
			"status": map[string]any{"readyToUse": true},
		}),
		snap("b", map[string]any{
			"spec":   map[string]any{"snapshotName": "fleet-role-x-n2-1", "nodeName": "n2"},
			"status": map[string]any{"readyToUse": false, "error": map[string]any{"message": "disk full"}},
		}),
		snap("c", map[string]any{"spec": map[string]any{"snapshotName": int64(7)}, "status": "strange"}),
	)
	got, err := newClient(b.Build(), time.Now, Options{}).Snapshots(t.Context())
	want := []swap.Snapshot{{Name: "fleet-role-x-n1-1", Node: "n1", Ready: true}, {Name: "fleet-role-x-n2-1", Node: "n2", Error: "disk full"}, {}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	none := fakeClient(builder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "etcdsnapshotfiles"}, "")
		},
	}))
	if got, err := none.Snapshots(t.Context()); err != nil || got != nil {
		t.Errorf("a cluster without the kind: %v, %v", got, err)
	}
}

// What the API refuses is an error that names the object; what it cannot find
// is an answer.
func TestErrorsNameTheObject(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("not allowed"))
	c := fakeClient(builder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return no
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return no
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return no },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return no
		},
	}))
	ctx := t.Context()
	for want, call := range map[string]func() error{
		"list nodes":                             func() error { _, err := c.Nodes(ctx); return err },
		"get node n1":                            func() error { _, _, err := c.Node(ctx, "n1"); return err },
		"get Lease kube-system/fleet-regrade":    func() error { _, err := c.Lease(ctx); return err },
		"get ConfigMap github-runner-platform/m": func() error { _, err := c.ConfigMap(ctx, "m"); return err },
		"list heartbeat Leases":                  func() error { _, err := c.Heartbeats(ctx); return err },
		"list pods on n1":                        func() error { _, err := c.Pods(ctx, "n1"); return err },
		"get Lease kube-node-lease/n1":           func() error { _, err := c.KubeletRenewed(ctx, "n1"); return err },
		"list etcd snapshots":                    func() error { _, err := c.Snapshots(ctx); return err },
		"create Lease kube-system/fleet-regrade": func() error { return c.PutLease(ctx, "", leaseOf("x")) },
		"patch ConfigMap github-runner-platform/m": func() error {
			return c.PatchConfigMap(ctx, "m", "", map[string]*string{"a": nil})
		},
	} {
		err := call()
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, execute.ErrConflict) || !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// A ConfigMap that appears between the patch and its creation is another's:
// the next pass patches it.
func TestAConfigMapMadeMeanwhileIsAConflict(t *testing.T) {
	gr := schema.GroupResource{Resource: "configmaps"}
	c := fakeClient(builder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewNotFound(gr, "m")
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewAlreadyExists(gr, "m")
		},
	}))
	if err := c.PatchConfigMap(t.Context(), "m", "", nil); !errors.Is(err, execute.ErrConflict) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyNewsWakes(t *testing.T) {
	node := func(change func(*corev1.Node)) watch.Event {
		n := n1()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if change != nil {
			change(n)
		}
		return watch.Event{Type: watch.Modified, Object: n}
	}
	cm := func(data map[string]string) watch.Event {
		return watch.Event{Type: watch.Modified, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: data}}
	}
	seen := map[string]uint64{}
	for i, test := range []struct {
		what string
		ev   watch.Event
		want bool
	}{
		{"a Node is first seen", node(nil), true},
		{"its heartbeat", node(func(n *corev1.Node) {
			n.ResourceVersion = "9"
			n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		}), false},
		{"a label", node(func(n *corev1.Node) { n.Labels["a"] = "1" }), true},
		{"not Ready", node(func(n *corev1.Node) { n.Labels["a"] = "1"; n.Status.Conditions[0].Status = "False" }), true},
		{"reports are first seen", cm(map[string]string{"n1": "a", "n2": "b"}), true},
		{"the same again", cm(map[string]string{"n2": "b", "n1": "a"}), false},
		{"our own status", cm(map[string]string{"n2": "b", "n1": "a", fleet.KeyStatus: "x"}), false},
		{"a report", cm(map[string]string{"n1": "c", "n2": "b"}), true},
		{"the map is deleted", watch.Event{Type: watch.Deleted, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}}, true},
		{"a bookmark of another kind", watch.Event{Type: watch.Bookmark, Object: &metav1.Status{}}, false},
	} {
		if got := changed(test.ev, seen); got != test.want {
			t.Errorf("%d, %s: %v", i, test.what, got)
		}
	}
}

func TestAWatchWakesAndEnds(t *testing.T) {
	c := fakeClient(builder(n1()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wake := c.Wake(ctx)
	deadline := time.After(10 * time.Second)
	for i := 0; ; i++ {
		n, _, err := c.Node(ctx, "n1")
		if err != nil {
			t.Fatal(err)
		}
		value := strings.Repeat("x", i+1)
		if err := c.PatchNode(ctx, "n1", n.Version, execute.NodePatch{Labels: map[string]*string{"a": &value}}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-wake:
			return
		case <-deadline:
			t.Fatal("a changed Node woke nobody")
		case <-time.After(20 * time.Millisecond): // the watch may not stand yet
		}
	}
}

func TestASecretIsNeverShown(t *testing.T) { // safety rule 31
	s := Secret("hush")
	for _, shown := range []string{s.String(), s.GoString(), s.LogValue().String(), sprint("%v %s %q %x %#v %d", s, s, s, s, s, s), sprint("%+v", struct{ T Secret }{s}), mustText(s)} {
		if strings.Contains(shown, "hush") || strings.Contains(shown, "68757368") || !strings.Contains(shown, "***") {
			t.Errorf("shown as %q", shown)
		}
	}
	if s.Reveal() != "hush" {
		t.Error("lost")
	}
}

// Issue 4: an event hangs on the Node, where kubectl looks for it.
func TestAnEventIsOnItsNode(t *testing.T) {
	c := fakeClient(builder(n1()))
	if err := c.Tell(t.Context(), status.Event{Node: "n1", UID: "u1", Warning: true, Reason: status.EventSwapRolledBack, Message: "m"}); err != nil {
		t.Fatal(err)
	}
	var list corev1.EventList
	if err := c.c.List(t.Context(), &list, client.InNamespace("default")); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d events, %v", len(list.Items), err)
	}
	e := list.Items[0]
	if e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != "n1" || e.InvolvedObject.UID != "u1" || e.Type != corev1.EventTypeWarning || e.Reason != "SwapRolledBack" || e.LastTimestamp.IsZero() {
		t.Errorf("got %+v", e)
	}
}
