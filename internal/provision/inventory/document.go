package inventory

import (
	"maps"
	"time"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Document is what `regrade host setup` is told of a host, without secrets: kubeconfig,
// a voter's configuration and the token are the caller's to fill in, and so are the images
// of a Docker host of which the file names none.
func (f Fleet) Document(h Host) setup.Desired {
	d := setup.Desired{
		Role: h.Role, Eligible: h.Eligible, Pinned: h.Pinned, Labels: maps.Clone(h.Labels),
		Host: f.hostYAML(h), Join: f.Join(),
	}
	if h.Platform == Docker {
		d.Docker = h.document()
	}
	return d
}

// Join is join.yaml, the same on every host: how to join each server and eligible host,
// by Node (R-D1-13).
func (f Fleet) Join() map[string]string {
	out := map[string]string{}
	for _, h := range f.Hosts {
		if h.Takes() {
			out[h.Name] = h.JoinURL
		}
	}
	return out
}

// servers are the API servers that a host's daemon tries: the other servers in the order
// of the file, then the other eligible hosts (R-216-01). A host that is alone has itself.
func (f Fleet) servers(of Host) (out []string) {
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		for _, h := range f.Hosts {
			if h.Role == role && h.Takes() && h.Name != of.Name {
				out = append(out, h.JoinURL)
			}
		}
	}
	if len(out) == 0 {
		return []string{of.JoinURL}
	}
	return out
}

// hostYAML is host.yaml: what follows from the fleet, and the host's own settings over it.
func (f Fleet) hostYAML(h Host) map[string]any {
	out := map[string]any{"node": h.Name, "servers": f.servers(h)}
	if h.Platform == Docker {
		out["platform"] = string(settings.PlatformDocker)
	}
	maps.Copy(out, f.shared())
	maps.Copy(out, h.Settings)
	if own, ok := h.Settings["levels"].(map[string]any); ok {
		out["levels"] = f.levels(own)
	}
	return out
}

// shared are the settings that the host daemons and the controller have to agree on,
// where the file sets another than the default.
func (f Fleet) shared() map[string]any {
	def := settings.Defaults()
	out := map[string]any{}
	for key, usual := range map[string]string{"namespace": def.Namespace, "label-prefix": def.Prefix, "actuator-configmap": def.ConfigMap} {
		if s, ok := f.Setting(key); ok && s.Value != usual {
			out[key] = s.Value
		}
	}
	for key, usual := range map[string]settings.Duration{"period": def.Period, "operation-timeout": def.OperationTimeout} {
		s, ok := f.Setting(key)
		// One that is no length of time is refused by Parse.
		if d, err := env.ParseSeconds(s.Value); ok && err == nil && d != time.Duration(usual) {
			out[key] = d.String()
		}
	}
	return out
}

// levels are a host's own settings of its levels, with the controller's number of voters
// and protected pods where they say nothing else.
func (f Fleet) levels(own map[string]any) map[string]any {
	out := map[string]any{}
	if t := f.Target(); t != settings.Defaults().Levels.Voters {
		out["voters"] = t
	}
	if s, ok := f.Setting("runner-selector"); ok && s.Value != fleet.DefaultRunnerSelector {
		out["runner-selector"] = s.Value
	}
	maps.Copy(out, own)
	return out
}
