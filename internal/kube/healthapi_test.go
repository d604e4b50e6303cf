package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	ticks "github.com/exadev/regrade/internal/heartbeat/beat"
)

var (
	_ ticks.Cluster   = (*HealthAPI)(nil)
	_ ticks.Publisher = HealthMap{}
	_ watch.Source    = HealthSource{}
	_ watch.Store     = AlertState{}
)

func healthAPI(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *HealthAPI {
	t.Helper()
	s := newScheme()
	s.AddKnownTypeWithName(runnerSetKind, &unstructured.Unstructured{})
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	tr, err := newTransport([]string{"https://10.0.0.1:6443"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHealthAPI(c, tr, HealthOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func cm(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.DefaultNamespace, Name: name}, Data: map[string]string{"keep": "1"}}
}

var when = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestANodesHealthIsReadFromItsConditions(t *testing.T) {
	at := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(when)}
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{fleet.LabelEtcd: "true"}, Annotations: map[string]string{fleet.DefaultKeys().Swap(): "x"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			at(corev1.NodeReady, corev1.ConditionUnknown), at(fleet.ConditionEtcdIsVoter, corev1.ConditionTrue),
			at(corev1.NodeMemoryPressure, corev1.ConditionTrue), at(corev1.NodeDiskPressure, corev1.ConditionFalse), at("ExamplePressure", corev1.ConditionTrue),
		}},
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", CreationTimestamp: metav1.NewTime(when)}}
	got, err := healthOf(t, *n, *bare).Nodes(t.Context())
	want := []heartbeat.Node{
		{Name: "n1", Labels: n.Labels, EtcdIsVoter: "True", Swap: true, Pressure: []string{"MemoryPressure", "ExamplePressure"}},
		{Name: "n2"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
}

// healthOf is on an API that answers with these Nodes as the API server does.
func healthOf(tb testing.TB, nodes ...corev1.Node) *HealthAPI {
	tb.Helper()
	body := inProtobuf(tb, corev1.NodeList{Items: nodes})
	return healthOn(tb, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes" || r.URL.RawQuery != "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(body)
	})
}

func healthOn(tb testing.TB, answer http.HandlerFunc) *HealthAPI {
	tb.Helper()
	s := httptest.NewServer(answer)
	tb.Cleanup(s.Close)
	conn, err := connect(&rest.Config{Host: s.URL, DisableCompression: true}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	h, err := NewHealthAPI(conn, HealthOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// fleetOf1000 are Nodes with as many images as a kubelet names, each with two names.
func fleetOf1000() (nodes []corev1.Node) {
	for i := range 1000 {
		nodes = append(nodes, full(i))
	}
	return nodes
}

// The images of a big fleet are no part of what the heartbeat keeps, or makes: the list
// of 1,000 Nodes is some 15 MB, and its pod has 64 MiB.
func TestAThousandNodesWithTheirImagesAreReadInLittleMemory(t *testing.T) {
	h := healthOf(t, fleetOf1000()...)
	if _, err := h.Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	nodes, err := h.Nodes(t.Context())
	runtime.ReadMemStats(&after)
	if err != nil || len(nodes) != 1000 || !nodes[999].Ready || len(nodes[999].Labels) != 12 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 20<<20 {
		t.Errorf("%d KiB were made", made>>10)
	}
}

func BenchmarkHeartbeatNodes1000(b *testing.B) {
	h := healthOf(b, fleetOf1000()...)
	b.ReportAllocs()
	for b.Loop() {
		if nodes, err := h.Nodes(b.Context()); err != nil || len(nodes) != 1000 {
			b.Fatal(len(nodes), err)
		}
	}
}

// A list that is damaged is no fleet: it is never taken for fewer Nodes.
func TestADamagedListIsNoFleet(t *testing.T) {
	whole := inProtobuf(t, corev1.NodeList{Items: []corev1.Node{full(1), full(2)}})
	for cut := 1; cut < len(whole); cut += 97 {
		n := 0
		add := func(*corev1.Node) { n++ }
		if err := eachNode(bytes.NewReader(whole[:cut]), add, func(raw []byte) error { return conditions(raw, add) }); err == nil {
			t.Fatalf("%d bytes of %d are %d nodes", cut, len(whole), n)
		}
	}
}

func FuzzConditions(f *testing.F) {
	n := full(1)
	raw, err := n.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var whole corev1.Node
		bad := whole.Unmarshal(raw)
		err := conditions(raw, func(n *corev1.Node) {
			if bad == nil && (n.Name != whole.Name || len(n.Status.Conditions) != len(whole.Status.Conditions)) {
				t.Errorf("%s with %d conditions, it is %s with %d", n.Name, len(n.Status.Conditions), whole.Name, len(whole.Status.Conditions))
			}
		})
		_ = err
	})
}

func TestTheHeartbeatHearsHostDaemons(t *testing.T) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fleet.DefaultNamespace, Name: fleet.HeartbeatName("n1"), Labels: map[string]string{fleet.HeartbeatLabel: fleet.HeartbeatLabelValue},
			Annotations: map[string]string{fleet.HeartbeatBootID: "b", fleet.HeartbeatCounter: "7"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(5, 0)}},
	}
	got, err := healthAPI(t, interceptor.Funcs{}, lease).Heartbeats(t.Context())
	if err != nil || len(got) != 1 || got[0].Node != "n1" || got[0].Probe || got[0].Counter != "7" {
		t.Errorf("%+v, %v", got, err)
	}
	h := healthAPI(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("leases is forbidden")
	}})
	if _, err := h.Heartbeats(t.Context()); err == nil || !strings.Contains(err.Error(), "leases is forbidden") {
		t.Errorf("%v", err)
	}
}

