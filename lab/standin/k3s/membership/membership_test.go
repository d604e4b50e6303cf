package membership

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func member(id uint64, name, ip string) Member {
	m := Member{ID: id, Name: name, PeerURLs: []string{PeerURL(ip)}, ClientURLs: []string{ClientURL(ip)}}
	if name == "" {
		m.ClientURLs = nil
	}
	return m
}

func learner(m Member) Member { m.Learner = true; return m }

func etcdNode(annotations map[string]string) Node {
	return Node{Name: "n1", Labels: map[string]string{EtcdLabel: "true"}, Annotations: annotations}
}

func TestJoinAddsAMemberAndListsThem(t *testing.T) {
	got, err := PlanJoin([]Member{member(1, "a-11111111", "10.0.0.1")}, "b", "b-22222222", "10.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	want := Join{Add: true, Initial: "a-11111111=https://10.0.0.1:2380,b-22222222=https://10.0.0.2:2380"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestJoinAdoptsANeverStartedMemberAtItsOwnAddress(t *testing.T) {
	got, err := PlanJoin([]Member{member(1, "a-11111111", "10.0.0.1"), learner(member(2, "", "10.0.0.2"))}, "b", "b-22222222", "10.0.0.2")
	if err != nil || got.Add {
		t.Fatalf("got %+v, %v", got, err)
	}
	if want := "a-11111111=https://10.0.0.1:2380,b-22222222=https://10.0.0.2:2380"; got.Initial != want {
		t.Errorf("got %s", got.Initial)
	}
}

// k3s facts §14.3, row "Duplicate-name refusal, exit 0, restart by supervisor": the decision half.
func TestDuplicateNameIsRefused(t *testing.T) {
	_, err := PlanJoin([]Member{member(1, "a-11111111", "10.0.0.1"), member(2, "b-33333333", "10.0.0.2")}, "b", "b-22222222", "10.0.0.2")
	if !errors.Is(err, ErrDuplicate) {
		t.Fatalf("got %v", err)
	}
	if _, retry := RetryJoin(err); retry {
		t.Error("a duplicate name must end the process")
	}
	if _, err := PlanJoin([]Member{member(2, "b-33333333", "10.0.0.2")}, "b", "b-33333333", "10.0.0.9"); err != nil {
		t.Errorf("the same full name is no duplicate: %v", err)
	}
}

// k3s facts §14.3, row "One learner limit, …": what a second joiner does.
func TestOneLearnerLimitIsRetried(t *testing.T) {
	for _, text := range []string{
		"etcdserver: too many learner members in cluster", "etcdserver: unhealthy cluster", "context deadline exceeded",
	} {
		if _, retry := RetryJoin(errors.New(text)); !retry {
			t.Errorf("%s is not retried", text)
		}
	}
	if _, retry := RetryJoin(errors.New("etcdserver: Peer URLs already exists")); retry {
		t.Error("other errors end the process")
	}
}

func TestOnlyVotersOfOthersAreJoinedThroughAndTheJoinHostIsFirst(t *testing.T) {
	got := JoinEndpoints([]Member{
		member(1, "a-1", "10.0.0.1"), member(2, "b-2", "10.0.0.2"), learner(member(3, "c-3", "10.0.0.3")), member(4, "d-4", "10.0.0.4"),
	}, "10.0.0.1", "10.0.0.4")
	if d := cmp.Diff([]string{"https://10.0.0.4:2379", "https://10.0.0.2:2379"}, got); d != "" {
		t.Error(d)
	}
}

func TestAServerIsReadyOnlyAsAVoterUnderItsNameAndAddress(t *testing.T) {
	list := []Member{member(1, "a-1", "10.0.0.1"), learner(member(2, "b-2", "10.0.0.2"))}
	if err := TestSelf(list, 1, "a-1", "10.0.0.1"); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		id       uint64
		name, ip string
	}{{2, "b-2", "10.0.0.2"}, {1, "a-1", "10.0.0.9"}, {1, "x-1", "10.0.0.1"}, {9, "a-1", "10.0.0.1"}} {
		if err := TestSelf(list, tc.id, tc.name, tc.ip); err == nil {
			t.Errorf("%+v passes", tc)
		}
	}
}

