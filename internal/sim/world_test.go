package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

const testSwap = fleet.SwapID("20260102T030405Z-v1-s1")

// hand is a person who works on the cluster with a shell.
type hand struct {
	t *testing.T
	w *World
}

func start(t *testing.T, change ...func(*Config)) hand {
	t.Helper()
	cfg := DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range w.Log() {
				t.Log(e)
			}
		}
	})
	return hand{t, w}
}

func (h hand) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h hand) after(d time.Duration) { h.w.Advance(d) }

// until lets time pass until ok, and says how much.
func (h hand) until(what string, within time.Duration, ok func() bool) time.Duration {
	h.t.Helper()
	began := h.w.now
	for !ok() {
		if h.w.now.Sub(began) >= within {
			h.t.Fatalf("not within %s: %s", within, what)
		}
		h.after(h.w.cfg.Tick)
	}
	return h.w.now.Sub(began)
}

func (h hand) never(what string, within time.Duration, ok func() bool) {
	h.t.Helper()
	for began := h.w.now; h.w.now.Sub(began) < within; h.after(h.w.cfg.Tick) {
		if ok() {
			h.t.Fatalf("after %s: %s", h.w.now.Sub(began), what)
		}
	}
}

func (h hand) annotate(node string, pairs ...string) {
	h.t.Helper()
	p := execute.NodePatch{Annotations: map[string]*string{}}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[pairs[i]] = nil
		if pairs[i+1] != "" {
			p.Annotations[pairs[i]] = &pairs[i+1]
		}
	}
	c := h.w.Controller()
	n, _, err := c.Node(context.Background(), node)
	h.must(err)
	h.must(c.PatchNode(context.Background(), node, n.Version, p))
}

func (h hand) node(name string) *Node       { return h.w.api.node(name) }
func (h hand) note(name, key string) string { return h.node(name).Annotations[key] }
func (h hand) unit(name string, r fleet.Role) *Unit {
	return h.w.host(name).Units[r]
}
func (h hand) data(name string) *Data { return &h.w.host(name).Data }

// entry is the member of a host in etcd's list, nil when it has none.
func (h hand) entry(name string) *status.Member {
	members, _ := h.w.etcd.Members()
	for _, m := range members {
		if mh := h.w.memberHost(m); mh != nil && mh.Name == name {
			return &m
		}
	}
	return nil
}

func (h hand) voter(name string) bool {
	m := h.entry(name)
	return m != nil && !m.Learner
}

// join switches a standby to the server role, as a promotion does.
func (h hand) join(name string) {
	h.t.Helper()
	ctx, m := context.Background(), h.w.Machine(name)
	h.must(m.Stop(ctx, fleet.RoleAgent))
	h.until("agent gone", 10*time.Second, func() bool { return !h.unit(name, fleet.RoleAgent).Process })
	h.must(m.SetJoin(ctx, fleet.RoleServer, "https://10.0.0.1:6443"))
	h.must(m.SetJoining(ctx, rolefile.Joining{Swap: testSwap, BootID: h.w.host(name).BootID}))
	h.must(m.Start(ctx, fleet.RoleServer))
}

func (h hand) joined(name string) {
	h.t.Helper()
	h.join(name)
	h.until(name+" votes", time.Minute, func() bool { return h.voter(name) })
	h.must(h.w.Machine(name).SetRole(context.Background(), fleet.RoleServer))
	h.until(name+" serves", time.Minute, func() bool { return h.unit(name, fleet.RoleServer).Ready })
}

func TestAStandbyJoinsAsALearnerAndIsPromotedOnATick(t *testing.T) {
	h := start(t)
	h.join("s1")
	h.until("listed", 5*time.Second, func() bool { return h.entry("s1") != nil })
	if m := h.entry("s1"); !m.Learner || m.Started() {
		t.Fatalf("added as %+v, want a learner that has not started", m)
	}
	h.until("started", 2*time.Second, func() bool { return h.entry("s1").Started() })
	if !h.data("s1").WAL {
		t.Fatal("a started member has a WAL")
	}
	h.until("voter", 16*time.Second, func() bool { return h.voter("s1") })
	if h.w.etcd.Local("s1").View.Linearizable {
		t.Fatal("a member just promoted does not serve clients yet")
	}
	h.until("ready", 10*time.Second, func() bool { return h.unit("s1", fleet.RoleServer).Ready })
	// The condition is written one tick later (k3s-facts §4.2, design §3).
	if got := h.node("s1").EtcdIsVoter; got == "True" {
		t.Fatal("EtcdIsVoter must lag by a tick")
	}
	h.until("condition", 16*time.Second, func() bool { return h.node("s1").EtcdIsVoter == "True" })
	if h.node("s1").Labels[fleet.LabelControlPlane] != fleet.True {
		t.Fatal("no control-plane label")
	}
}

