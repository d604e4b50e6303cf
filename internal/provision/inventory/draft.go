package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/status"
)

// Draft is a fleet's file as a running cluster suggests it.
type Draft struct {
	// Hosts are the servers, then the agents, by name.
	Hosts []DraftHost
	// Left are agents that are left out, because there are more than a file holds.
	Left int
	// Settings are those of the file.
	Settings []Setting
	// Against is what speaks against regrade as the cluster is now.
	Against []status.Problem
}

// DraftHost is one of its hosts, with what a person should know of it.
type DraftHost struct {
	Host
	Notes []string

	version string
	args    k3s.Config // how k3s was last started, nil for not known
}

// DraftOf makes a draft of the Nodes of a cluster. Keys are of regrade's labels, which
// Nodes have where it was set up before.
func DraftOf(nodes []k3s.Node, keys fleet.Keys) Draft {
	var d Draft
	for _, n := range nodes {
		d.Hosts = append(d.Hosts, d.host(n, keys))
	}
	slices.SortFunc(d.Hosts, func(a, b DraftHost) int {
		return cmp.Or(-cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name)) // server before agent
	})
	servers := d.servers()
	d.against(servers)
	target := max(3, len(servers)-1+len(servers)%2)
	d.Settings = []Setting{{Name: keyTarget, Value: fmt.Sprint(target)}, {Name: "dry-run", Value: "true"}}
	if keys.Prefix() != fleet.DefaultPrefix {
		d.Settings = append(d.Settings, Setting{Name: "label-prefix", Value: keys.Prefix()})
	}
	if len(servers) >= target {
		d.Against = append(d.Against, Check(d.fleet(target), target)...)
	}
	d.shorten()
	return d
}

func (d *Draft) host(n k3s.Node, keys fleet.Keys) DraftHost {
	h := DraftHost{Host: Host{Name: n.Name, Platform: Native, Role: fleet.RoleAgent}, version: n.Version}
	started, args, err := k3s.ParseArgs(n.Annotations[k3s.AnnotationArgs])
	if err == nil {
		h.args = args
	}
	if n.Server() {
		h.Role = fleet.RoleServer
		if started == string(fleet.RoleAgent) {
			h.Role = fleet.RoleAgent
			h.note("labelled as a server, but k3s was last started as an agent: the labels are left over")
		}
	}
	h.Eligible = h.Role == fleet.RoleServer
	if v, is := n.Labels[keys.Eligible()]; is {
		h.Eligible = v == fleet.True
	}
	h.Pinned = h.Role == fleet.RoleServer && n.Labels[keys.Pinned()] == fleet.True
	if strings.HasPrefix(n.OSImage, "K3s ") {
		h.Platform, h.Project = Docker, DefaultProject
		h.note("its system calls itself %q, as k3s's own image does: taken for a container", n.OSImage)
	}
	h.addressed(n)
	d.Against = append(d.Against, unfit(h, n)...)
	return h
}

// addressed takes the address at which the other hosts reach it, and what k3s was told
// of addresses and ports.
func (h *DraftHost) addressed(n k3s.Node) {
	switch {
	case len(n.Internal) > 0:
		h.Address = n.Internal[0]
	case len(n.External) > 0:
		h.Address = n.External[0]
		h.note("the Node has no internal address; this is its external one")
	default:
		h.Address = n.Name
		h.note("the Node has no address; its name stands here")
	}
	if ip := strings.Join(h.args["node-ip"], ","); ip != "" && checkNodeIP(ip) == nil {
		h.NodeIP = ip
	}
	if port := h.args.Get("https-listen-port"); isPort(port) && port != "6443" && h.Role == fleet.RoleServer {
		h.JoinURL = "https://" + bracketed(h.Address) + ":" + port
	}
}

func (h *DraftHost) note(format string, args ...any) {
	h.Notes = append(h.Notes, fmt.Sprintf(format, args...))
}

// unfit is what speaks against one host. Of an agent only what it would have to change
// its role with counts, and that is seen when it is set up.
func unfit(h DraftHost, n k3s.Node) (out []status.Problem) {
	if h.Role != fleet.RoleServer {
		return nil
	}
	say := func(code, format string, args ...any) {
		out = append(out, status.Problem{Code: code, Sentence: fmt.Sprintf(format, args...)})
	}
	unsupported := false
	for _, key := range sortedKeys(h.args) {
		if why := adopt.Unsupported(key); why != "" && h.args.Get(key) != "false" {
			unsupported = true
			say(adopt.CodeUnsupported, "%s runs with %s: %s", h.Name, key, why)
		}
	}
	switch {
	case !strings.Contains(n.Version, "+k3s"):
		say(CodeNotK3s, "%s runs %s, which is no k3s", h.Name, shown(n.Version))
	case n.Labels[fleet.LabelEtcd] == "" && !unsupported:
		say(CodeNoEtcd, "%s is a server without etcd: regrade places etcd's votes alone (R-185-32)", h.Name)
	}
	return out
}

func (d Draft) servers() (out []DraftHost) {
	for _, h := range d.Hosts {
		if h.Role == fleet.RoleServer {
			out = append(out, h)
		}
	}
	return out
}

// Servers is how many there are.
func (d Draft) Servers() int { return len(d.servers()) }

// fleet is the draft as the file will be read.
func (d Draft) fleet(target int) Fleet {
	f := Fleet{MaxServers: target + spare}
	for _, h := range d.Hosts {
		f.Hosts = append(f.Hosts, h.Host)
	}
	return f
}

// shorten leaves agents out that get nothing of regrade, where a file holds no more.
func (d *Draft) shorten() {
	d.Left = max(0, len(d.Hosts)-maxHosts)
	left := d.Left
	for i := len(d.Hosts) - 1; i >= 0 && left > 0; i-- {
		if !d.Hosts[i].Takes() {
			d.Hosts = slices.Delete(d.Hosts, i, i+1)
			left--
		}
	}
}
