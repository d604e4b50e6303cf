//go:build live

package live

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// TestRows runs one cluster through the rows of k3s facts §14.3 that need live processes; each subtest is named after
// its row and builds on the ones before.
func TestRows(t *testing.T) {
	l := newLab(t)
	n1, n2, n3, n4, n5 := l.host("n1", 11), l.host("n2", 12), l.host("n3", 13), l.host("n4", 14), l.host("n5", 15)
	stall := []string{"K3S_STANDIN_LEARNER_STALL=15s", "K3S_STANDIN_LEARNER_TICK=5s"}

	step := func(name string, f func(*testing.T)) {
		t.Helper()
		if !t.Run(name, func(sub *testing.T) { l.t = sub; f(sub) }) {
			t.FailNow()
		}
		l.t = t
	}

	step("A first server boots to ready", func(t *testing.T) {
		n1.start(stall, server("--cluster-init")...)
		t.Logf("ready after %s", n1.awaitReady(90*time.Second))
		l.until(30*time.Second, "n1 Ready", func() bool { return nodeReady(getNode(t, n1.kube(), "n1")) })
	})
	kube := n1.kube()

	step("WAL dir = initialised, name file, join with learner; READY only as voter (server)", func(t *testing.T) {
		for _, n := range []*host{n2, n3} {
			n.start(stall, join(n1)...)
			sawLearner := false
			l.until(90*time.Second, n.name+" is ready", func() bool {
				voter, listed := n1.members()[n.member()]
				if listed && !voter {
					sawLearner = true
					if n.isReady() {
						t.Errorf("%s was ready as a learner", n.name)
					}
				}
				return n.isReady()
			})
			if !sawLearner {
				t.Errorf("%s was never a learner", n.name)
			}
			if !n1.members()[n.member()] || !strings.HasPrefix(n.member(), n.name+"-") || len(n.member()) != len(n.name)+9 {
				t.Errorf("member %q is not a voter in %v", n.member(), n1.members())
			}
			if !exists(n.data("server", "db", "etcd", "member", "wal")) {
				t.Error("no WAL")
			}
		}
	})

	step("READY after Node patch (agent)", func(t *testing.T) {
		n4.start(nil, agentOf(n1, "--node-label", "lab=yes")...)
		n4.awaitReady(60 * time.Second)
		node := getNode(t, kube, "n4")
		if !strings.HasPrefix(node.Annotations["k3s.io/node-args"], `["agent","--token","********"`) ||
			node.Annotations["k3s.io/internal-ip"] != n4.ip || node.Labels["lab"] != "yes" {
			t.Errorf("annotations %v, labels %v", node.Annotations, node.Labels)
		}
		var state struct{ ServerURL string }
		b, err := os.ReadFile(n4.data("agent", "etc", "k3s-agent-load-balancer.json"))
		if err != nil || json.Unmarshal(b, &state) != nil || state.ServerURL != "https://"+n1.ip+":6443" {
			t.Errorf("load balancer state %s, %v", b, err)
		}
	})

	step("Role labels: control-plane once per start, etcd continuously; none removed for agents", func(t *testing.T) {
		labels := func() map[string]string { return getNode(t, kube, "n2").Labels }
		l.until(20*time.Second, "both labels are there", func() bool {
			return labels()[membership.ControlPlaneLabel] == "true" && labels()[membership.EtcdLabel] == "true"
		})
		patchLabels(t, n1, "n2", membership.ControlPlaneLabel, membership.EtcdLabel)
		l.until(10*time.Second, "the etcd label is back", func() bool { return labels()[membership.EtcdLabel] == "true" })
		if _, back := labels()[membership.ControlPlaneLabel]; back {
			t.Error("the control-plane label came back without a restart")
		}
	})

	step("EtcdIsVoter from member list only", func(t *testing.T) {
		for _, n := range []string{"n1", "n2", "n3"} {
			l.until(30*time.Second, n+" has the condition", func() bool { return voterReason(getNode(t, kube, n)) == "MemberNotLearner" })
		}
		if r := voterReason(getNode(t, kube, "n4")); r != "" {
			t.Errorf("the agent has reason %q", r)
		}
	})

	step("One learner limit, no join while there is one, an unstarted learner is evicted", func(t *testing.T) {
		c := n1.etcd()
		if _, err := c.MemberAddAsLearner(t.Context(), []string{"https://" + subnet + "99:2380"}); err != nil {
			t.Fatal(err)
		}
		_, err := c.MemberAddAsLearner(t.Context(), []string{"https://" + subnet + "98:2380"})
		if _, retry := membership.RetryJoin(err); !retry {
			t.Errorf("a second learner: %v", err)
		}
		l.until(60*time.Second, "the unstarted learner is gone", func() bool { m := n1.members(); return len(m) == 3 })
	})

	step("Duplicate-name refusal, exit 0", func(t *testing.T) {
		n5.start(nil, join(n1, "--node-name", "n2")...)
		if code := n5.exit(60 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if n5.member() != "" || !strings.Contains(n5.log(), "duplicate node name found") {
			t.Errorf("name file %q", n5.member())
		}
	})

	step("Agent config rejects server-only keys; exit 1", func(t *testing.T) {
		conf := filepath.Join(n5.dir, "agent.yaml")
		if err := os.WriteFile(conf, []byte("cluster-init: true\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n5.start(nil, agentOf(n1, "--config", conf)...)
		if code := n5.exit(10 * time.Second); code != 1 {
			t.Errorf("exit code %d", code)
		}
		if !strings.Contains(n5.log(), "flag provided but not defined: -cluster-init") {
			t.Error("k3s's sentence is missing")
		}
	})

	step("Snapshots: file and object", func(t *testing.T) {
		out, err := exec.Command("ip", "netns", "exec", n1.ns(), l.k3s, "etcd-snapshot", "save", "--name", "before", "--data-dir", n1.data()).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		files, err := filepath.Glob(n1.data("server", "db", "snapshots", "before-n1-*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("files %v, %v", files, err)
		}
		dyn, err := dynamic.NewForConfig(n1.rest())
		if err != nil {
			t.Fatal(err)
		}
		list, err := dyn.Resource(schema.GroupVersionResource{Group: "k3s.cattle.io", Version: "v1", Resource: "etcdsnapshotfiles"}).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("objects %v, %v", list, err)
		}
		if got := list.Items[0].Object["spec"].(map[string]any)["snapshotName"]; got != filepath.Base(files[0]) {
			t.Errorf("snapshotName %v", got)
		}
	})

	step("Node password: agent 403 loop, server tolerant", func(t *testing.T) {
		file := func(n *host) string { return filepath.Join(n.dir, "etc", "node", "password") }
		right, err := os.ReadFile(file(n4))
		if err != nil {
			t.Fatal(err)
		}
		n4.stop()
		if err := os.WriteFile(file(n4), []byte(strings.Repeat("0", 32)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n4.start(nil, agentOf(n1)...)
		l.until(20*time.Second, "the agent is refused", func() bool { return strings.Contains(n4.log(), "Node password rejected") })
		if n4.isReady() {
			t.Error("ready with a wrong password")
		}
		if err := os.WriteFile(file(n4), right, 0o600); err != nil {
			t.Fatal(err)
		}
		n4.stop()
		n4.start(nil, agentOf(n1)...)
		n4.awaitReady(30 * time.Second)
	})

	step("Leader move to first other voter; process lingers after removal, tombstone after a removal while running", func(t *testing.T) {
		old := n3.member()
		lead(t, n3, n1, n2, n3)
		heir := firstOther(t, n1, old)
		annotate(t, kube, "n3", map[string]any{membership.RemoveAnnotation: "true"})
		l.until(30*time.Second, "n3's member is gone", func() bool { m := n1.members(); _, in := m[old]; return m != nil && !in })
		if got := leaderOf(t, n1); got != heir {
			t.Errorf("leadership went to %s, not to the first other voter %s", got, heir)
		}
		l.until(15*time.Second, "n3 has a tombstone", func() bool { return exists(n3.data("server", "db", "etcd", "tombstone")) })
		node := getNode(t, kube, "n3")
		l.until(10*time.Second, "the request is done", func() bool {
			node = getNode(t, kube, "n3")
			_, asked := node.Annotations[membership.RemoveAnnotation]
			return !asked && node.Annotations[membership.RemovedNameAnnotation] == old
		})
		if node.Labels[membership.EtcdLabel] != "true" || node.Labels[membership.ControlPlaneLabel] != "true" {
			t.Errorf("labels %v", node.Labels)
		}
		time.Sleep(3 * time.Second)
		if !n3.running() {
			t.Error("the process ended although it holds no lease")
		}
	})

	n3Password := filepath.Join(n3.dir, "etc", "node", "password")
	n3Right, err := os.ReadFile(n3Password)
	if err != nil {
		t.Fatal(err)
	}
	step("Backup rename and rejoin as a new member; node password: server tolerant", func(t *testing.T) {
		old := n3.member()
		n3.kill()
		if err := os.WriteFile(n3Password, []byte(strings.Repeat("1", 32)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n3.start(stall, join(n1)...)
		n3.awaitReady(90 * time.Second)
		if n3.member() == old {
			t.Error("the member name was kept")
		}
		if backups, err := filepath.Glob(n3.data("server", "db", "etcd-backup-*")); err != nil || len(backups) != 1 {
			t.Errorf("backups %v, %v", backups, err)
		}
		l.until(20*time.Second, "n3's Node has the new name", func() bool {
			return getNode(t, kube, "n3").Annotations[membership.NameAnnotation] == n3.member()
		})
		l.until(20*time.Second, "a wrong password is only an event", func() bool {
			events, err := kube.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NodePasswordValidationFailed"})
			return err == nil && len(events.Items) > 0 && events.Items[0].InvolvedObject.Name == "n3"
		})
	})

	step("The first request after a rejoin is swallowed", func(t *testing.T) {
		annotate(t, kube, "n3", map[string]any{membership.RemoveAnnotation: "true"})
		l.until(10*time.Second, "request and old name are wiped", func() bool {
			a := getNode(t, kube, "n3").Annotations
			_, asked := a[membership.RemoveAnnotation]
			_, removed := a[membership.RemovedNameAnnotation]
			return !asked && !removed
		})
		if !n1.members()[n3.member()] {
			t.Error("the member was removed")
		}
	})

	step("False success on address mismatch", func(t *testing.T) {
		n3.stop()
		annotate(t, kube, "n3", map[string]any{membership.RemoveAnnotation: "true", membership.AddressAnnotation: "192.0.2.1"})
		l.until(20*time.Second, "k3s says it was removed", func() bool {
			return getNode(t, kube, "n3").Annotations[membership.RemovedNameAnnotation] == n3.member()
		})
		if _, listed := n1.members()[n3.member()]; !listed {
			t.Error("the member is gone")
		}
	})

	step("No tombstone after a removal while down, the unit never gets ready", func(t *testing.T) {
		annotate(t, kube, "n3", map[string]any{
			membership.RemovedNameAnnotation: nil, membership.NameAnnotation: n3.member(), membership.AddressAnnotation: n3.ip,
			membership.RemoveAnnotation: "true",
		})
		old := n3.member()
		l.until(30*time.Second, "n3's member is gone", func() bool { m := n1.members(); _, in := m[old]; return m != nil && !in })
		n3.start(stall, join(n1)...)
		l.until(30*time.Second, "n3's etcd stopped", func() bool { return strings.Contains(n3.log(), "etcd server stopped") })
		time.Sleep(3 * time.Second)
		if exists(n3.data("server", "db", "etcd", "tombstone")) || n3.isReady() || !n3.running() {
			t.Errorf("tombstone %v, ready %v, running %v", exists(n3.data("server", "db", "etcd", "tombstone")), n3.isReady(), n3.running())
		}
		n3.kill()
	})

	step("A former server starts as an agent and keeps its labels", func(t *testing.T) {
		if err := os.Rename(n3.data("server", "db"), n3.data("server", "db-old")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n3Password, n3Right, 0o600); err != nil {
			t.Fatal(err)
		}
		n3.start(nil, agentOf(n1)...)
		n3.awaitReady(60 * time.Second)
		node := getNode(t, kube, "n3")
		if node.Labels[membership.EtcdLabel] != "true" || node.Labels[membership.ControlPlaneLabel] != "true" {
			t.Errorf("labels %v", node.Labels)
		}
		l.until(30*time.Second, "condition NotAMember", func() bool { return voterReason(getNode(t, kube, "n3")) == "NotAMember" })
		patchLabels(t, n1, "n3", membership.EtcdLabel, membership.ControlPlaneLabel)
		time.Sleep(2 * time.Second)
		if _, back := getNode(t, kube, "n3").Labels[membership.EtcdLabel]; back {
			t.Error("the label came back without a server")
		}
	})

	step("Etcd-only: READY without an apiserver of its own, label and annotations re-added", func(t *testing.T) {
		n2.stop()
		n2.start(stall, join(n1, "--disable-apiserver", "--disable-controller-manager", "--disable-scheduler")...)
		n2.awaitReady(60 * time.Second)
		l.until(40*time.Second, "n2's Node says how it was started", func() bool {
			return strings.Contains(getNode(t, kube, "n2").Annotations["k3s.io/node-args"], "--disable-apiserver")
		})
		old := n2.member()
		patchLabels(t, n1, "n2", membership.EtcdLabel)
		l.until(15*time.Second, "the label is back", func() bool { return getNode(t, kube, "n2").Labels[membership.EtcdLabel] == "true" })
		annotate(t, kube, "n2", map[string]any{membership.RemoveAnnotation: "true"})
		l.until(40*time.Second, "n2's member is gone", func() bool { m := n1.members(); _, in := m[old]; return m != nil && !in })
		l.until(20*time.Second, "the removed server claims its Node again", func() bool {
			a := getNode(t, kube, "n2").Annotations
			return a[membership.RemovedNameAnnotation] == old && a[membership.NameAnnotation] == old
		})
		if !n2.running() {
			t.Error("the removed server ended")
		}
		n2.kill()
	})

	step("Last-voter refusal that clears the annotation", func(t *testing.T) {
		annotate(t, kube, "n1", map[string]any{membership.RemoveAnnotation: "true"})
		l.until(20*time.Second, "the request is refused", func() bool {
			a := getNode(t, kube, "n1").Annotations
			_, asked := a[membership.RemoveAnnotation]
			return !asked && a[membership.RemovedNameAnnotation] == ""
		})
		if !n1.members()[n1.member()] {
			t.Error("the last voter is gone")
		}
	})

	step("Finalizers on Nodes", func(t *testing.T) {
		l.until(20*time.Second, "both finalizers are there", func() bool {
			f := getNode(t, kube, "n4").Finalizers
			return slices.Contains(f, membership.EtcdFinalizer) && slices.Contains(f, membership.NodeFinalizer)
		})
		n4.stop()
		if err := kube.CoreV1().Nodes().Delete(t.Context(), "n4", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		l.until(20*time.Second, "n4's Node is gone", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := kube.CoreV1().Nodes().Get(ctx, "n4", metav1.GetOptions{})
			return err != nil
		})
	})

	step("A stopped server exits 0 and takes its children along", func(t *testing.T) {
		began := time.Now()
		if code := n1.stop(); code != 0 || time.Since(began) > 10*time.Second {
			t.Errorf("exit code %d after %s", code, time.Since(began))
		}
		out, err := exec.Command("ip", "netns", "pids", n1.ns()).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(out)) {
			cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if !strings.Contains(string(cmdline), "containerd-shim") {
				t.Errorf("left behind: %s %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " "))
			}
		}
	})
}

// leaderOf is the name of the leader as one server knows it.
func leaderOf(t *testing.T, via *host) string {
	t.Helper()
	c := via.etcd()
	for range 40 {
		status, err := c.Status(t.Context(), c.Endpoints()[0])
		list, listErr := c.MemberList(t.Context())
		if err == nil && listErr == nil {
			for _, m := range list.Members {
				if m.ID == status.Leader {
					return m.Name
				}
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
	t.Fatal("no leader")
	return ""
}

// lead moves leadership to a host.
func lead(t *testing.T, to *host, all ...*host) {
	t.Helper()
	list, err := all[0].etcd().MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var id uint64
	for _, m := range list.Members {
		if m.Name == to.member() {
			id = m.ID
		}
	}
	leader := leaderOf(t, all[0])
	for _, h := range all {
		if h.member() != leader || h == to {
			continue
		}
		if _, err := h.etcd().MoveLeader(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := leaderOf(t, all[0]); got != to.member() {
		t.Fatalf("leader is %s", got)
	}
}

// firstOther is the first voter in list order that is not name.
func firstOther(t *testing.T, via *host, name string) string {
	t.Helper()
	list, err := via.etcd().MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Members {
		if !m.IsLearner && m.Name != name {
			return m.Name
		}
	}
	return ""
}

// TestALeaseHolderExitsAfterItsRemoval takes over a minute of waiting for Leases, so it runs only with LIVE_LONG=1.
func TestALeaseHolderExitsAfterItsRemoval(t *testing.T) {
	if os.Getenv("LIVE_LONG") != "1" {
		t.Skip("set LIVE_LONG=1")
	}
	l := newLab(t)
	m1, m2, m3 := l.host("m1", 21), l.host("m2", 22), l.host("m3", 23)
	m1.start(nil, server("--cluster-init")...)
	m1.awaitReady(90 * time.Second)
	for _, m := range []*host{m2, m3} {
		m.start(nil, join(m1)...)
		m.awaitReady(120 * time.Second)
	}
	m5 := l.host("m5", 25)
	m5.start(nil, agentOf(m1)...)
	m5.awaitReady(60 * time.Second)
	kube := m2.kube()
	annotate(t, kube, "m1", map[string]any{membership.RemoveAnnotation: "true"})
	l.until(15*time.Second, "m1 has a tombstone", func() bool { return exists(m1.data("server", "db", "etcd", "tombstone")) })
	began := time.Now()
	if code := m1.exit(60 * time.Second); code != 1 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("m1 exited after %s", time.Since(began))
	l.until(90*time.Second, "the next holder finishes the book-keeping", func() bool {
		a := getNode(t, kube, "m1").Annotations
		_, asked := a[membership.RemoveAnnotation]
		return !asked && a[membership.RemovedNameAnnotation] != ""
	})
	if !nodeReady(getNode(t, kube, "m5")) {
		t.Error("the agent is not Ready although other servers live")
	}
	m5.stop()
	m5.start(nil, agentOf(m1)...)
	t.Logf("agent restarted through remembered servers after %s", m5.awaitReady(60*time.Second))
	m5.stop()
	m5.start(nil, "agent", "--token", secret, "--server", "https://"+subnet+"99:6443")
	l.until(30*time.Second, "a changed K3S_URL to a dead host waits", func() bool {
		return strings.Contains(m5.log(), "Failed to validate connection to cluster at https://"+subnet+"99:6443")
	})
	if m5.isReady() {
		t.Error("ready through a dead host")
	}
	m5.stop()

	m1.start(nil, server()...)
	if code := m1.exit(30 * time.Second); code != 1 {
		t.Errorf("a tombstone without --server: exit code %d", code)
	}
	m1.start(nil, join(m2)...)
	m1.awaitReady(120 * time.Second)

	// Control-plane-only on a fresh host, and what --disable-etcd answers.
	m4 := l.host("m4", 24)
	m4.start(nil, join(m2, "--disable-etcd")...)
	m4.awaitReady(90 * time.Second)
	l.until(30*time.Second, "m4's Node is there with the control-plane label alone", func() bool {
		n, err := kube.CoreV1().Nodes().Get(t.Context(), "m4", metav1.GetOptions{})
		if err != nil {
			return false
		}
		_, etcd := n.Labels[membership.EtcdLabel]
		return n.Labels[membership.ControlPlaneLabel] == "true" && !etcd
	})
}

// patchLabels deletes labels of a Node.
func patchLabels(t *testing.T, via *host, node string, labels ...string) {
	t.Helper()
	gone := map[string]any{}
	for _, k := range labels {
		gone[k] = nil
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": gone}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := via.kube().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, b, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