func TestOnlyOneLearnerAtATime(t *testing.T) {
	h := start(t, func(c *Config) { c.Standbys = 2; c.PromotionTick = time.Hour })
	h.w.k3s.nextTick = h.w.now.Add(time.Hour)
	h.join("s1")
	h.until("listed", 5*time.Second, func() bool { return h.entry("s1") != nil })
	h.join("s2")
	h.never("s2 was added", 30*time.Second, func() bool { return h.entry("s2") != nil })
}

func TestALearnerThatNeverStartedIsEvictedAfterFiveMinutes(t *testing.T) {
	h := start(t)
	h.join("s1")
	h.until("listed", 5*time.Second, func() bool { return h.entry("s1") != nil })
	h.w.Crash("s1")
	if h.data("s1").WAL {
		t.Fatal("crashed too late for this test")
	}
	h.never("evicted early", 5*time.Minute, func() bool { return h.entry("s1") == nil })
	h.until("evicted", 31*time.Second, func() bool { return h.entry("s1") == nil })
}

func TestALearnerThatHasJustDiedIsStillPromoted(t *testing.T) {
	h := start(t)
	h.join("s1")
	h.until("caught up", 20*time.Second, func() bool {
		return h.entry("s1") != nil && h.entry("s1").Started() && h.w.etcd.(*raft).byID(h.entry("s1").ID).caughtUp
	})
	if h.voter("s1") {
		t.Fatal("killed too late for this test")
	}
	h.w.Crash("s1")
	h.until("promoted", 16*time.Second, func() bool { return h.voter("s1") })
	n := h.node("s1")
	if n.Labels[fleet.LabelEtcd] != "" || n.Annotations[fleet.AnnotationEtcdName] != "" {
		t.Fatal("nothing on its Node may show it (k3s-facts §4.1)")
	}
	// The cure, also measured.
	m := h.entry("s1")
	n.Labels[fleet.LabelEtcd] = fleet.True
	h.annotate("s1", fleet.AnnotationEtcdName, m.Name, fleet.AnnotationEtcdAddress, "10.0.0.4", fleet.AnnotationEtcdRemove, "true")
	h.until("removed", 2*time.Second, func() bool { return h.entry("s1") == nil })
}

func TestALearnerThatStartedAndDiedIsNeverEvicted(t *testing.T) {
	h := start(t)
	h.join("s1")
	h.until("started", 5*time.Second, func() bool { m := h.entry("s1"); return m != nil && m.Started() })
	h.w.Crash("s1")
	h.never("it was evicted or promoted", 20*time.Minute, func() bool { return h.entry("s1") == nil || h.voter("s1") })
}

func TestALearnerThatReachesNobodyHasNoNameAndIsEvicted(t *testing.T) { // as R-E2-44 has it
	h := start(t)
	h.w.BlockPeers("s1")
	h.join("s1")
	h.until("listed", 5*time.Second, func() bool { return h.entry("s1") != nil })
	h.after(time.Minute)
	if m := h.entry("s1"); m == nil || m.Started() || !m.Learner {
		t.Fatalf("want a learner without a name: %+v", m)
	}
	h.until("evicted", 6*time.Minute, func() bool { return h.entry("s1") == nil })
}

