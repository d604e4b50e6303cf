package inventory

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Project is a Docker host's Compose project, as far as the file says anything of it: what
// setup.Docker has and is no secret. What is not named here stays as the host has it; a host
// that has no project takes the defaults.
type Project struct {
	Project        string       `json:"project,omitempty"`
	Images         setup.Images `json:"images,omitzero"`
	TokenFile      string       `json:"token-file,omitempty"`
	AgentTokenFile string       `json:"agent-token-file,omitempty"`
	Founder        bool         `json:"founder,omitempty"`
	ClusterInit    bool         `json:"cluster-init,omitempty"`
	JoinServer     string       `json:"join-server,omitempty"`
	AgentServer    string       `json:"agent-server,omitempty"`
	Flags          k3s.Config   `json:"flags,omitempty"`
	Files          []string     `json:"files,omitempty"`
	Identity       bool         `json:"identity,omitempty"`
	Network        string       `json:"network,omitempty"`
	LogDriver      string       `json:"log-driver,omitempty"`
	Socket         string       `json:"socket,omitempty"`
	Program        string       `json:"program,omitempty"`
}

const (
	keyNodeIP = "node-ip"
	keyFlags  = "flags"
)

// elsewhere are the keys of setup.Docker that a project does not have, and why.
var elsewhere = map[string]string{
	"folder":      "write it as project of the host",
	"archive":     "give it as --image-archive",
	"agent-token": "this file holds no secret: a server lends it",
	"usual":       "write it under images",
}

// project reads hosts[].docker. Nil for nothing.
func (r *reader) project(n *yaml.Node, at string) *Project {
	before := len(r.mistakes)
	r.shape(n, at, reflect.TypeFor[Project](), func(key string) string { return elsewhere[key] }, nil)
	if n.Kind != yaml.MappingNode || len(r.mistakes) > before {
		return nil
	}
	plain, _ := value(n).(map[string]any)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == keyFlags {
			flags := flagsOf(n.Content[i+1])
			plain[keyFlags] = flags
			if _, is := flags[keyNodeIP]; is {
				path := under(under(at, keyFlags), keyNodeIP)
				r.say(r.lineOf(path, n.Line), path, "write it as node-ip of the host")
			}
		}
	}
	raw, err := sigs.Marshal(plain)
	var p Project
	if err == nil {
		err = sigs.UnmarshalStrict(raw, &p)
	}
	if err != nil {
		r.say(n.Line, at, "%v", err)
		return nil
	}
	if reflect.ValueOf(p).IsZero() {
		return nil
	}
	return &p
}

// flagsOf are flags as they are written, each a list.
func flagsOf(n *yaml.Node) k3s.Config {
	out := k3s.Config{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		values := n.Content[i+1].Content
		if n.Content[i+1].Kind == yaml.ScalarNode {
			values = n.Content[i+1 : i+2]
		}
		for _, v := range values {
			out[n.Content[i].Value] = append(out[n.Content[i].Value], v.Value)
		}
	}
	return out
}

// document is the host's part of what `regrade host setup` is told.
func (h Host) document() *setup.Docker {
	d := &setup.Docker{Folder: h.Project}
	if p := h.Docker; p != nil {
		*d = setup.Docker{
			Folder: h.Project, Project: p.Project, Images: p.Images, TokenFile: p.TokenFile, AgentTokenFile: p.AgentTokenFile,
			Founder: p.Founder, ClusterInit: p.ClusterInit, JoinServer: p.JoinServer, AgentServer: p.AgentServer,
			Flags: maps.Clone(p.Flags), Files: slices.Clone(p.Files), Identity: p.Identity, Network: p.Network,
			LogDriver: p.LogDriver, Socket: p.Socket, Program: p.Program,
		}
	}
	if ips := h.ownIPs(); len(ips) > 0 {
		if d.Flags == nil {
			d.Flags = k3s.Config{}
		}
		d.Flags[keyNodeIP] = ips
	}
	return d
}

// NodeIPs are the addresses of NodeIP, each as k3s reads it; nil for none.
func (h Host) NodeIPs() (out []string) {
	if h.NodeIP == "" {
		return nil
	}
	for ip := range strings.SplitSeq(h.NodeIP, ",") {
		out = append(out, strings.TrimSpace(ip))
	}
	return out
}

// ownIPs are k3s's node-ip of a Docker host, which is written down where the host has no
// configuration yet: the file's, else the address where it is one.
func (h Host) ownIPs() []string {
	if ips := h.NodeIPs(); ips != nil {
		return ips
	}
	if ip, err := netip.ParseAddr(h.Address); err == nil {
		return []string{ip.String()}
	}
	return nil
}

// ownProject says what is wrong with a Docker host's project, as its setup would.
func (r *reader) ownProject(f Fleet, h Host, at string) {
	if h.Platform != Docker {
		return
	}
	for _, err := range f.Document(h).CheckDocker() {
		key, sentence, ok := strings.Cut(err.Error(), ": ")
		path := under(at, key)
		if rest, own := strings.CutPrefix(key, "host."); own {
			path = under(under(at, "settings"), rest)
		}
		if !ok {
			path, sentence = at, err.Error()
		}
		r.say(r.lineOf(path, h.Line), path, "%s", sentence)
	}
}
