package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/exadev/regrade/internal/fleet"
)

// Recovery is `regrade recovery` as a process on the lab's network, with its own ServiceAccount's token.
type Recovery struct {
	cmd *exec.Cmd
	log string
}

// StartRecovery applies what the product renders for it, but for the Deployment, and starts the process with that account.
// env is set besides what the lab sets.
func (c *Cluster) StartRecovery(ctx context.Context, env ...string) (*Recovery, error) {
	rendered, err := c.Regrade(ctx, "manifests", "--recovery")
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, []byte(rendered), "Deployment", "DaemonSet"); err != nil {
		return nil, err
	}
	content, err := c.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountRecovery, c.Lab.Hosts()[0])
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(c.Lab.Dir(), "recovery.kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return nil, fmt.Errorf("start recovery: %w", err)
	}
	cmd, err := c.Lab.Command(context.WithoutCancel(ctx), c.Binaries.Regrade, "recovery")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "FLEET_ROLE_API_SERVERS="+c.ServerURLs())
	cmd.Env = append(cmd.Env, env...)
	r := &Recovery{cmd: cmd, log: filepath.Join(c.Lab.Dir(), "recovery.log")}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start recovery: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start recovery: %w", err)
	}
	return r, nil
}

// Stop ends the process as Kubernetes does.
func (r *Recovery) Stop() error {
	if r.cmd == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	err := r.cmd.Wait()
	r.cmd = nil
	if err != nil {
		return fmt.Errorf("end recovery: %w", err)
	}
	return nil
}

// Log is all that it has written.
func (r *Recovery) Log() (string, error) {
	content, err := os.ReadFile(r.log)
	return string(content), err
}
