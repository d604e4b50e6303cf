package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// Secrets of the lab's clusters. They guard nothing: the cluster lives in namespaces of one machine.
const (
	ServerToken = "lab-server-secret"
	AgentToken  = "lab-agent-secret"
)

// Ports of k3s.
const (
	APIPort  = 6443
	EtcdPort = 2379
	PeerPort = 2380
)

// Unit names.
const (
	ServerUnit = "k3s.service"
	AgentUnit  = "k3s-agent.service"
	HostUnit   = "regrade-host.service"
)

// URL of the host's k3s server.
func URL(h *host.Host) string { return fmt.Sprintf("https://%s:%d", h.IP(), APIPort) }

// ServerConfig is the content of server.yaml on the host, as the spec wants it.
func (c *Cluster) serverConfig(h *host.Host, spec HostSpec) map[string]any {
	var names []string
	for _, other := range c.Lab.Hosts() {
		names = append(names, other.Name(), other.IP().String())
	}
	config := map[string]any{
		"token":       ServerToken,
		"agent-token": AgentToken,
		"node-ip":     h.IP().String(),
		"node-label":  labels(spec),
		// Eligible hosts are in the certificate of every server, as an installer does it.
		"tls-san":                names,
		"flannel-backend":        "none",
		"disable-network-policy": true,
		"disable":                []string{"coredns", "servicelb", "traefik", "local-storage", "metrics-server"},
	}
	first := c.Lab.Hosts()[0]
	switch {
	case h == first:
		config["cluster-init"] = true
	case spec.Role == Server:
		config["server"] = URL(first)
	}
	c.kubelet(config)
	if spec.Docker {
		forCompose(config, spec)
	}
	override(config, spec.Server)
	return config
}

func (c *Cluster) agentConfig(h *host.Host, spec HostSpec) map[string]any {
	// The agent's own start as a former server takes the drop-in; this is for those that begin as agents.
	config := map[string]any{
		"server":     URL(c.Lab.Hosts()[0]),
		"token":      AgentToken,
		"node-ip":    h.IP().String(),
		"node-label": labels(spec),
	}
	c.kubelet(config)
	if spec.Docker {
		forCompose(config, spec)
	}
	override(config, spec.Agent)
	return config
}

func (c *Cluster) kubelet(config map[string]any) {
	if c.Binaries.Real {
		config["kubelet-arg"] = realKubelet
		config["pause-image"] = image
	}
}

func override(config, with map[string]any) {
	for key, value := range with {
		if value == nil {
			delete(config, key)
			continue
		}
		config[key] = value
	}
}

func labels(spec HostSpec) []string {
	all := map[string]string{}
	if spec.eligible() {
		all[fleet.DefaultKeys().Eligible()] = fleet.True
	}
	maps.Copy(all, spec.Labels)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, key+"="+all[key])
	}
	return list
}

// provision puts everything on the host's disk that an installer would, before the first boot.
func (c *Cluster) provision(ctx context.Context, h *host.Host) error {
	spec := c.Spec.host(h.Name())
	if spec.Bare {
		h.Without("/usr/local/bin/k3s")
		if spec.Docker {
			return c.bareDocker(ctx, h)
		}
		return nil
	}
	if c.Spec.AsInstalled && !spec.Docker {
		if c.Binaries.Real {
			if err := c.provisionReal(h); err != nil {
				return err
			}
		}
		return c.installed(h, spec)
	}
	if spec.staged() {
		if err := c.WriteYAML(h, fleet.FileServerConf, c.serverConfig(h, spec)); err != nil {
			return err
		}
	}
	if err := c.WriteYAML(h, fleet.FileAgentConf, c.agentConfig(h, spec)); err != nil {
		return err
	}
	if spec.Docker {
		if c.Spec.Untouched {
			return c.provisionDocker(ctx, h, spec)
		}
		return errors.Join(c.settings(h), c.provisionDocker(ctx, h, spec))
	}
	// A plain agent is not regrade's business: it has no role file.
	if spec.eligible() && !c.Spec.WithoutRegrade {
		if err := h.WriteFile(fleet.FileRole, []byte(string(spec.Role)+"\n"), 0o644); err != nil {
			return err
		}
	}
	var env strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c.Spec.Env)) {
		fmt.Fprintf(&env, "%s=%s\n", key, c.Spec.Env[key])
	}
	if c.Binaries.Real {
		env.WriteString(realEnv)
	}
	for _, unit := range []string{ServerUnit, AgentUnit} {
		if err := h.WriteFile("/etc/systemd/system/"+unit+".env", []byte(env.String()), 0o600); err != nil {
			return err
		}
	}
	if !c.Spec.WithoutRegrade {
		if err := c.settings(h); err != nil {
			return err
		}
	}
	if c.Binaries.Real {
		if err := c.provisionReal(h); err != nil {
			return err
		}
	}
	return c.units(h, spec)
}

