package project

import (
	"bytes"
	"maps"
	"net/url"
	"path"
	"reflect"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
)

// configs are k3s's configuration files in its folder, by role.
var configs = map[fleet.Role]string{fleet.RoleServer: path.Base(fleet.FileServerConf), fleet.RoleAgent: path.Base(fleet.FileAgentConf)}

// roles in the order in which files are written.
var roles = []fleet.Role{fleet.RoleServer, fleet.RoleAgent}

// config is a role's configuration file: the one that is there, with the further labels of
// the document, else one that is made of the host's own flags and of what every server has.
// Tokens and the server to join are the .env's, data folder and founding the entrypoint's
// (docs/operations.md, "Docker hosts").
func config(role fleet.Role, old []byte, d setup.Desired, h settings.Host) ([]byte, []status.Problem) {
	if old != nil {
		return labelled(role, old, d)
	}
	part := d.DockerPart()
	c := k3s.Config{}
	var problems []status.Problem
	if role == fleet.RoleServer {
		if d.Voter == nil && !part.Founder {
			problems = append(problems, problem(adopt.CodeNoVoter, "voter is missing: the servers' flags, which a server of this host must have as well")...)
		}
		c = adopt.Shared(d.Voter)
		for _, key := range setup.InNoFile {
			delete(c, key)
		}
		// Whoever is made a server later is asked by these names.
		for _, node := range slices.Sorted(maps.Keys(d.Join)) {
			if u, err := url.Parse(d.Join[node]); err == nil && !slices.Contains(c["tls-san"], u.Hostname()) {
				c["tls-san"] = append(c["tls-san"], u.Hostname())
			}
		}
	}
	for key, values := range part.Flags {
		if _, known := k3s.FlagOf(role, key); known {
			c[key] = slices.Clone(values)
		}
	}
	if len(c["node-ip"]) == 0 {
		problems = append(problems, problem(CodeNodeIP, "docker.flags has no node-ip (in fleet.yaml: node-ip of the host): an etcd member whose address changes never comes back, so it is written down")...)
	}
	if labels := adopt.Labelled(nil, d.Labels); len(labels) > 0 {
		c["node-label"] = labels
	}
	if len(problems) > 0 {
		return nil, problems
	}
	raw, err := adopt.Render(c, "k3s as "+string(role)+". Written by regrade; yours from now on, but for the labels that the fleet names.\nTokens, the server to join and regrade's own labels are in .env.")
	if err != nil {
		return nil, problem(setup.CodeConfig, "%s: %v", configs[role], err)
	}
	return raw, nil
}

func labelled(role fleet.Role, old []byte, d setup.Desired) ([]byte, []status.Problem) {
	c, err := k3s.ParseConfig(old)
	if err != nil {
		return nil, problem(setup.CodeConfig, "%s: %v", configs[role], err)
	}
	var problems []status.Problem
	for _, key := range setup.InNoFile {
		for _, written := range []string{key, key + "+"} {
			if _, there := c[written]; there {
				problems = append(problems, problem(CodeFlagPlace, "%s has %s, which no configuration file of a container may have: take it out, the .env and the entrypoint say it", configs[role], key)...)
			}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	after := adopt.Labelled(c["node-label"], d.Labels)
	if slices.Equal(after, c["node-label"]) || len(d.Labels) == 0 {
		return old, nil
	}
	c["node-label"] = after
	raw, err := adopt.Render(c, "k3s as "+string(role)+". Yours, but for the labels that the fleet names.")
	if err != nil {
		return nil, problem(setup.CodeConfig, "%s: %v", configs[role], err)
	}
	return raw, nil
}

// hostFile is host.yaml: the one that is there where it says the same.
func hostFile(old []byte, d setup.Desired, h settings.Host) ([]byte, []status.Problem) {
	if s, err := settings.Parse(old); err == nil && reflect.DeepEqual(s, h) {
		return old, nil
	}
	return written(d.Host)
}

// joinFile is join.yaml, in the same way.
func joinFile(old []byte, d setup.Desired) ([]byte, []status.Problem) {
	if j, err := settings.ParseJoin(old); err == nil && old != nil && maps.Equal(j, d.Join) {
		return old, nil
	}
	return written(d.Join)
}

func written(v any) ([]byte, []status.Problem) {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return nil, problem(setup.CodeSettings, "%v", err)
	}
	return append([]byte("# Written by regrade.\n"), raw...), nil
}

// alike says that two YAML files say the same, whatever their comments.
func alike(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if yaml.Unmarshal(a, &x) != nil || yaml.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
