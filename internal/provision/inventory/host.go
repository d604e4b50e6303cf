package inventory

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
)

// DefaultProject is the folder of a Docker host's Compose project.
const DefaultProject = "/srv/k3s"

func (r *reader) host(n *yaml.Node, at string) Host {
	h := Host{Line: n.Line, Platform: Native}
	keys := r.known(n, at, keysOf(reflect.TypeFor[Host]()), func(key string) string {
		if slices.Contains(keysOf(reflect.TypeFor[settings.Host]()), key) {
			return "write it under settings of this host"
		}
		return ""
	})
	if n.Kind != yaml.MappingNode {
		return h
	}
	for _, key := range []string{"name", "address", "role"} {
		if keys[key] == nil {
			r.say(n.Line, at, "%s is missing", key)
		}
	}
	get := func(key string, check func(v string) error) string {
		v, ok := r.text(keys[key], under(at, key))
		if ok {
			if err := check(v); err != nil {
				r.say(keys[key].Line, under(at, key), "%v", err)
			}
		}
		return v
	}
	h.Name = get("name", fleet.CheckName)
	h.Address = get("address", checkAddress)
	h.SSH = get("ssh", checkSSH)
	h.Platform = get("platform", checkPlatform)
	h.Role = fleet.Role(get("role", checkRole))
	h.NodeIP = get("node-ip", checkNodeIP)
	h.JoinURL = get("join-url", checkJoin)
	h.Project = get("project", checkProject)
	h.Eligible = r.truth(keys["eligible"], under(at, "eligible"), h.Role == fleet.RoleServer)
	h.Pinned = r.truth(keys["pinned"], under(at, "pinned"), false)
	if h.Pinned && h.Role == fleet.RoleAgent {
		r.say(keys["pinned"].Line, under(at, "pinned"), "only a server's vote can be pinned, and this host is an agent")
	}
	if n := keys["labels"]; n != nil {
		h.Labels = r.labels(n, under(at, "labels"))
	}
	if n := keys["docker"]; n != nil {
		h.Docker = r.project(n, under(at, "docker"))
	}
	if n := keys["settings"]; n != nil {
		h.Settings = r.hostSettings(n, under(at, "settings"))
	}
	h.defaults()
	if own, is := h.Settings["platform"]; is && (h.Platform != Native || own != string(settings.PlatformCommand)) {
		r.say(r.lines[under(at, "settings.platform")], under(at, "settings.platform"), "may be %s on a native host, and is the host's own platform else", settings.PlatformCommand)
	}
	for _, key := range []string{"project", "docker"} {
		if h.Platform == Native && keys[key] != nil {
			r.say(keys[key].Line, under(at, key), "is for platform docker alone")
		}
	}
	return h
}

// defaults fills in what the file need not say.
func (h *Host) defaults() {
	if h.Platform == "" {
		h.Platform = Native
	}
	if h.SSH == "" {
		h.SSH = h.Address
	}
	if h.JoinURL == "" && h.Address != "" {
		h.JoinURL = joinURL(h.Address)
	}
	if h.Platform == Docker && h.Project == "" {
		h.Project = DefaultProject
	}
}

// joinURL is the one that a host has where the file does not say.
func joinURL(address string) string { return "https://" + bracketed(address) + ":6443" }

func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

// labels reads further labels of a Node.
func (r *reader) labels(n *yaml.Node, at string) map[string]string {
	var out map[string]string
	for _, e := range r.entries(n, at) {
		v, ok := r.text(e.node, under(at, e.key))
		if !ok {
			continue
		}
		if err := checkLabel(e.key, v, r.prefix); err != nil {
			r.say(e.line, under(at, shown(e.key)), "%v", err)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[e.key] = v
	}
	return out
}