// k3s facts §14.3, row "remove / removed-node-name state machine incl. swallowed request, last-voter refusal that
// clears the annotation, false success on address mismatch".
func TestRemoveStateMachine(t *testing.T) {
	full := func(extra map[string]string) map[string]string {
		a := map[string]string{NameAnnotation: "n1-aaaaaaaa", AddressAnnotation: "10.0.0.1"}
		for k, v := range extra {
			a[k] = v
		}
		return a
	}
	for _, tc := range []struct {
		name string
		node Node
		want Action
	}{
		{"no request", etcdNode(full(nil)), Nothing},
		{"a request", etcdNode(full(map[string]string{RemoveAnnotation: "true"})), Remove},
		{"case does not matter", etcdNode(full(map[string]string{RemoveAnnotation: "True"})), Remove},
		{"another value is ignored", etcdNode(full(map[string]string{RemoveAnnotation: "yes"})), Nothing},
		{"without the etcd label nothing happens", Node{Annotations: full(map[string]string{RemoveAnnotation: "true"})}, Nothing},
		{"any label value will do", Node{Labels: map[string]string{EtcdLabel: ""}, Annotations: full(map[string]string{RemoveAnnotation: "true"})}, Remove},
		{"missing name is an error that repeats", etcdNode(map[string]string{RemoveAnnotation: "true", AddressAnnotation: "10.0.0.1"}), Retry},
		{"missing address comes before everything", etcdNode(map[string]string{RemoveAnnotation: "true", NameAnnotation: "x", RemovedNameAnnotation: "y"}), Retry},
		{"an old removed name swallows the request", etcdNode(full(map[string]string{RemoveAnnotation: "true", RemovedNameAnnotation: "n1-old00000"})), Swallow},
		{"the same removed name is a no-op", etcdNode(full(map[string]string{RemoveAnnotation: "true", RemovedNameAnnotation: "n1-aaaaaaaa"})), Nothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Decide(tc.node); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if _, found := Find([]Member{member(1, "n1-aaaaaaaa", "10.0.0.1")}, "n1-aaaaaaaa", "10.0.0.7"); found {
		t.Error("a wrong address must not match: k3s counts it as removed")
	}
	if !IsNotEnough(errors.New("rpc error: etcdserver: re-configuration failed due to not enough started members")) {
		t.Error("etcd's refusal of the last voter is not recognised")
	}
	if p := Refused(); len(p) != 1 || p[RemoveAnnotation] != nil {
		t.Errorf("a refusal clears only the request, got %v", p)
	}
	if p := Removed("n1-aaaaaaaa", true); *p[RemovedNameAnnotation] != "n1-aaaaaaaa" || len(p) != 4 {
		t.Errorf("got %v", p)
	}
	if _, has := Removed("n1-aaaaaaaa", false)[RemoveAnnotation]; has {
		t.Error("before 1.34.2 the request stayed")
	}
}

// k3s facts §14.3, row "Leader move to first other voter, no health check".
func TestLeaderMovesToTheFirstOtherVoter(t *testing.T) {
	list := []Member{learner(member(9, "l-9", "10.0.0.9")), member(1, "a-1", "10.0.0.1"), member(2, "b-2", "10.0.0.2"), member(3, "c-3", "10.0.0.3")}
	got, err := NewLeader(list, 1)
	if err != nil || got.ID != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := NewLeader(list[:2], 1); !IsNotEnough(err) {
		t.Errorf("the last voter: %v", err)
	}
}

// k3s facts §14.3, row "Finalizers on Nodes and removal on Node deletion": the decision half.
func TestNodeDeletionRemovesTheMember(t *testing.T) {
	for _, tc := range []struct {
		name string
		node Node
		want Action
	}{
		{"no etcd label", Node{}, Release},
		{"removed before", etcdNode(map[string]string{RemovedNameAnnotation: "old", NameAnnotation: "n", AddressAnnotation: "a"}), Release},
		{"no name hangs", etcdNode(map[string]string{AddressAnnotation: "a"}), Retry},
		{"a member goes", etcdNode(map[string]string{NameAnnotation: "n", AddressAnnotation: "a"}), Remove},
	} {
		tc.node.Deleting = true
		if got := Decide(tc.node); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// k3s facts §14.3, row "Role labels: control-plane once per start, etcd continuously; none removed for agents": the
// etcd half.
func TestALiveServerClaimsItsNodeAgain(t *testing.T) {
	p, label := Claim(Node{}, "n1-aaaaaaaa", "10.0.0.1")
	if len(p) != 2 || !label {
		t.Errorf("got %v %v", p, label)
	}
	p, label = Claim(etcdNode(map[string]string{NameAnnotation: "n1-aaaaaaaa", AddressAnnotation: "10.0.0.1"}), "n1-aaaaaaaa", "10.0.0.1")
	if len(p) != 0 || label {
		t.Errorf("nothing to do, got %v %v", p, label)
	}
}

// k3s facts §14.3, row "One learner limit, 15 s promotion tick, no eviction of a started dead learner".
func TestAStartedDeadLearnerIsNeverEvictedAnUnstartedOneIs(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	run := func(m Member) (evictedAfter time.Duration) {
		var p Progress
		for i := 0; i <= 60; i++ {
			var evict bool
			// The applied index is the leader's own: it grows although the learner is dead.
			if p, evict = Track(p, m, uint64(100+i), start.Add(time.Duration(i)*15*time.Second), 5*time.Minute); evict {
				return time.Duration(i) * 15 * time.Second
			}
		}
		return 0
	}
	if at := run(learner(member(2, "b-2", "10.0.0.2"))); at != 0 {
		t.Errorf("a started learner was evicted after %s", at)
	}
	if at := run(learner(member(3, "", "10.0.0.3"))); at != 5*time.Minute+15*time.Second {
		t.Errorf("an unstarted learner was evicted after %s", at)
	}
}

// k3s facts §14.3, row "EtcdIsVoter from member list only, 5 min heartbeat, label-selected, frozen without label".
func TestEtcdIsVoterComesFromTheMemberListOnly(t *testing.T) {
	list := []Member{member(1, "n1-aaaaaaaa", "10.0.0.1"), learner(member(2, "n2-b", "10.0.0.2")), member(3, "n3-c", "10.0.0.3")}
	list[2].ClientURLs = nil
	for _, tc := range []struct {
		node   string
		errors []string
		want   string
	}{
		{"n1-aaaaaaaa", nil, "True MemberNotLearner"},
		{"n2-b", nil, "False MemberIsLearner"},
		{"n3-c", nil, "False Unhealthy"},
		{"gone", nil, "False NotAMember"},
		{"", nil, "False NotAMember"},
		{"n1-aaaaaaaa", []string{"etcdserver: mvcc: database space exceeded"}, "False Unhealthy"},
	} {
		c := Voter(etcdNode(map[string]string{NameAnnotation: tc.node}), list, tc.errors)
		if got := c.Status + " " + c.Reason; got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.node, got, tc.want)
		}
	}
	now := time.Now()
	same := Condition{"True", "MemberNotLearner", "m"}
	for _, tc := range []struct {
		name              string
		old               *Condition
		age               time.Duration
		write, transition bool
	}{
		{"new", nil, 0, true, true},
		{"unchanged and young", &same, 4 * time.Minute, false, false},
		{"unchanged and old", &same, 5 * time.Minute, true, false},
		{"changed", &Condition{Status: "False"}, 0, true, true},
	} {
		write, transition := WriteCondition(tc.old, now.Add(-tc.age), same, now, 5*time.Minute)
		if write != tc.write || transition != tc.transition {
			t.Errorf("%s: got %v %v", tc.name, write, transition)
		}
	}
}
