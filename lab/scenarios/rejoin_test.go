package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// dockerFleet is the standard fleet with its three servers in containers, and a
// native standby (R-E2-41).
func dockerFleet() cluster.Spec { return cluster.Standard().Docker("n1", "n2", "n3") }

// R-A-20..22, R-X-04, safety rules 10 and 19, by the entrypoint alone: no daemon
// runs on the host. The one that founded the cluster loses its datastore to
// db.demoted and has nothing to join: it founds no second cluster. Told where to
// join it comes back into the old one, by the way of every member.
func Test_rejoin(t *testing.T) {
	long(t)
	beside(t)
	s := begin(t, dockerFleet(), nil, "n2", "n3")
	ctx, n1 := t.Context(), s.Host("n1")
	const server = cluster.ServerContainer
	s.docker("n1", "stop", cluster.HostContainer)
	s.must(s.MoveLeader(ctx, s.Host("n2")))

	s.Logf("the datastore goes aside, and nobody says where to join (R-A-20)")
	s.docker("n1", "stop", server)
	s.must(s.RemoveMember(ctx, s.Host("n2"), "n1"))
	s.must(s.AwaitVoters(ctx, soon, "n2", "n3"))
	data := n1.Path(fleet.DefaultDataDir)
	_, err := s.Lab.Machine(ctx, "mv", data+"/server/db", data+"/server/db.demoted")
	s.must(err)
	s.docker("n1", "start", server)
	s.says("n1", server, "refuse")
	s.must(s.AwaitRole(ctx, soon, n1, ""))
	s.must(cluster.Never(ctx, 20*time.Second, "k3s runs on n1", func(context.Context) (bool, string) {
		ps, err := n1.K3s()
		return err != nil || len(ps) > 0, "it does"
	}))
	s.docker("n1", "stop", server)
	s.sameCluster("n2", "n3")

	s.Logf("a join URL names n2: it joins as a learner and is promoted (R-A-21)")
	s.must(n1.WriteFile(fleet.FileJoinURL, []byte(cluster.URL(s.Host("n2"))+"\n"), 0o644))
	// Its daemon had noted that it was a member: a person says that it may join again.
	s.docker("n1", "start", server)
	s.says("n1", server, "allow-join")
	s.compose("n1", "run", "--rm", "regrade-host", "host", "allow-join")
	s.docker("n1", "restart", server)
	s.untilMember("n1", "a learner", learner)
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n1", "n2", "n3"))
	s.must(s.AwaitNodesReady(ctx, soon, "n1"))
	s.sameCluster("n1", "n2", "n3")

	s.Logf("the role file names agent: the server's container idles (R-A-22)")
	s.must(n1.Remove(fleet.FileAllowJoin)) // it holds for a boot
	s.must(n1.WriteFile(fleet.FileRole, []byte("agent\n"), 0o644))
	s.docker("n1", "restart", server)
	s.says("n1", server, "idle")
	s.must(s.AwaitRole(ctx, soon, n1, ""))
	if state := s.docker("n1", "inspect", "-f", "{{.State.Status}} {{.RestartCount}}", server); state != "running 0" {
		t.Errorf("the idle container is %s", state)
	}
	s.must(n1.WriteFile(fleet.FileRole, []byte("server\n"), 0o644))
	s.docker("n1", "restart", server)
	s.must(s.AwaitRole(ctx, soon, n1, cluster.Server))
	s.must(s.AwaitNodesReady(ctx, soon, "n1"))
	s.docker("n1", "start", cluster.HostContainer)
	s.end("n1", "n2", "n3")
}

// docker runs docker on a host.
func (s *scenario) docker(name string, args ...string) string {
	s.t.Helper()
	out, err := s.Docker(s.t.Context(), s.Host(name), args...)
	s.must(err)
	return strings.TrimSpace(out)
}

// says waits until the last lines that a container has logged have the word, and
// gives them: an idle or refusing one says why there.
func (s *scenario) says(name, container, word string) string {
	s.t.Helper()
	var said string
	s.eventually(soon, container+" on "+name+" to say "+word, func(ctx context.Context) (bool, string) {
		out, err := s.Host(name).Exec(ctx, "docker", "logs", "--tail", "2", container)
		if err != nil {
			return false, err.Error()
		}
		said = strings.TrimSpace(out.Stdout + out.Stderr)
		return strings.Contains(said, word), said
	})
	s.Logf("%s on %s: %s", container, name, said)
	return said
}

// sameCluster waits until each of the voters tells of them all and of the cluster
// that was there in the beginning: a new member's etcd answers some time after it votes.
func (s *scenario) sameCluster(voters ...string) {
	s.t.Helper()
	for _, name := range voters {
		s.eventually(soon, name+" to tell of its cluster", func(ctx context.Context) (bool, string) {
			list, err := s.MembersAt(ctx, s.Host(name))
			if err != nil {
				return false, err.Error()
			}
			if list.ClusterID != s.clusterID {
				s.t.Errorf("%s is in another cluster than before, %s: %s", name, s.clusterID, list)
			}
			return slices.Equal(list.Voters(), voters), list.String()
		})
	}
	s.Logf("%v are in cluster %s, as before", voters, s.clusterID)
}
