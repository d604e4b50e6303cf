package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// collectLimit bounds the collecting: a broken cluster answers nothing.
const collectLimit = 90 * time.Second

// CollectInto collects into a new folder for the named test and gives the folder.
func (c *Cluster) CollectInto(ctx context.Context, name string) (string, error) {
	base := os.Getenv(EnvLogs)
	if base == "" {
		cache, err := host.CacheDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(cache, "failed")
	}
	safe := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", r) {
			return r
		}
		return '_'
	}, name)
	folder := filepath.Join(base, time.Now().UTC().Format("20060102T150405Z")+"-"+safe)
	return folder, c.Collect(ctx, folder)
}

// Collect writes what explains a failure into the folder: each host's journal, processes, units and deciding files, the
// controller's log, the cluster's objects and etcd's member list. It goes on past what cannot be had and notes that in a file of
// its own, "missing".
func (c *Cluster) Collect(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("collect logs: %w", err)
	}
	var missing []string
	save := func(name, content string, err error) {
		if err != nil {
			missing = append(missing, name+": "+err.Error())
		}
		if content == "" {
			return
		}
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			missing = append(missing, name+": "+err.Error())
		}
	}
	for _, h := range c.Lab.Hosts() {
		c.collectHost(ctx, h, save)
	}
	logs, _ := filepath.Glob(filepath.Join(c.Lab.Dir(), "controller*.log"))
	for _, path := range logs {
		log, err := os.ReadFile(path)
		save(filepath.Base(path), string(log), err)
	}
	list, err := c.Members(ctx)
	save("members", list.String()+"\n", err)
	c.collectObjects(ctx, save)
	if len(missing) > 0 {
		if err := os.WriteFile(filepath.Join(folder, "missing"), []byte(strings.Join(missing, "\n")+"\n"), 0o644); err != nil {
			return fmt.Errorf("collect logs: %w", err)
		}
	}
	return nil
}

func (c *Cluster) collectHost(ctx context.Context, h *host.Host, save func(name, content string, err error)) {
	at := func(name string) string { return filepath.Join(h.Name(), name) }
	for _, unit := range []string{ServerUnit, AgentUnit, HostUnit} {
		log, err := h.Journal(ctx, unit)
		save(at(strings.TrimSuffix(unit, ".service")+".log"), log, err)
	}
	log, err := h.Journal(ctx, "")
	save(at("journal.log"), log, err)
	if c.IsDocker(h) && h.Up() {
		for _, container := range []string{ServerContainer, AgentContainer, HostContainer} {
			result, err := h.Exec(ctx, "docker", "logs", "--timestamps", container)
			save(at(container+".log"), result.Stdout+result.Stderr, err)
			out, err := c.Docker(ctx, h, "inspect", "-f", "{{json .State}} {{json .Mounts}}", container)
			save(at(container+".json"), out, err)
		}
		out, err := c.Docker(ctx, h, "ps", "-a")
		save(at("containers"), out, err)
	}
	processes, err := h.Processes()
	var lines strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&lines, "%d %d %s %s\n", p.PID, p.Parent, p.State, strings.Join(p.Args, " "))
	}
	save(at("processes"), lines.String(), err)
	if h.Up() {
		units, err := h.Run(ctx, "systemctl", "status", "--no-pager", "--full", "--lines=0", ServerUnit, AgentUnit, HostUnit)
		// The status is not 0 as soon as one of them is not running.
		if units == "" {
			save(at("units"), "", err)
		}
		save(at("units"), units, nil)
	}
	// No secret is in these.
	for _, pattern := range []string{
		fleet.RoleDir + "/*", "/run/regrade/*", fleet.FileHostConfig, fleet.FileJoinConfig, fleet.FileServerConf + ".d/*", fleet.FileAgentConf + ".d/*",
		"/var/lib/rancher/k3s/server/db/etcd/name", "/var/lib/rancher/k3s/server/db/etcd/tombstone",
	} {
		paths, err := h.Glob(pattern)
		if err != nil {
			save(at(filepath.Base(pattern)), "", err)
		}
		for _, path := range paths {
			content, err := h.ReadFile(path)
			save(at(filepath.Join("files", path)), string(content)+"\n", err)
		}
	}
}

func (c *Cluster) collectObjects(ctx context.Context, save func(name, content string, err error)) {
	api, err := c.API()
	if err != nil {
		save("objects", "", err)
		return
	}
	asYAML := func(name string, object any, err error) {
		if err != nil {
			save(name, "", err)
			return
		}
		content, err := yaml.Marshal(object)
		save(name, string(content), err)
	}
	all := metav1.ListOptions{}
	nodes, err := api.CoreV1().Nodes().List(ctx, all)
	if err == nil {
		for i := range nodes.Items {
			nodes.Items[i].ManagedFields, nodes.Items[i].Status.Images = nil, nil
		}
	}
	asYAML("nodes.yaml", nodes, err)
	for _, namespace := range []string{"kube-system", "kube-node-lease", fleet.DefaultNamespace} {
		leases, err := api.CoordinationV1().Leases(namespace).List(ctx, all)
		asYAML("leases-"+namespace+".yaml", leases, err)
		maps, err := api.CoreV1().ConfigMaps(namespace).List(ctx, all)
		asYAML("configmaps-"+namespace+".yaml", maps, err)
	}
	pods, err := api.CoreV1().Pods("").List(ctx, all)
	asYAML("pods.yaml", pods, err)
	events, err := api.CoreV1().Events("").List(ctx, all)
	asYAML("events.yaml", events, err)
}