func TestHealthIsPublishedIntoAMapThatIsThere(t *testing.T) {
	h := healthAPI(t, interceptor.Funcs{}, cm(fleet.ConfigMapHealth))
	m := HealthMap{h}
	if raw, err := m.Read(t.Context(), fleet.KeyHealth); raw != nil || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if _, _, err := (HealthSource{h}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "has no fleet-health.json") {
		t.Error(err)
	}
	if err := m.Publish(t.Context(), heartbeat.Files{fleet.KeyHealth: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if raw, _, err := (HealthSource{h}).Read(t.Context()); string(raw) != "{}" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if data, err := h.ConfigMap(t.Context(), fleet.ConfigMapHealth); err != nil || data["keep"] != "1" {
		t.Errorf("%v, %v", data, err)
	}
	empty := healthAPI(t, interceptor.Funcs{})
	if err := (HealthMap{empty}).Publish(t.Context(), heartbeat.Files{"a": []byte("b")}); err == nil || !strings.Contains(err.Error(), "regrade manifests makes it") {
		t.Error(err)
	}
	if raw, err := (HealthMap{empty}).Read(t.Context(), "a"); raw != nil || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
}

func TestAMapThatIsTooLargeSaysSo(t *testing.T) {
	h := healthAPI(t, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	}}, cm(fleet.ConfigMapHealth))
	if err := (HealthMap{h}).Publish(t.Context(), heartbeat.Files{"a": []byte("b")}); !errors.Is(err, heartbeat.ErrTooLarge) {
		t.Error(err)
	}
}

func TestTheAlertsStateIsOneKey(t *testing.T) {
	s := AlertState{healthAPI(t, interceptor.Funcs{}, cm(fleet.ConfigMapAlert))}
	raw, version, err := s.Load(t.Context())
	if raw != nil || version == "" || err != nil {
		t.Errorf("%q, %q, %v", raw, version, err)
	}
	next, err := s.Save(t.Context(), []byte("{}"), version)
	if err != nil || next == version {
		t.Fatal(next, err)
	}
	if raw, now, err := s.Load(t.Context()); string(raw) != "{}" || now != next || err != nil {
		t.Errorf("%q, %q, %v", raw, now, err)
	}
	// A second process that read it before the first one wrote.
	if _, err := s.Save(t.Context(), []byte("[]"), version); !errors.Is(err, alert.ErrTaken) {
		t.Errorf("written over another's: %v", err)
	}
	if raw, _, err := s.Load(t.Context()); string(raw) != "{}" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
}

func TestTheStatusIsReadAsItStands(t *testing.T) { // R-185-14
	m := cm(fleet.ConfigMapStatus)
	m.Data[fleet.KeyStatus] = `{"protocol":9}`
	if raw, err := healthAPI(t, interceptor.Funcs{}, m).RoleStatus(t.Context()); raw != `{"protocol":9}` || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if raw, err := healthAPI(t, interceptor.Funcs{}).RoleStatus(t.Context()); raw != "" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
}