// settings of the host daemon.
func (c *Cluster) settings(h *host.Host) error {
	settings, join := c.settingsOf(h)
	if err := c.WriteYAML(h, fleet.FileHostConfig, settings); err != nil {
		return err
	}
	return c.WriteYAML(h, fleet.FileJoinConfig, join)
}

func (c *Cluster) settingsOf(h *host.Host) (settings map[string]any, join map[string]string) {
	join = map[string]string{}
	var servers []string
	for _, other := range c.Lab.Hosts() {
		if c.Spec.host(other.Name()).eligible() {
			join[other.Name()] = URL(other)
			if other != h {
				servers = append(servers, URL(other))
			}
		}
	}
	settings = map[string]any{
		"node":    h.Name(),
		"servers": servers,
	}
	if c.IsDocker(h) {
		settings["platform"] = "docker"
	}
	override(settings, c.Spec.HostSettings)
	return settings, join
}

//go:embed plain/*.service
var plain embed.FS

// units installs the shipped unit files and enables them. On an eligible host both roles are enabled: their start
// conditions decide.
func (c *Cluster) units(h *host.Host, spec HostSpec) error {
	var folder fs.FS = os.DirFS(c.Spec.Units)
	if c.Spec.WithoutRegrade {
		var err error
		if folder, err = fs.Sub(plain, "plain"); err != nil {
			return err
		}
	}
	files, err := fs.Glob(folder, "*.service")
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("no unit files in %s", c.Spec.Units), err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(folder, file)
		if err != nil {
			return fmt.Errorf("unit file: %w", err)
		}
		if err := h.WriteFile("/etc/systemd/system/"+file, content, 0o644); err != nil {
			return err
		}
	}
	enabled := []string{ServerUnit, AgentUnit, HostUnit}
	switch {
	case c.Spec.WithoutRegrade && spec.Role == Server:
		enabled = []string{ServerUnit}
	case c.Spec.WithoutRegrade || !spec.eligible():
		enabled = []string{AgentUnit}
	}
	for _, unit := range enabled {
		if err := h.Link("/etc/systemd/system/"+unit, "/etc/systemd/system/multi-user.target.wants/"+unit); err != nil {
			return err
		}
	}
	return nil
}

// findUnits is the folder of the unit files that the product ships.
func findUnits(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	for _, folder := range []string{"deploy/units", "internal/manifests/units"} {
		path := filepath.Join(filepath.Dir(root), folder)
		if _, err := os.Stat(filepath.Join(path, ServerUnit)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the project ships no unit files: neither deploy/units nor internal/manifests/units has " + ServerUnit)
}

// WriteYAML writes the value as YAML, 0600.
func (c *Cluster) WriteYAML(h *host.Host, path string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s on %s: %w", path, h.Name(), err)
	}
	return h.WriteFile(path, content, 0o600)
}

// PatchYAML changes keys of a YAML file of the host; a nil value drops the key.
func (c *Cluster) PatchYAML(h *host.Host, path string, with map[string]any) error {
	content, err := h.ReadFile(path)
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return fmt.Errorf("change %s on %s: %w", path, h.Name(), err)
	}
	override(config, with)
	return c.WriteYAML(h, path, config)
}
