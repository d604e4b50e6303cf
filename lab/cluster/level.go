package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// PressureFile is a file of memory pressure that the level half of a host reads first where it is there, so that a
// scenario says how short memory is: PSI of the machine is one for all hosts.
const PressureFile = "/etc/regrade/pressure"

// CgroupPressure is the pressure of a host's own cgroup, as the host sees it.
const CgroupPressure = "/sys/fs/cgroup/unified/memory.pressure"

// LevelSettings are keys of host.yaml with which levels are on and quick: a window of ten seconds, a cooldown of
// thirty, steps up by themselves. Available memory, the machine's, is not judged.
func LevelSettings() map[string]any {
	return map[string]any{
		"period": "2s",
		"levels": map[string]any{
			"enabled": true, "step-up": "automatic", "window": "10s", "cooldown": "30s", "floor-mib": 0, "calm-floor-mib": 0,
			"pressure": []string{PressureFile, CgroupPressure, "/proc/pressure/memory"},
		},
	}
}

// InstallLevels applies what the product renders for levels and gives every server its credential.
func (c *Cluster) InstallLevels(ctx context.Context) error {
	rendered, err := c.Regrade(ctx, "manifests", "--levels")
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, []byte(rendered), "Deployment", "DaemonSet"); err != nil {
		return err
	}
	for _, h := range c.Lab.Hosts() {
		if !c.Spec.host(h.Name()).eligible() {
			continue
		}
		content, err := c.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountLevel, h)
		if err != nil {
			return err
		}
		if err := h.WriteFile(fleet.FileLevelKube, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Pressure says how short of memory a host is from now on: in percent of the last minute in which some task waited.
// Each reading finds one of the two files, whole.
func (c *Cluster) Pressure(ctx context.Context, h *host.Host, some float64) error {
	text := fmt.Sprintf("some avg10=%.2f avg60=%.2f avg300=0.00 total=1\nfull avg10=%.2f avg60=%.2f avg300=0.00 total=1\n", some, some, some/4, some/4)
	if err := h.WriteFile(PressureFile+".new", []byte(text), 0o644); err != nil {
		return err
	}
	_, err := h.Run(ctx, "mv", PressureFile+".new", PressureFile)
	return err
}

// Level runs "regrade level …" on the host, as its operator would.
func (c *Cluster) Level(ctx context.Context, h *host.Host, args ...string) (Outcome, error) {
	argv := []string{"/usr/local/bin/regrade", "level"}
	if c.IsDocker(h) {
		argv = []string{"docker", "exec", HostContainer, "regrade", "level"}
	}
	return h.Exec(ctx, slices.Concat(argv, args)...)
}
