package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/lab/host"
)

// Places of k3s's install script.
const (
	installedConfig = "/etc/rancher/k3s/config.yaml"
	installedDropIn = installedConfig + ".d/10-labels.yaml"
)

// installed puts k3s on the host as its install script and a person do it, with flags in all three places: secrets and an
// agent's server in the unit's environment, what makes a server in the unit's command, the rest in the configuration file and
// a drop-in. Nothing of it knows of regrade.
func (c *Cluster) installed(h *host.Host, spec HostSpec) error {
	unit, config, env := AgentUnit, c.agentConfig(h, spec), map[string]string{}
	maps.Copy(env, c.Spec.Env)
	words := []string{"/usr/local/bin/k3s", string(spec.Role)}
	env["K3S_TOKEN"] = fmt.Sprint(config["token"])
	if spec.Role == Server {
		unit, config = ServerUnit, c.serverConfig(h, spec)
		env["K3S_TOKEN"], env["K3S_AGENT_TOKEN"] = fmt.Sprint(config["token"]), fmt.Sprint(config["agent-token"])
		if config["cluster-init"] == true {
			words = append(words, "'--cluster-init'")
		}
		if url, ok := config["server"]; ok {
			words = append(words, "'--server'", fmt.Sprintf("'%s'", url))
		}
		for _, name := range config["tls-san"].([]string) {
			words = append(words, "'--tls-san="+name+"'")
		}
	} else {
		env["K3S_URL"] = fmt.Sprint(config["server"])
	}
	dropIn := map[string]any{"node-label+": append([]string{"lab=installed"}, config["node-label"].([]string)...)}
	if c.Spec.Untouched {
		dropIn["node-label+"] = []string{"lab=installed"}
	}
	for _, key := range []string{"token", "agent-token", "server", "cluster-init", "tls-san", "node-label"} {
		delete(config, key)
	}
	if err := c.WriteYAML(h, installedConfig, config); err != nil {
		return err
	}
	if err := c.WriteYAML(h, installedDropIn, dropIn); err != nil {
		return err
	}
	raw, err := fs.ReadFile(plain, "plain/"+unit)
	if err != nil {
		return fmt.Errorf("unit file: %w", err)
	}
	text, _, _ := strings.Cut(string(raw), "ExecStart=")
	if err := h.WriteFile("/etc/systemd/system/"+unit, []byte(text+"ExecStart="+strings.Join(words, " \\\n    ")+"\n"), 0o644); err != nil {
		return err
	}
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&lines, "%s='%s'\n", key, env[key])
	}
	if c.Binaries.Real {
		lines.WriteString(realEnv)
	}
	if err := h.WriteFile("/etc/systemd/system/"+unit+".env", []byte(lines.String()), 0o600); err != nil {
		return err
	}
	return h.Link("/etc/systemd/system/"+unit, "/etc/systemd/system/multi-user.target.wants/"+unit)
}

// Document is what `regrade host setup` is given for a host, secrets and all.
func (c *Cluster) Document(ctx context.Context, h *host.Host) ([]byte, error) {
	spec := c.Spec.host(h.Name())
	kubeconfig, err := c.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountHost, h)
	if err != nil {
		return nil, err
	}
	settings, join := c.settingsOf(h)
	doc := map[string]any{"role": spec.Role, "eligible": true, "host": settings, "join": join, "kubeconfig": string(kubeconfig)}
	if spec.Role == Agent {
		voter, err := c.runningConfig(c.Lab.Hosts()[0])
		if err != nil {
			return nil, err
		}
		doc["voter"], doc["token"] = voter, ServerToken
	}
	return json.Marshal(doc)
}

// runningConfig is how a server's k3s was told to run, but for its command: a person copies it from there.
func (c *Cluster) runningConfig(h *host.Host) (k3s.Config, error) {
	config := k3s.Config{}
	for _, path := range []string{installedConfig, installedDropIn} {
		raw, err := h.ReadFile(path)
		if err != nil {
			return nil, err
		}
		one, err := k3s.ParseConfig(raw)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", path, h.Name(), err)
		}
		config = config.Merge(one)
	}
	for _, other := range c.Lab.Hosts() {
		config["tls-san"] = append(config["tls-san"], other.Name(), other.IP().String())
	}
	config["agent-token"] = []string{AgentToken}
	return config, nil
}
