package cluster

import (
	"fmt"
	"slices"
)

// Role of k3s on a host at the start.
type Role string

// Roles.
const (
	Server Role = "server"
	Agent  Role = "agent"
)

// HostSpec is one host of a cluster.
type HostSpec struct {
	Name string
	Role Role
	// Standby: the host is eligible, and staged: it has the server's configuration while it runs as an agent. Servers are
	// always eligible.
	Standby bool
	// Unstaged takes the server's configuration and token off an eligible agent.
	Unstaged bool
	// Docker: k3s and regrade run in the containers of the shipped Compose project, on an engine of the host's own.
	Docker bool
	// SeparateIdentity gives the two services of a Docker host identity volumes of their own.
	SeparateIdentity bool
	// DataOnTmpfs puts the whole data volume of a Docker host on a tmpfs, which a reboot loses.
	DataOnTmpfs bool
	// Bare: an empty Debian, without k3s. The cluster begins without it.
	Bare bool
	// Labels of the Node besides the eligible label.
	Labels map[string]string
	// Server holds keys of server.yaml that replace the usual ones on this host; a nil value drops the key.
	Server map[string]any
	// Agent is the same for agent.yaml.
	Agent map[string]any
}

// Spec is a cluster. The first host starts it.
type Spec struct {
	Hosts []HostSpec
	// Units is the folder of the shipped unit files. Empty: deploy/units or internal/manifests/units of the project.
	Units string
	// Env is set for both k3s units (the stand-in's switches).
	Env map[string]string
	// HostSettings are keys of /etc/regrade/host.yaml besides the usual ones.
	HostSettings map[string]any
	// WithoutRegrade makes a cluster that has never heard of regrade: units as k3s's install script writes them, each host with the
	// one of its role enabled.
	WithoutRegrade bool
	// AsInstalled makes a cluster as people have one before regrade: the hosts as k3s's install script sets them up, with flags in all
	// three places. regrade's binary is on them, and its objects in the cluster; `regrade host setup` is up to the scenario.
	AsInstalled bool
	// Untouched leaves all of regrade away from hosts and cluster, though its binary is there for an operator outside.
	Untouched bool
	// SSH gives every host an sshd that lets the operator in, see [Cluster.Operator].
	SSH bool
	// Packages of Debian on the hosts besides the usual ones.
	Packages []string
}

// Standard is three servers n1 (which starts the cluster), n2, n3 and the standby n4.
func Standard() Spec {
	return Spec{Hosts: []HostSpec{
		{Name: "n1", Role: Server}, {Name: "n2", Role: Server}, {Name: "n3", Role: Server},
		{Name: "n4", Role: Agent, Standby: true},
	}}
}

// Docker makes Docker hosts of those named, of all where none is.
func (s Spec) Docker(names ...string) Spec {
	s.Hosts = slices.Clone(s.Hosts)
	for i := range s.Hosts {
		s.Hosts[i].Docker = len(names) == 0 || slices.Contains(names, s.Hosts[i].Name)
	}
	return s
}

func (s Spec) check() error {
	if len(s.Hosts) == 0 || s.Hosts[0].Role != Server {
		return fmt.Errorf("cluster: the first host has to be a server")
	}
	for _, h := range s.Hosts {
		if h.Role != Server && h.Role != Agent {
			return fmt.Errorf("cluster: host %s has role %q", h.Name, h.Role)
		}
	}
	return nil
}

func (s Spec) host(name string) HostSpec {
	if i := slices.IndexFunc(s.Hosts, func(h HostSpec) bool { return h.Name == name }); i >= 0 {
		return s.Hosts[i]
	}
	return HostSpec{}
}

func (h HostSpec) eligible() bool { return h.Role == Server || h.Standby }

func (h HostSpec) staged() bool { return h.eligible() && !h.Unstaged }
