package controllers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
)

// etcd is a member list that records what was asked of it.
type etcd struct {
	members  []membership.Member
	leader   uint64
	local    uint64
	applied  uint64
	calls    []string
	kv       map[string][]byte
	promote  error
	removing error
}

func (e *etcd) Members(context.Context) ([]membership.Member, error) { return e.members, nil }
func (e *etcd) Leader(context.Context) (uint64, error)               { return e.leader, nil }
func (e *etcd) MoveLeader(_ context.Context, from, to membership.Member) error {
	e.calls = append(e.calls, "move "+from.Name+" "+to.Name)
	e.leader = to.ID
	return nil
}
func (e *etcd) Remove(_ context.Context, id uint64) error {
	if e.removing != nil {
		return e.removing
	}
	e.members = slices.DeleteFunc(e.members, func(m membership.Member) bool { return m.ID == id })
	e.calls = append(e.calls, "remove")
	return nil
}
func (e *etcd) Promote(context.Context, uint64) error {
	e.calls = append(e.calls, "promote")
	return e.promote
}
func (e *etcd) Status(context.Context) (LocalStatus, error) {
	e.applied++
	return LocalStatus{ID: e.local, Leader: e.leader, Applied: e.applied}, nil
}
func (e *etcd) Get(_ context.Context, key string) ([]byte, error) { return e.kv[key], nil }
func (e *etcd) Put(_ context.Context, key string, value []byte) error {
	e.kv[key] = value
	return nil
}

func three() *etcd {
	e := &etcd{leader: 1, local: 1, kv: map[string][]byte{}}
	for i, n := range []string{"n1-a", "n2-b", "n3-c"} {
		ip := "10.0.0." + string(rune('1'+i))
		e.members = append(e.members, membership.Member{
			ID: uint64(i + 1), Name: n, PeerURLs: []string{membership.PeerURL(ip)}, ClientURLs: []string{membership.ClientURL(ip)},
		})
	}
	return e
}

func node(name, member, ip string, more map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{membership.EtcdLabel: "true"},
		Annotations: map[string]string{membership.NameAnnotation: member, membership.AddressAnnotation: ip},
		Finalizers:  []string{membership.EtcdFinalizer, membership.NodeFinalizer},
	}}
	for k, v := range more {
		n.Annotations[k] = v
	}
	return n
}

func controller(e Etcd, objects ...runtime.Object) (*members, *fake.Clientset) {
	c := fake.NewClientset(objects...)
	return &members{n: &Nodes{Client: c, Log: slog.New(slog.DiscardHandler)}, etcd: e, moveLeader: true, dropRequest: true}, c
}

func annotations(t *testing.T, c *fake.Clientset, name string) map[string]string {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Annotations
}

func TestALeadingMemberHandsOverBeforeItIsRemoved(t *testing.T) {
	e := three()
	n := node("n1", "n1-a", "10.0.0.1", map[string]string{membership.RemoveAnnotation: "true"})
	m, c := controller(e, n)
	if err := m.sync(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"move n1-a n2-b", "remove"}, e.calls); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{membership.RemovedNameAnnotation: "n1-a"}, annotations(t, c, "n1")); d != "" {
		t.Error(d)
	}
}

func TestA1341ServerRemovesALeaderAsItIsAndKeepsTheRequest(t *testing.T) {
	e := three()
	n := node("n1", "n1-a", "10.0.0.1", map[string]string{membership.RemoveAnnotation: "true"})
	m, c := controller(e, n)
	m.moveLeader, m.dropRequest = false, false
	if err := m.sync(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"remove"}, e.calls); d != "" {
		t.Error(d)
	}
	if annotations(t, c, "n1")[membership.RemoveAnnotation] != "true" {
		t.Error("the request is gone")
	}
}

