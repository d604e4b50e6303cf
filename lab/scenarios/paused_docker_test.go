package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// mixedHurried is the hurried fleet with both ends of its swaps, and one voter that
// stays, in containers; n3 is native.
func mixedHurried() cluster.Spec { return hurried().Docker("n1", "n2", "n4") }

// troubledDocker is troubled on a lent cluster of that kind.
func troubledDocker(t *testing.T, more ...string) (s *scenario, out, in string) {
	t.Helper()
	return troubledOn(t, "hurried-docker", mixedHurried, more...)
}

// R-E2-43, safety rules 12 and 13: the outgoing container freezes once IN votes,
// and with it the daemon, as on a machine that hangs. It is removed in that state.
// When k3s goes on it learns that; started anew it idles on the tombstone, for
// longer than a learner may stall; the daemon makes it an agent.
func Test_swap_docker_paused(t *testing.T) {
	long(t)
	s, out, in := troubledDocker(t)
	s.leaderDies = true
	s.ask(out, in)
	s.awaitState("drain-out", "step-down")
	s.docker(out, "pause", cluster.HostContainer)
	s.docker(out, "pause", cluster.ServerContainer)
	s.Logf("%s is frozen", out)
	s.untilMember(out, "removed", func(m *cluster.Member) bool { return m == nil })
	s.neverAMember(out, 20*time.Second)
	s.docker(out, "unpause", cluster.ServerContainer)
	s.layTombstone(out)
	s.docker(out, "restart", cluster.ServerContainer)
	s.says(out, cluster.ServerContainer, "tombstone")
	s.neverAMember(out, 30*time.Second)
	s.must(s.AwaitRole(t.Context(), soon, s.Host(out), ""))
	s.docker(out, "unpause", cluster.HostContainer)
	s.Logf("the daemon of %s goes on", out)
	s.neverAMember(out, 20*time.Second)
	s.completed(out, in)
}

// layTombstone waits until a k3s that was removed while it was frozen knows. It then
// writes a tombstone; one that held a Lease of k3s's own ends for having lost it, is
// started again, and writes none (k3s-facts §5.4). Then one is written in its place.
func (s *scenario) layTombstone(name string) {
	s.t.Helper()
	const path = fleet.DefaultDataDir + "/server/db/etcd/tombstone"
	s.eventually(2*time.Minute, name+" to know that it was removed", func(ctx context.Context) (bool, string) {
		if s.exists(name, path) {
			return true, ""
		}
		log, err := s.Host(name).Exec(ctx, "docker", "logs", "--tail", "300", cluster.ServerContainer)
		return err == nil && strings.Contains(log.Stdout+log.Stderr, "permanently removed"), "there is no tombstone, and its log says nothing"
	})
	if s.exists(name, path) {
		s.Logf("k3s of %s wrote a tombstone", name)
		return
	}
	s.Logf("k3s of %s wrote no tombstone: one is laid in its place", name)
	s.must(s.Host(name).WriteFile(path, nil, 0o600))
}

// R-E2-44: the peer port of a candidate in a container is cut before its etcd
// starts. k3s evicts the learner that never started; members and voters are those
// of before.
func Test_swap_docker_blocked_peer(t *testing.T) {
	long(t)
	s, out, in := troubledDocker(t)
	before := s.members()
	s.ask(out, in)
	s.awaitFile(in, fleet.FileJoining)
	mend, err := fault.DropPort(t.Context(), s.Host(in), cluster.PeerPort)
	s.must(err)
	s.untilMember(in, "listed", listed)
	s.rolledBack(out, in, before)
	s.must(mend())
	s.backAsAgent(in)
	s.checkAgent(in)
	s.end("n2", "n3", out)
}

// R-E2-45: a voter whose container is paused is named, and nothing is changed. So is
// a standby that lost the node password which its server would come with.
func Test_swap_docker_refused(t *testing.T) {
	long(t)
	s, out, in := troubledDocker(t)
	ctx := t.Context()
	// n2 answers nobody for a while; a follower that is gone costs no election.
	s.must(s.MoveLeader(ctx, s.Host("n3")))
	s.writeThrough("n3")
	s.docker("n2", "pause", cluster.ServerContainer)
	s.refuses(t, fleet.ExitFailed, out, in, "n2")
	s.docker("n2", "unpause", cluster.ServerContainer)
	// k3s ends when it finds a Lease of its own gone (k3s-facts §5.4), and is started again; the
	// Node goes on saying Ready meanwhile.
	s.awaitHeartbeat("n2", time.Now().Add(15*time.Second))
	s.must(s.AwaitNodesReady(ctx, soon, "n2"))
	s.writeThrough("n2", "n3")

	const path = "/etc/rancher/node/password"
	password, err := s.NodePassword(s.Host(in))
	s.must(err)
	s.must(s.Host(in).Remove(path))
	s.awaitRefusal(in, out, in, "password")
	s.must(s.Host(in).WriteFile(path, []byte(password), 0o600))
	s.awaitReports()
	s.end("n2", "n3", out)
}

// awaitHeartbeat waits for a sign of a host's kubelet that is later than a moment.
func (s *scenario) awaitHeartbeat(name string, after time.Time) {
	s.t.Helper()
	s.eventually(3*time.Minute, name+"'s kubelet to give a sign", func(ctx context.Context) (bool, string) {
		l, err := s.api().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil || l.Spec.RenewTime == nil {
			return false, fmt.Sprint(err)
		}
		return l.Spec.RenewTime.After(after), l.Spec.RenewTime.String()
	})
}