func TestARemovedServerThatRunsWritesATombstoneAndLingers(t *testing.T) {
	h := start(t)
	h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
	h.until("removed", 2*time.Second, func() bool { return h.entry("v3") == nil })
	h.until("tombstone", 2*time.Second, func() bool { return h.data("v3").Tombstone })
	n := h.node("v3")
	if n.Annotations[fleet.AnnotationEtcdRemovedName] == "" || n.Annotations[fleet.AnnotationEtcdRemove] != "" || n.Labels[fleet.LabelEtcd] == "" {
		t.Fatalf("k3s deletes remove, keeps the label and names the removed: %v %v", n.Labels, n.Annotations)
	}
	if !h.unit("v3", fleet.RoleServer).Process {
		t.Fatal("the process lingers")
	}
	// The start condition keeps it from coming back (safety rules 12 and 13).
	h.w.KillProcess("v3", fleet.RoleServer)
	h.never("it came back", 2*time.Minute, func() bool { return h.entry("v3") != nil || h.unit("v3", fleet.RoleServer).Process })
}

func TestWithoutAStartConditionARemovedServerComesBackAsANewMember(t *testing.T) {
	h := start(t)
	h.w.noCondition = true
	old := h.entry("v3").ID
	h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
	h.until("tombstone", 5*time.Second, func() bool { return h.data("v3").Tombstone })
	h.w.KillProcess("v3", fleet.RoleServer)
	h.until("back", time.Minute, func() bool { return h.voter("v3") })
	if h.entry("v3").ID == old {
		t.Fatal("it must be another member")
	}
}

func TestAServerRemovedWhileDownWritesNoTombstone(t *testing.T) {
	h := start(t)
	h.w.Crash("v3")
	h.after(10 * time.Second)
	h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
	h.until("removed", 2*time.Second, func() bool { return h.entry("v3") == nil })
	h.w.Boot("v3")
	h.after(30 * time.Second)
	d, u := h.data("v3"), h.unit("v3", fleet.RoleServer)
	if d.Tombstone || !d.WAL || !u.Process || u.Ready {
		t.Fatalf("want a lingering process that never gets ready, no tombstone: %+v %+v", d, u)
	}
}

func TestTheFirstRemovalAfterARejoinIsSwallowed(t *testing.T) {
	h := start(t, func(c *Config) { c.Voters = 4 })
	h.annotate("v3", fleet.AnnotationEtcdRemovedName, "v3-00000000", fleet.AnnotationEtcdRemove, "true")
	h.until("cleared", 2*time.Second, func() bool { return h.note("v3", fleet.AnnotationEtcdRemove) == "" })
	if h.entry("v3") == nil || h.note("v3", fleet.AnnotationEtcdRemovedName) != "" {
		t.Fatal("both annotations go and the member stays")
	}
	h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
	h.until("removed", 2*time.Second, func() bool { return h.entry("v3") == nil })
}

func TestARemovalOfANameAlreadyRemovedDoesNothing(t *testing.T) {
	h := start(t)
	h.annotate("v3", fleet.AnnotationEtcdRemovedName, h.entry("v3").Name, fleet.AnnotationEtcdRemove, "true")
	h.never("something happened", time.Minute, func() bool {
		return h.entry("v3") == nil || h.note("v3", fleet.AnnotationEtcdRemove) == ""
	})
}

func TestAnAddressThatDoesNotMatchIsAFalseSuccess(t *testing.T) {
	h := start(t)
	h.w.host("v3").server.once = false // else the live server mends the address first
	h.annotate("v3", fleet.AnnotationEtcdAddress, "10.9.9.9", fleet.AnnotationEtcdRemove, "true")
	h.until("claimed", 2*time.Second, func() bool { return h.note("v3", fleet.AnnotationEtcdRemovedName) != "" })
	if h.entry("v3") == nil {
		t.Fatal("the member must still be there")
	}
}

func TestTheLastVoterIsNotRemovedAndTheAnnotationIsCleared(t *testing.T) {
	h := start(t, func(c *Config) { c.Voters = 1 })
	h.annotate("v1", fleet.AnnotationEtcdRemove, "true")
	h.until("cleared", 2*time.Second, func() bool { return h.note("v1", fleet.AnnotationEtcdRemove) == "" })
	if h.entry("v1") == nil {
		t.Fatal("the last voter was removed")
	}
}

func TestADeadVoterKeepsEtcdIsVoterTrue(t *testing.T) {
	h := start(t)
	h.w.Crash("v3")
	h.after(10 * time.Minute)
	n := h.node("v3")
	if n.EtcdIsVoter != "True" || n.Ready || n.Labels[fleet.LabelEtcd] == "" {
		t.Fatalf("want NotReady with label and condition kept: %+v", n)
	}
}

