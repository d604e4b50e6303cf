package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
)

const nas = `hosts:
  - {name: n1, address: 10.0.0.1, role: server}
  - name: nas
    address: 10.0.0.2
    role: agent
    eligible: true
    platform: docker
    project: /share/k3s
    docker:
`

func TestADockerHostIsToldWhatTheFileSaysOfItsProject(t *testing.T) {
	f := parsed(t, nas+`      project: k
      images: {k3s: "rancher/k3s:v1.34.2-k3s1", regrade: "regrade:v1", both: "both:v1"}
      files: [compose.yaml, rights.yaml, mine.yaml]
      identity: true
      network: container:mesh
      log-driver: journald
      socket: /run/docker.sock
      program: /bin/mesh
      join-server: https://10.0.0.9:6443
      flags: {disable: [traefik, 1.10], protect-kernel-defaults: true}
`)
	want := &setup.Docker{
		Folder: "/share/k3s", Project: "k", Images: setup.Images{K3s: "rancher/k3s:v1.34.2-k3s1", Regrade: "regrade:v1", Both: "both:v1"},
		Files: []string{"compose.yaml", "rights.yaml", "mine.yaml"}, Identity: true, Network: "container:mesh", LogDriver: "journald",
		Socket: "/run/docker.sock", Program: "/bin/mesh", JoinServer: "https://10.0.0.9:6443",
		Flags: k3s.Config{"disable": {"traefik", "1.10"}, "protect-kernel-defaults": {"true"}, "node-ip": {"10.0.0.2"}},
	}
	if d := cmp.Diff(want, f.Document(f.Hosts[1]).Docker); d != "" {
		t.Error(d)
	}
	taken(t, f, f.Hosts[1])
	// Of a host of which it says nothing only the place and the address count.
	f = parsed(t, strings.TrimSuffix(nas, "    docker:\n"))
	if d := cmp.Diff(&setup.Docker{Folder: "/share/k3s", Flags: k3s.Config{"node-ip": {"10.0.0.2"}}}, f.Document(f.Hosts[1]).Docker); d != "" {
		t.Error(d)
	}
	// A name is no address that etcd could keep.
	f = parsed(t, "hosts: [{name: n1, address: n1.example, role: server, platform: docker}]")
	if d := f.Document(f.Hosts[0]).Docker; d.Flags != nil {
		t.Errorf("node-ip of a name: %v", d.Flags)
	}
	f.Hosts[0].NodeIP = "10.0.0.1, fd00::1" // a space is nothing that k3s reads
	if d := cmp.Diff(k3s.Config{"node-ip": {"10.0.0.1", "fd00::1"}}, f.Document(f.Hosts[0]).Docker.Flags); d != "" {
		t.Error(d)
	}
	if f.Hosts[0].Role != fleet.RoleServer || f.Hosts[0].Docker != nil {
		t.Errorf("%+v", f.Hosts[0])
	}
}

// What is wrong with a project is said with its line, as the host itself would say it.
func TestWhatIsWrongWithAProjectHasItsLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key":            {"      imagess: {}\n", "line 10: hosts[1].docker.imagess is unknown; did you mean images?"},
		"an unknown image":          {"      images:\n        k3d: a\n", "line 11: hosts[1].docker.images.k3d is unknown; did you mean k3s?"},
		"its folder":                {"      folder: /srv\n", "line 10: hosts[1].docker.folder is unknown; write it as project of the host"},
		"an archive":                {"      archive: /a\n", "line 10: hosts[1].docker.archive is unknown; give it as --image-archive"},
		"a secret":                  {"      agent-token: hush\n", "line 10: hosts[1].docker.agent-token is unknown; this file holds no secret: a server lends it"},
		"no name of a project":      {"      project: K\n", `line 10: hosts[1].docker.project: "K" is no name of a Compose project`},
		"no name of an image":       {"      images:\n        k3s: A b\n", `line 11: hosts[1].docker.images.k3s: "A b" is no name of an image`},
		"another shape":             {"      identity: [a]\n", "line 10: hosts[1].docker.identity: want one value, not a list or a mapping"},
		"an agent that founds":      {"      founder: true\n", "line 10: hosts[1].docker.founder: only a server founds a cluster"},
		"its own address":           {"      join-server: https://10.0.0.2:6443\n", "line 10: hosts[1].docker.join-server: https://10.0.0.2:6443 is this host's own"},
		"a flag of nowhere":         {"      flags:\n        flanel-backend: none\n", "hosts[1].docker.flags: flanel-backend is no flag of k3s's that regrade knows"},
		"a flag with another place": {"      flags:\n        node-ip: 10.0.0.2\n", "line 11: hosts[1].docker.flags.node-ip: write it as node-ip of the host"},
		"a flag of the file's own":  {"      flags: {token: a}\n", "hosts[1].docker.flags: token is given in another way"},
		"another file first":        {"      files: [rights.yaml]\n", "line 10: hosts[1].docker.files: compose.yaml comes first"},
		"a network of its own":      {"      network: bridge\n", `line 10: hosts[1].docker.network: "bridge" is neither host nor container:NAME`},
		"a log driver of no name":   {"      log-driver: a b\n", `line 10: hosts[1].docker.log-driver: "a b" is no name of a log driver`},
		"a daemon's setting":        {"      log-driver: local\n    settings:\n      lock: /run/x\n", "line 12: hosts[1].settings.lock: on docker it is always"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := inventory.Parse([]byte(nas+c.text), flags)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	// What contradicts the project is said of a host as well of whose project the file says nothing.
	if _, err := inventory.Parse([]byte("hosts: [{name: n1, address: 10.0.0.1, role: server, platform: docker, settings: {docker: {project: k}}}]"), flags); err == nil || !strings.Contains(err.Error(), "line 1: hosts[0].settings.docker.project: is not docker.project") {
		t.Errorf("a project that the daemon alone is told of: %v", err)
	}
	if _, err := inventory.Parse([]byte("hosts: [{name: n1, address: 10.0.0.1, role: server, docker: {project: k}}]"), flags); err == nil || !strings.Contains(err.Error(), "docker: is for platform docker alone") {
		t.Errorf("on a native host: %v", err)
	}
}
