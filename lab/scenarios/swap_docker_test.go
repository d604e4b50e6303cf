package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/exadev/regrade/internal/fleet"
)

// R-E2-41, R-E2-42, R-I-26..28, R-N-09: the bootstrap host, a container like the
// other two servers, leads etcd and goes out for a native standby; then it comes
// back into the cluster that it founded.
func Test_swap_docker(t *testing.T) {
	beside(t)
	s := begin(t, dockerFleet(), []string{}, "n2", "n3")
	ctx := t.Context()
	s.must(s.MoveLeader(ctx, s.Host("n1")))
	before := map[string]identity{"n1": s.identity("n1"), "n4": s.identity("n4")}
	promoted, demoted := map[string]switched{}, map[string]switched{}
	for i, pair := range [][2]string{{"n1", "n4"}, {"n4", "n1"}} {
		out, in := pair[0], pair[1]
		s.Logf("swap %d: %s out, %s in", i+1, out, in)
		last := s.mustSwap(out, in)
		promoted[in], demoted[out] = s.promotion(last), s.demotion(last)
		voters := []string{"n2", "n3", in}
		slices.Sort(voters)
		s.must(s.AwaitVoters(ctx, soon, voters...))
		s.sameCluster(voters...)
		s.awaitVoterConditions(voters...)
		for name, was := range before {
			if diff := cmp.Diff(was, s.identity(name)); diff != "" {
				t.Errorf("the identity of %s changed (-before +after):\n%s", name, diff)
			}
		}
		s.checkAgent(out)
	}
	// Of the steps most is k3s's: its promotion tick is up to 15 s away.
	for what, took := range map[string]map[string]switched{"promotion": promoted, "demotion": demoted} {
		s.Logf("%s: in containers %s; native %s", what, took["n1"], took["n4"])
		if took["n1"].gap > took["n4"].gap+slower {
			t.Errorf("the %s of a Docker host takes longer than a native host's by more than %s", what, slower)
		}
	}
	s.checkSecrets("n1")
	s.checkImage("n1")
	s.printMemory("n1", "n2", "n4")
	s.end("n1", "n2", "n3")
}

// awaitVoterConditions waits until label and condition of the Nodes say of those
// named, and of nobody else, that they vote (R-E1-03). It is k3s's own word, which
// comes a tick late and stays where the label has gone.
func (s *scenario) awaitVoterConditions(voters ...string) {
	s.t.Helper()
	s.eventually(soon, "the condition EtcdIsVoter of "+strings.Join(voters, ", "), func(context.Context) (bool, string) {
		var now []string
		for _, n := range s.nodes() {
			_, etcd := n.Labels[fleet.LabelEtcd]
			if etcd && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == fleet.ConditionEtcdIsVoter && c.Status == corev1.ConditionTrue
			}) {
				now = append(now, n.Name)
			}
		}
		slices.Sort(now)
		return slices.Equal(now, voters), strings.Join(now, ", ")
	})
}
