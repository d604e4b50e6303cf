package inventory

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
)

// sharedKeys are those of host.yaml that the settings of the fleet give.
var sharedKeys = []string{"namespace", "label-prefix", "actuator-configmap", "period", "operation-timeout"}

// together says what is wrong with the hosts of a fleet as a whole.
func (r *reader) together(f Fleet) {
	if len(f.Hosts) == 0 {
		return // said already
	}
	r.twice(f, "name", func(h Host) string { return h.Name })
	r.twice(f, "address", func(h Host) string { return sameAddress(h.Address) })
	// What follows from an address that two hosts have is no mistake of its own.
	bySSH, byURL := map[string]bool{}, map[string]bool{}
	r.twice(f, "ssh", func(h Host) string { return own(h.SSH, h.SSH == h.Address, bySSH) })
	r.twice(f, "join-url", func(h Host) string { return own(sameURL(h.JoinURL), h.JoinURL == joinURL(h.Address), byURL) })
	if !slices.ContainsFunc(f.Hosts, func(h Host) bool { return h.Role == fleet.RoleServer }) {
		r.say(0, "", "hosts: none has the role server")
	}
	for _, key := range []string{"period", "operation-timeout"} {
		if s, ok := f.Setting(key); ok {
			if _, err := env.ParseSeconds(s.Value); err != nil {
				r.say(s.Line, under("settings", key), "%s: %v", shown(s.Value), err)
			}
		}
	}
	bare := f.Hosts[0]
	bare.Settings, bare.Platform, bare.Name = nil, Native, "n"
	for _, p := range hostProblems(f, bare) {
		s, _ := f.Setting(p.key)
		r.say(s.Line, under("settings", p.key), "%s", p.sentence)
	}
	for i, h := range f.Hosts {
		r.ownSettings(f, h, under(hostPath(i), "settings"))
		r.ownProject(f, h, hostPath(i))
	}
}

// own is a value, empty for one that follows from an address and that a host before has
// by its own.
func own(v string, follows bool, had map[string]bool) string {
	if follows && had[v] {
		return ""
	}
	had[v] = had[v] || follows
	return v
}

// twice says where two hosts have the same of what has to differ. An empty value has
// been said.
func (r *reader) twice(f Fleet, key string, of func(Host) string) {
	first := map[string]int{}
	for i, h := range f.Hosts {
		v := of(h)
		if v == "" {
			continue
		}
		if j, is := first[v]; is {
			r.say(h.Line, under(hostPath(i), key), "%s is that of %s, too", shown(v), hostPath(j))
			continue
		}
		first[v] = i
	}
}

// ownSettings says what is wrong with the settings of one host, as its daemon would.
func (r *reader) ownSettings(f Fleet, h Host, at string) {
	if h.Settings == nil && h.Platform != Docker {
		return // nothing that the bare host has not
	}
	for _, p := range hostProblems(f, h) {
		_, own := h.Settings[top(p.key)]
		switch {
		case p.key == "node" && fleet.CheckName(h.Name) != nil:
			continue // said of the name
		case !own && slices.Contains(sharedKeys, p.key):
			continue // said of the settings of the fleet
		}
		r.say(r.lineOf(under(at, p.key), h.Line), under(at, p.key), "%s", p.sentence)
	}
}

// lineOf is where a path stands, as near as is known.
func (r *reader) lineOf(path string, or int) int {
	for ; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if line, ok := r.lines[path]; ok {
			return line
		}
	}
	return or
}

// top is the first key of a path.
func top(path string) string {
	first, _, _ := strings.Cut(path, ".")
	first, _, _ = strings.Cut(first, "[")
	return first
}

type hostProblem struct{ key, sentence string }

// hostProblems are what a host's daemon would say of its host.yaml.
func hostProblems(f Fleet, h Host) (out []hostProblem) {
	doc := f.hostYAML(h)
	if _, own := h.Settings["servers"]; !own {
		doc["servers"] = []string{"https://n:6443"} // the join URLs are checked as such, and are many
	}
	raw, err := yaml.Marshal(doc)
	if err == nil {
		_, err = settings.Parse(raw)
	}
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, sentence, ok := strings.Cut(line, ": ")
		if !ok || strings.ContainsAny(key, " ") {
			key, sentence = "", line
		}
		out = append(out, hostProblem{key, sentence})
	}
	return out
}

func sameAddress(v string) string {
	if ip, err := netip.ParseAddr(v); err == nil {
		return ip.Unmap().String()
	}
	return v
}

func sameURL(v string) string {
	u, err := url.Parse(v)
	if err != nil || u.Hostname() == "" {
		return "" // said already
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return "https://" + bracketed(sameAddress(strings.ToLower(u.Hostname()))) + ":" + port
}