func TestWithoutItsLabelTheConditionIsFrozen(t *testing.T) {
	h := start(t)
	delete(h.node("v3").Labels, fleet.LabelEtcd)
	h.w.host("v3").server.once = false
	h.w.Crash("v3")
	delete(h.node("v3").Annotations, fleet.AnnotationEtcdName)
	h.after(2 * time.Minute)
	if h.node("v3").EtcdIsVoter != "True" {
		t.Fatal("k3s does not touch a Node without the label")
	}
}

func TestAnEtcdOnlyServerKeepsWritingItsAnnotationsAfterItsRemoval(t *testing.T) {
	h := start(t)
	h.joined("s1")
	ctx, m := context.Background(), h.w.Machine("v3")
	h.must(m.SetLevel(ctx, fleet.LevelEtcdOnly))
	h.must(m.Restart(ctx))
	h.after(time.Second)
	h.until("back", 20*time.Second, func() bool { return h.unit("v3", fleet.RoleServer).Ready })
	h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
	h.until("removed", 5*time.Second, func() bool { return h.entry("v3") == nil })
	h.until("written again", 5*time.Second, func() bool { return h.note("v3", fleet.AnnotationEtcdName) != "" })
	delete(h.node("v3").Labels, fleet.LabelEtcd)
	h.until("label again", 5*time.Second, func() bool { return h.node("v3").Labels[fleet.LabelEtcd] == fleet.True })
	h.until("condition", 40*time.Second, func() bool { return h.node("v3").EtcdIsVoter == "True" || h.node("v3").EtcdIsVoter == "False" })
	h.must(m.Stop(ctx, fleet.RoleServer))
	h.after(5 * time.Second)
	delete(h.node("v3").Labels, fleet.LabelEtcd)
	h.never("label came back", time.Minute, func() bool { return h.node("v3").Labels[fleet.LabelEtcd] != "" })
}

func TestAWipedHostWhoseMemberIsListedDoesNotJoin(t *testing.T) {
	h := start(t)
	h.w.Crash("v3")
	h.after(10 * time.Second)
	*h.data("v3") = Data{}
	h.w.Boot("v3")
	h.after(time.Minute)
	if m := h.entry("v3"); m == nil || m.Learner {
		t.Fatalf("the old member stays: %+v", m)
	}
	exits := slices.ContainsFunc(h.w.Log(), func(e Event) bool { return strings.Contains(e.What, "duplicate node name") })
	if !exits {
		t.Fatal("k3s must refuse the duplicate name")
	}
}

func TestAServerStartedWithNothingFoundsAClusterOfItsOwn(t *testing.T) {
	h := start(t)
	h.w.Crash("v1")
	*h.data("v1") = Data{}
	h.w.Boot("v1")
	h.after(time.Second)
	if !h.data("v1").SQLite {
		t.Fatal("an empty cluster was expected: no cluster-id file forbids it")
	}
	// With its identity on disk the start condition forbids it (safety rule 19).
	h.w.Crash("v1")
	*h.data("v1") = Data{}
	h.w.host("v1").Files.Identity.ClusterID = 7
	h.w.Boot("v1")
	h.after(time.Minute)
	if h.data("v1").SQLite || h.unit("v1", fleet.RoleServer).Process {
		t.Fatal("a former member founded a cluster")
	}
}

func TestNoQuorumNoWrites(t *testing.T) {
	h := start(t)
	h.w.Crash("v2")
	h.w.Crash("v3")
	h.after(10 * time.Second)
	if _, err := h.w.Controller().Nodes(context.Background()); err == nil {
		t.Fatal("the API answered without a quorum")
	}
	if _, err := h.w.etcd.Add("s1"); err == nil {
		t.Fatal("a member was added without a quorum")
	}
	h.w.Boot("v2")
	h.until("quorum", 30*time.Second, func() bool {
		_, err := h.w.Controller().Nodes(context.Background())
		return err == nil
	})
}

