package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// Issue 5, bad input where the two services keep identity volumes of their own: one that
// cannot be read and one that is too small are refused by name before anything is
// changed; one that fills in the middle of the copy, on the way out and on the way in, is
// named, the host runs no second role, and loses nothing (safety rules 10, 15 and 17).
func Test_identity_docker(t *testing.T) {
	long(t)
	beside(t)
	spec := hurried().Docker("n1")
	spec.Hosts[0].SeparateIdentity = true
	c := shared.own(t, spec)
	s := beginOn(t, c, append((&scenario{Cluster: c}).bounds(), "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=90", "FLEET_ROLE_FINISH_SECONDS=120"), "n2", "n3")
	s.leaderDies = true
	const host, standby = "n1", "n4"
	was := s.identity(host)
	server, agent := cluster.Volume("k3s-tailscale-data"), cluster.Volume("k3s-agent-tailscale-data")
	run := func(script string) {
		t.Helper()
		_, err := s.Host(host).Run(t.Context(), "sh", "-c", script)
		s.must(err)
	}
	put := func(content string) { s.must(s.Host(host).WriteFile(server+meshFile, []byte(content), 0o600)) }
	put(meshState)
	pids := map[string]int{host: s.k3sPID(t, host), standby: s.k3sPID(t, standby)}

	s.Logf("a file of the server's volume cannot be read")
	s.stopDaemon(host)
	// No mode keeps root out; the memory of another process is not its to read.
	run(fmt.Sprintf("touch %[1]s/odd && mount --bind /proc/1/mem %[1]s/odd", server))
	s.startDaemon(host)
	s.awaitRefusal(host, host, standby, "cannot be read")
	s.untouched(t, pids)
	s.stopDaemon(host)
	run(fmt.Sprintf("umount %[1]s/odd && rm %[1]s/odd", server))
	s.startDaemon(host)

	s.Logf("the agent's volume is too small for it")
	disk := s.smallDisks(host, agent)
	put(strings.Repeat(meshState, 8<<10))
	s.awaitRefusal(host, host, standby, "has no room")
	s.untouched(t, pids)
	put(meshState)
	s.awaitReports()
	s.eventually(soon, host+" to be staged as an agent again", func(context.Context) (bool, string) {
		r := s.report(host)
		return r.AsAgent != nil && r.AsAgent.OK, fmt.Sprintf("%+v", r.AsAgent)
	})

	s.Logf("the agent's volume fills before the copy, on the way out")
	s.ask(host, standby)
	s.awaitFile(host, fleet.FileLeaving)
	disk.fill(agent)
	s.untilMember(host, "removed", func(m *cluster.Member) bool { return m == nil })
	s.waitsFor(host, "no space left")
	s.must(s.AwaitRole(t.Context(), soon, s.Host(host), ""))
	s.held(10 * time.Second)
	if role := s.role(host); role != "agent\n" {
		t.Errorf("the role file says %q", role)
	}
	s.checkMesh(host, cluster.Server, "separate")
	disk.clear(agent)
	s.ends(host, standby, fleet.OutcomeCompleted)
	s.backAsAgent(host)
	s.checkAgent(host)
	s.checkMesh(host, cluster.Agent, "separate")

	s.Logf("the server's volume fills before the copy, on the way in")
	before := s.members()
	disk = s.smallDisks(host, server)
	s.awaitReports()
	s.ask(standby, host)
	s.awaitFile(host, fleet.FileJoining)
	disk.fill(server)
	s.waitsFor(host, "no space left")
	s.rolledBack(standby, host, before)
	s.backAsAgent(host)
	s.checkAgent(host)
	s.checkMesh(host, cluster.Agent, "separate")
	if now := s.identity(host); now != was {
		t.Errorf("%s was %+v and is %+v", host, was, now)
	}
	disk.clear(server)
	s.mustSwap(standby, host)
	s.checkMesh(host, cluster.Server, "separate")
	s.checkSecrets(host)
	s.end("n1", "n2", "n3")
}
