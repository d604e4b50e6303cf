package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// The yardstick of docs/figures.md: the steps of a swap as an operator takes
// them with a shell, without regrade, waiting for the condition EtcdIsVoter.
// It asserts only that the steps work; its time is printed beside a swap's.
func Test_swap_by_hand(t *testing.T) {
	long(t)
	beside(t)
	spec := cluster.Standard()
	spec.WithoutRegrade = true
	s := &scenario{Cluster: shared.own(t, spec), t: t}
	ctx := t.Context()
	s.startWriter([]string{"n2", "n3"})
	in, out := s.Host("n4"), s.Host("n1")
	run := func(h interface {
		Run(context.Context, ...string) (string, error)
	}, argv ...string) {
		t.Helper()
		_, err := h.Run(ctx, argv...)
		s.must(err)
	}
	write := func(name, path, text string) {
		t.Helper()
		s.must(s.Host(name).WriteFile(path, []byte(text), 0o600))
	}
	began := time.Now()
	step := func(what string) { s.Logf("  %-40s at %5.1f s", what, time.Since(began).Seconds()) }

	run(in, "systemctl", "stop", cluster.AgentUnit)
	write("n4", fleet.FileJoinDropIn, fmt.Sprintf("server: %s\n", cluster.URL(s.Host("n2"))))
	write("n4", fleet.FileRole, "server\n")
	run(in, "systemctl", "start", "--no-block", cluster.ServerUnit)
	s.eventually(swapLimit, "n4 to say EtcdIsVoter", func(context.Context) (bool, string) {
		n := s.node("n4")
		return condition(n, fleet.ConditionEtcdIsVoter) && cluster.NodeReady(n), "not yet"
	})
	step("n4 votes and is Ready")

	write("n1", fleet.FileLevelDropIn, "disable-apiserver: true\ndisable-controller-manager: true\ndisable-scheduler: true\ndisable-agent: true\n")
	run(out, "systemctl", "restart", cluster.ServerUnit)
	s.eventually(soon, "etcd on n1 to serve", func(ctx context.Context) (bool, string) {
		_, err := s.MembersAt(ctx, out)
		return err == nil, fmt.Sprint(err)
	})
	step("n1 is etcd-only and serves")

	s.patchNode("n1", nil, map[string]any{fleet.AnnotationEtcdRemove: "true"})
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n2", "n3", "n4"))
	step("n1's member is removed")

	run(out, "systemctl", "stop", cluster.ServerUnit)
	run(out, "mv", fleet.DefaultDataDir+"/server/db", fleet.DefaultDataDir+"/server/db.demoted")
	s.must(out.Remove(fleet.FileLevelDropIn))
	write("n1", fleet.FileRole, "agent\n")
	write("n1", fleet.FileAgentJoin, fmt.Sprintf("server: %s\n", cluster.URL(s.Host("n2"))))
	run(out, "systemctl", "start", "--no-block", cluster.AgentUnit)
	s.must(s.AwaitUnit(ctx, 2*time.Minute, out, cluster.AgentUnit, "active"))
	s.must(s.AwaitNodesReady(ctx, 2*time.Minute, "n1"))
	step("n1 is an agent and Ready")
	s.cleanByHand("n1", "n4")
	step("cleaned")
	s.checkWrites()
}

func condition(n *corev1.Node, name string) bool {
	for _, c := range n.Status.Conditions {
		if string(c.Type) == name {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
