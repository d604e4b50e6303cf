package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// R-A-05..07, R-X-02, safety rule 10: a user starts both profiles by hand, on a
// voter and on a standby. The wrong container idles and says why; k3s of the right
// one is not touched.
func Test_both_profiles(t *testing.T) {
	long(t)
	s, out, in := troubledDocker(t)
	ctx := t.Context()
	pids := map[string]int{out: s.k3sPID(t, out), in: s.k3sPID(t, in)}
	for name, wrong := range map[string]string{out: cluster.AgentContainer, in: cluster.ServerContainer} {
		_, err := s.Compose(ctx, s.Host(name), "--profile", "server", "--profile", "agent", "up", "-d")
		s.must(err)
		s.says(name, wrong, "idle")
		s.eventually(soon, wrong+" on "+name+" to be unhealthy", func(context.Context) (bool, string) {
			health := s.docker(name, "inspect", "-f", "{{.State.Health.Status}}", wrong)
			return health == "unhealthy", health
		})
		s.Logf("%s", s.docker(name, "inspect", "-f", "{{(index .State.Health.Log 0).Output}}", wrong))
	}
	s.untouched(t, pids)
	// A swap goes on from there: an idle container of the new role becomes k3s.
	s.mustSwap(out, in)
	s.checkAgent(out)
	s.end("n2", "n3", in)
}

// The containers of a voter, and of a standby, are removed and made anew: the same
// Node and the same member come back. Without the volume of the node password a
// voter is refused a swap out, before anything is changed.
func Test_recreated(t *testing.T) {
	long(t)
	s, out, in := troubledDocker(t)
	ctx := t.Context()
	before := s.members()
	was := map[string]identity{out: s.identity(out), in: s.identity(in)}
	for _, name := range []string{in, out} {
		if name == out {
			s.must(s.MoveLeader(ctx, s.Host("n3")))
		}
		s.recreate(name)
		s.must(s.AwaitNodesReady(ctx, 2*time.Minute, name))
		if now := s.identity(name); now != was[name] {
			t.Errorf("%s was %+v and is %+v", name, was[name], now)
		}
	}
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n2", "n3", out))
	s.sameMembers(before)

	s.Logf("the node password of %s is lost with its volume", out)
	password, err := s.NodePassword(s.Host(out))
	s.must(err)
	s.compose(out, "--profile", "server", "--profile", "agent", "down")
	s.docker(out, "volume", "rm", cluster.Project+"_k3s-node")
	s.bringUp(out)
	s.must(s.AwaitNodesReady(ctx, 2*time.Minute, out))
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n2", "n3", out))
	// k3s has made itself another, and is a server with it; as an agent it would be turned away.
	s.awaitRefusal(out, out, in, "password")
	s.must(s.Host(out).WriteFile("/etc/rancher/node/password", []byte(password), 0o600))
	s.eventually(soon, out+" to be staged as an agent again", func(context.Context) (bool, string) {
		r := s.report(out)
		return r.AsAgent != nil && r.AsAgent.OK, fmt.Sprintf("%+v", r.AsAgent)
	})
	s.sameMembers(before)
	s.mustSwap(out, in)
	s.checkAgent(out)
	s.end("n2", "n3", in)
}

func (s *scenario) compose(name string, args ...string) {
	s.t.Helper()
	_, err := s.Compose(s.t.Context(), s.Host(name), args...)
	s.must(err)
}

// recreate makes a host's containers anew, as docs/operations.md says.
func (s *scenario) recreate(name string) {
	s.t.Helper()
	ids := s.docker(name, "ps", "-aq", "--no-trunc")
	s.compose(name, "--profile", "server", "--profile", "agent", "down")
	s.bringUp(name)
	if now := s.docker(name, "ps", "-aq", "--no-trunc"); now == ids {
		s.t.Errorf("the containers of %s are those of before: %s", name, now)
	}
}

func (s *scenario) bringUp(name string) {
	s.t.Helper()
	role, err := s.Host(name).ReadFile(fleet.FileRole)
	s.must(err)
	s.compose(name, "--profile", "server", "--profile", "agent", "up", "--no-start")
	s.compose(name, "--profile", string(trimmed(role)), "up", "-d")
}
