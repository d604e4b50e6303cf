package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// ProbeUnit runs `regrade probe` on a host of the lab, where the DaemonSet would run a pod: hollow kubelets start no containers.
const ProbeUnit = "regrade-probe.service"

// StartProbes runs a probe on each server and eligible host, with the probes' ServiceAccount's token and nothing else of it. env is
// set for each, as FLEET_ROLE_PERIOD_SECONDS=2. Probes that run are started anew.
func (c *Cluster) StartProbes(ctx context.Context, env ...string) error {
	for _, spec := range c.Spec.Hosts {
		if spec.eligible() {
			if err := c.StartProbe(ctx, c.Host(spec.Name), nil, env...); err != nil {
				return err
			}
		}
	}
	return nil
}

// StartProbe runs the probe of one host. binds are files of the host that the probe finds in the place of others, as
// "/etc/lab/meminfo:/proc/meminfo": a fixture for what the machine cannot show.
func (c *Cluster) StartProbe(ctx context.Context, h *host.Host, binds []string, env ...string) error {
	// The host that the kubeconfig names may be any: the probe tries all servers.
	content, err := c.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountProbe, c.Lab.Hosts()[0])
	if err != nil {
		return err
	}
	const kubeconfig = "/etc/regrade-probe.kubeconfig"
	if err := h.WriteFile(kubeconfig, content, 0o600); err != nil {
		return err
	}
	var unit strings.Builder
	unit.WriteString("[Unit]\nDescription=regrade probe, as the lab runs it\n[Service]\nExecStartPre=/bin/mkdir -p " + fleet.DirFsync + "\nExecStart=/usr/local/bin/regrade probe\nRestart=always\nRestartSec=1\n")
	for _, e := range append([]string{"FLEET_ROLE_NODE=" + h.Name(), "KUBECONFIG=" + kubeconfig, "FLEET_ROLE_API_SERVERS=" + c.ServerURLs()}, env...) {
		fmt.Fprintf(&unit, "Environment=%s\n", e)
	}
	if c.IsDocker(h) {
		// A pod sees the folder of the k3s container's volume.
		fmt.Fprintf(&unit, "BindPaths=%s:%s\n", Volume("k3s-data"), fleet.DefaultDataDir)
	}
	for _, b := range binds {
		fmt.Fprintf(&unit, "BindReadOnlyPaths=%s\n", b)
	}
	if err := h.WriteFile("/etc/systemd/system/"+ProbeUnit, []byte(unit.String()), 0o644); err != nil {
		return err
	}
	if _, err := h.Systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if _, err := h.Systemctl(ctx, "restart", ProbeUnit); err != nil {
		return fmt.Errorf("start the probe on %s: %w", h.Name(), err)
	}
	return nil
}

// StopProbe ends the probe of one host.
func (c *Cluster) StopProbe(ctx context.Context, h *host.Host) error {
	_, err := h.Systemctl(ctx, "stop", ProbeUnit)
	return err
}