func TestALeaderThatDiesIsReplacedAfterAnElectionTimeout(t *testing.T) {
	h := start(t)
	leader := h.w.etcd.Leader()
	for _, n := range []string{"v1", "v2", "v3"} {
		if h.entry(n).ID == leader {
			h.w.Crash(n)
		}
	}
	if h.w.etcd.Leader() != 0 {
		t.Fatal("nobody leads yet")
	}
	took := h.until("a leader", 10*time.Second, func() bool { return h.w.etcd.Leader() != 0 })
	if took < 4*time.Second {
		t.Fatalf("elected after %s, want etcd's timeout", took)
	}
}

func TestAFirstAgentStartDependsOnItsJoinURLAlone(t *testing.T) {
	h := start(t)
	h.w.Crash("s1")
	h.w.host("s1").remembered = ""
	h.w.Crash("v1")
	h.w.Boot("s1")
	h.never("ready", time.Minute, func() bool { return h.unit("s1", fleet.RoleAgent).Ready })
	h.w.Boot("v1")
	h.until("ready", time.Minute, func() bool { return h.unit("s1", fleet.RoleAgent).Ready })
	// From now on it knows the other servers.
	h.w.Crash("s1")
	h.w.Crash("v1")
	h.after(10 * time.Second)
	h.w.Boot("s1")
	h.until("ready", time.Minute, func() bool { return h.unit("s1", fleet.RoleAgent).Ready })
}

func TestAWriteForAnOldVersionIsAConflict(t *testing.T) {
	h := start(t)
	ctx, c := context.Background(), h.w.Controller()
	n, _, err := c.Node(ctx, "v1")
	h.must(err)
	h.annotate("v1", "a", "b")
	err = c.PatchNode(ctx, "v1", n.Version, execute.NodePatch{DropTaint: "x"})
	if err == nil || !strings.Contains(err.Error(), execute.ErrConflict.Error()) {
		t.Fatalf("got %v, want a conflict", err)
	}
}

func TestAKilledProcessHasNoFurtherEffect(t *testing.T) {
	h := start(t)
	ctx, m := context.Background(), h.w.Machine("s1")
	h.w.KillAfter(1)
	h.must(m.SetRole(ctx, fleet.RoleServer))
	if err := m.Stop(ctx, fleet.RoleAgent); err == nil {
		t.Fatal("the second effect must fail")
	}
	if !h.w.Revive() {
		t.Fatal("the process was killed")
	}
	if h.unit("s1", fleet.RoleAgent).stopping {
		t.Fatal("a killed process stopped the agent")
	}
}

func TestAPausedServerWritesItsTombstoneWhenItGoesOn(t *testing.T) {
	h := start(t)
	h.w.Pause("v3")
	h.after(10 * time.Second)
	h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
	h.until("removed", 2*time.Second, func() bool { return h.entry("v3") == nil })
	h.w.Resume("v3")
	h.until("tombstone", 5*time.Second, func() bool { return h.data("v3").Tombstone })
}

func TestAnEvictionHonoursABudgetAndAJobEndsByItself(t *testing.T) {
	h := start(t)
	ctx, c := context.Background(), h.w.Controller()
	h.w.AddPod(Pod{Node: "s1", Pod: podNamed("web"), Blocked: "budget web"})
	h.w.AddPod(Pod{Node: "s1", Pod: podNamed("api")})
	h.w.AddPod(Pod{Node: "s1", Pod: podNamed("job"), Ends: h.w.now.Add(time.Minute)})
	if refusal, err := c.Evict(ctx, podNamed("web")); err != nil || refusal != "budget web" {
		t.Fatalf("refusal %q, error %v", refusal, err)
	}
	if _, err := c.Evict(ctx, podNamed("api")); err != nil {
		t.Fatal(err)
	}
	h.after(2 * time.Second)
	pods, err := c.Pods(ctx, "s1")
	h.must(err)
	if len(pods) != 2 {
		t.Fatalf("%d pods, want the blocked one and the job", len(pods))
	}
	h.after(time.Minute)
	if pods, _ = c.Pods(ctx, "s1"); len(pods) != 1 {
		t.Fatalf("%d pods, want the blocked one", len(pods))
	}
}

func podNamed(name string) observe.Pod {
	return observe.Pod{Namespace: "default", Name: name, UID: "uid-" + name, Owner: "ReplicaSet"}
}
