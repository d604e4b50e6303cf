package scenarios

import (
	"strings"
	"testing"

	"github.com/exadev/regrade/lab/cluster"
)

// The mesh's state of a host, which goes where its identity goes (R-N-09).
const (
	meshFile  = "/tailscaled.state"
	meshState = "the mesh state of this host\n"
)

// R-D2-11, R-I-26..28, R-N-09: with orders by hand a Docker host goes out and comes
// back in, with the identity volumes of its two services shared and apart. The two
// voters that stay are native.
func Test_actuator_docker(t *testing.T) {
	long(t)
	beside(t)
	for _, kind := range []string{"shared", "separate"} {
		t.Run(kind, func(t *testing.T) {
			spec := cluster.Standard().Docker("n1", "n4")
			for i := range spec.Hosts {
				spec.Hosts[i].SeparateIdentity = kind == "separate"
			}
			s := begin(t, spec, nil, "n2", "n3")
			s.must(s.Host("n1").WriteFile(meshOf(cluster.Server, kind), []byte(meshState), 0o600))

			s.refusesWithoutLease("n1", "n4")
			s.actuate("n1", "n4")
			s.checkMesh("n1", cluster.Agent, kind)
			s.sameCluster("n2", "n3", "n4")
			s.actuate("n4", "n1")
			s.checkMesh("n1", cluster.Server, kind)
			s.sameCluster("n1", "n2", "n3")
			s.checkSecrets("n1", "n4")
			s.end("n1", "n2", "n3")
		})
	}
}

// meshOf is the mesh's file of the service of a role.
func meshOf(role cluster.Role, kind string) string {
	if role == cluster.Agent && kind == "separate" {
		return cluster.Volume("k3s-agent-tailscale-data") + meshFile
	}
	return cluster.Volume("k3s-tailscale-data") + meshFile
}

func (s *scenario) checkMesh(name string, role cluster.Role, kind string) {
	s.t.Helper()
	content, err := s.Host(name).ReadFile(meshOf(role, kind))
	if err != nil || string(content) != meshState {
		s.t.Errorf("the mesh's state of the %s on %s is %q, %v", role, name, content, err)
	}
}

// checkSecrets: no token or node password stands in what a host's containers have
// logged (safety rule 31).
func (s *scenario) checkSecrets(names ...string) {
	s.t.Helper()
	for _, name := range names {
		password, err := s.NodePassword(s.Host(name))
		s.must(err)
		out, err := s.Host(name).Exec(s.t.Context(), "docker", "logs", cluster.HostContainer)
		s.must(err)
		for what, secret := range map[string]string{
			"the node password": password, "the servers' token": cluster.ServerToken, "the agents' token": cluster.AgentToken, "the mesh's state": meshState,
		} {
			if strings.Contains(out.Stdout+out.Stderr, strings.TrimSpace(secret)) {
				s.t.Errorf("%s of %s stands in the daemon's log", what, name)
			}
		}
	}
}
