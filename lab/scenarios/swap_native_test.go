package scenarios

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// R-E2-41, R-E2-42, R-I-35, R-I-39 on native hosts; safety rules 5, 8, 10, 13,
// 14, 20. The bootstrap host leads etcd and goes out, comes back in, and goes
// out again: the third time a k3s that swallowed the first removal would show.
func Test_swap_native(t *testing.T) {
	beside(t)
	s := begin(t, cluster.Standard(), []string{}, "n2", "n3")
	ctx := t.Context()
	s.must(s.MoveLeader(ctx, s.Host("n1")))
	before := map[string]identity{"n1": s.identity("n1"), "n4": s.identity("n4")}

	for i, pair := range [][2]string{{"n1", "n4"}, {"n4", "n1"}, {"n1", "n4"}} {
		out, in := pair[0], pair[1]
		s.Logf("swap %d: %s out, %s in", i+1, out, in)
		s.mustSwap(out, in)
		want := []string{"n2", "n3", in}
		slices.Sort(want)
		s.must(s.AwaitVoters(ctx, soon, want...))
		for name, was := range before {
			if diff := cmp.Diff(was, s.identity(name)); diff != "" {
				t.Errorf("the identity of %s changed (-before +after):\n%s", name, diff)
			}
		}
		s.checkAgent(out)
	}
	s.printMemory("n1", "n2", "n4")
	s.end("n2", "n3", "n4")
}

// checkAgent: a demoted host is an agent, its datastore is aside with one copy,
// its drop-ins are gone, its role file says agent.
func (s *scenario) checkAgent(name string) {
	s.t.Helper()
	h := s.Host(name)
	s.must(s.AwaitRole(s.t.Context(), soon, h, cluster.Agent))
	role, err := h.ReadFile(fleet.FileRole)
	s.must(err)
	if got := string(role); got != "agent\n" && got != "agent" {
		s.t.Errorf("the role file of %s says %q", name, got)
	}
	aside, err := h.Glob(fleet.DefaultDataDir + "/server/db.demoted*")
	s.must(err)
	if len(aside) != 1 {
		s.t.Errorf("%s keeps the datastores %v, want one", name, aside)
	}
	for _, path := range []string{
		fleet.FileLeaving, fleet.FileJoining, fleet.FileLevelDropIn, fleet.FileJoinDropIn, fleet.DefaultDataDir + "/server/db/etcd/member/wal",
		fleet.DefaultDataDir + "/" + fleet.FileLevel,
	} {
		if there, err := h.Exists(path); err != nil || there {
			s.t.Errorf("%s on %s is left (%v)", path, name, err)
		}
	}
}