func TestAWrongAddressCountsAsRemoved(t *testing.T) {
	e := three()
	n := node("n2", "n2-b", "10.0.0.99", map[string]string{membership.RemoveAnnotation: "true"})
	m, c := controller(e, n)
	if err := m.sync(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if len(e.calls) != 0 || annotations(t, c, "n2")[membership.RemovedNameAnnotation] != "n2-b" {
		t.Errorf("calls %v, annotations %v", e.calls, annotations(t, c, "n2"))
	}
}

func TestTheLastVotersRequestIsCleared(t *testing.T) {
	e := three()
	e.members = e.members[:1]
	n := node("n1", "n1-a", "10.0.0.1", map[string]string{membership.RemoveAnnotation: "true"})
	m, c := controller(e, n)
	if err := m.sync(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	a := annotations(t, c, "n1")
	if _, asked := a[membership.RemoveAnnotation]; asked || a[membership.NameAnnotation] != "n1-a" || len(e.members) != 1 {
		t.Errorf("annotations %v", a)
	}
}

func TestAFailedRemovalIsAnErrorAndKeepsTheRequest(t *testing.T) {
	e := three()
	e.removing = errors.New("etcdserver: unhealthy cluster")
	n := node("n2", "n2-b", "10.0.0.2", map[string]string{membership.RemoveAnnotation: "true"})
	m, c := controller(e, n)
	if err := m.sync(t.Context(), n); err == nil {
		t.Error("no error")
	}
	if annotations(t, c, "n2")[membership.RemoveAnnotation] != "true" {
		t.Error("the request is gone")
	}
}

func TestADeletedNodeLosesItsMemberThenItsFinalizer(t *testing.T) {
	e := three()
	n := node("n2", "n2-b", "10.0.0.2", nil)
	now := metav1.Now()
	n.DeletionTimestamp = &now
	m, c := controller(e, n)
	if err := m.sync(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	got, err := c.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{membership.NodeFinalizer}, got.Finalizers); d != "" || len(e.members) != 2 {
		t.Errorf("%s members %v", d, e.members)
	}
	if err := m.sync(t.Context(), func() *corev1.Node {
		n := node("n3", "", "", nil)
		n.DeletionTimestamp = &now
		return n
	}()); !errors.Is(err, membership.ErrMissing) {
		t.Errorf("without node-name the Node hangs: got %v", err)
	}
}

func TestRetriesBackOffFromMillisecondsToTwoMinutes(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want time.Duration
	}{{1, 5 * time.Millisecond}, {2, 10 * time.Millisecond}, {14, 30 * time.Second}, {30, 30 * time.Second}, {31, 2 * time.Minute}} {
		if got := retryDelay(tc.n); got != tc.want {
			t.Errorf("retry %d after %s, want %s", tc.n, got, tc.want)
		}
	}
}

// learners runs one pass over a cache that holds these Nodes.
func learners(t *testing.T, e *etcd, c *fake.Clientset) Learners {
	t.Helper()
	n := StartNodes(t.Context(), c, slog.New(slog.DiscardHandler))
	for !n.informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	return Learners{
		Etcd: e, Nodes: func() *Nodes { return n }, Tick: time.Second, Stall: 5 * time.Minute, Heartbeat: 5 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
}

func reason(t *testing.T, c *fake.Clientset, name string) string {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == membership.ConditionType {
			return cond.Reason
		}
	}
	return ""
}

func TestOnlyTheLeaderPromotesAndWritesConditions(t *testing.T) {
	e := three()
	e.members[2].Learner = true
	bare := node("n4", "n1-a", "10.0.0.1", nil)
	bare.Labels = nil
	c := fake.NewClientset(node("n1", "n1-a", "10.0.0.1", nil), node("n3", "n3-c", "10.0.0.3", nil), node("n5", "gone", "10.0.0.5", nil), bare)
	l := learners(t, e, c)

	e.local = 2
	if err := l.pass(t.Context()); err != nil || len(e.calls) != 0 || reason(t, c, "n1") != "" {
		t.Fatalf("a follower acted: %v %v", err, e.calls)
	}
	e.local, e.promote = 1, errors.New("can only promote a learner member which is in sync with leader")
	if err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"promote"}, e.calls); d != "" || len(e.kv[membership.ProgressKey]) == 0 {
		t.Errorf("%s progress %s", d, e.kv[membership.ProgressKey])
	}
	for name, want := range map[string]string{"n1": "MemberNotLearner", "n3": "MemberIsLearner", "n5": "NotAMember", "n4": ""} {
		if got := reason(t, c, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestANodePasswordIsKeptOnceAndThenCompared(t *testing.T) {
	c := fake.NewClientset(node("n1", "n1-a", "10.0.0.1", nil))
	if err := CheckPassword(t.Context(), c, "n1", "right"); err != nil {
		t.Fatal(err)
	}
	s, err := c.CoreV1().Secrets(nodepassword.Namespace).Get(t.Context(), "n1.node-password.k3s", metav1.GetOptions{})
	if err != nil || s.Type != nodepassword.SecretType || s.Immutable == nil || !*s.Immutable || len(s.OwnerReferences) != 1 {
		t.Errorf("secret %+v, %v", s, err)
	}
	if err := CheckPassword(t.Context(), c, "n1", "right"); err != nil {
		t.Error(err)
	}
	if err := CheckPassword(t.Context(), c, "n1", "wrong"); !errors.Is(err, nodepassword.ErrMismatch) {
		t.Errorf("got %v", err)
	}
}

func TestAddressesAreReadyOnesWithTheirPort(t *testing.T) {
	port, no := int32(7443), false
	got := AddressesOf(&discoveryv1.EndpointSlice{
		Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.2"}}, {Addresses: []string{"10.0.0.1"}},
			{Addresses: []string{"10.0.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		},
	})
	if d := cmp.Diff([]string{"10.0.0.1:7443", "10.0.0.2:7443"}, got); d != "" {
		t.Error(d)
	}
}