func runnerSet(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(runnerSetKind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func listener(name, set string, phase corev1.PodPhase) *corev1.Pod {
	namespace, release, _ := strings.Cut(set, "/")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "arc", Name: name, Labels: map[string]string{labelScaleSet: release, labelScaleSetSpot: namespace}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func runnerPod(name string, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "arc-runners-a", Name: name, Labels: map[string]string{"actions-ephemeral-runner": "True"}},
		Status:     corev1.PodStatus{Conditions: conditions},
	}
}

// The checks of GitHub's runners as fleet-components §3 describes them.
func TestRunnersAreReadAsDescribed(t *testing.T) {
	unschedulable := func(at time.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(at)}
	}
	h := healthAPI(
		t, interceptor.Funcs{},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "arc", Name: "arc-gha-rs-controller", Labels: map[string]string{"app.kubernetes.io/name": "gha-rs-controller"}},
			Status:     appsv1.DeploymentStatus{ReadyReplicas: 1},
		},
		runnerSet("arc-runners-a", "small"), runnerSet("arc-runners-a", "big"),
		listener("l1", "arc-runners-a/small", corev1.PodRunning), listener("l2", "arc-runners-a/big", corev1.PodPending),
		runnerPod("late", unschedulable(when)), runnerPod("early", unschedulable(when.Add(-time.Hour))),
		runnerPod("placed", corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}),
		runnerPod("gated", corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"}),
	)
	got := h.Runners(t.Context(), heartbeat.Wanted{Namespace: "arc", Controller: true, Pods: true, ScaleSets: []string{"arc-runners-a/small", "arc-runners-a/big", "arc-runners-b/none"}})
	want := &heartbeat.Runners{
		ControllerFound: true, Controllers: 1,
		ScaleSets:     []heartbeat.ScaleSet{{Name: "arc-runners-a/small", Found: true, Listening: true}, {Name: "arc-runners-a/big", Found: true}, {Name: "arc-runners-b/none"}},
		Unschedulable: []heartbeat.Pod{{Name: "arc-runners-a/early", Since: when.Add(-time.Hour)}, {Name: "arc-runners-a/late", Since: when}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := h.Runners(t.Context(), heartbeat.Wanted{Namespace: "elsewhere", Controller: true}); got.ControllerFound || got.ControllerProblem != "" {
		t.Errorf("%+v", got)
	}
}

func TestRunnersThatCannotBeReadAreNamed(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "", fmt.Errorf("no right"))
	h := healthAPI(t, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		},
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		},
	})
	r := h.Runners(t.Context(), heartbeat.Wanted{Namespace: "arc", Controller: true, Pods: true, ScaleSets: []string{"a/b"}})
	if r.ControllerProblem == "" || r.PodsProblem == "" || r.ScaleSets[0].Problem == "" {
		t.Errorf("%+v", r)
	}
	denied := healthOn(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no right","code":403}`)
	})
	if _, err := denied.Nodes(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("nodes that nobody may list: %v", err)
	}
	if _, err := h.RoleStatus(t.Context()); err == nil {
		t.Error("a status that nobody may read is read")
	}
}

// An idle tick asks the API three things, whatever the number of nodes.
func TestATickAsksTheAPIThreeTimes(t *testing.T) {
	var asked []string
	h := healthAPI(t, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("Nodes are read as they come")
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked = append(asked, "get "+k.Name)
			return c.Get(ctx, k, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			asked = append(asked, "patch "+o.GetName())
			return c.Patch(ctx, o, p, opts...)
		},
	}, cm(fleet.ConfigMapHealth))
	body := inProtobuf(t, corev1.NodeList{Items: []corev1.Node{*n1()}})
	h.core = healthOn(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(body)
	}).core
	b := ticks.New(h, ticks.Settings{Build: heartbeat.Settings{Checks: heartbeat.DefaultChecks()}, Publishers: []ticks.Publisher{HealthMap{h}}})
	b.Tick(t.Context())
	asked = nil
	if turn := b.Tick(t.Context()); turn.Err() != nil || !slices.Equal(asked, []string{"GET /api/v1/nodes", "get fleet-role-status", "patch fleet-health"}) {
		t.Errorf("%v, %v", asked, turn.Err())
	}
}
