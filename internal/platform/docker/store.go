package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform"
)

// snapshotTimeout ends a snapshot command: k3s's own bound is two minutes
// (k3s-facts §8).
const snapshotTimeout = 150 * time.Second

// DatastoreAside implements platform.Store.
func (h *Host) DatastoreAside(ctx context.Context) error {
	p, err := h.pair(ctx)
	if err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	process, c, err := h.k3sIn(ctx, p.server, fleet.RoleServer)
	switch {
	case err != nil:
		return fmt.Errorf("move datastore aside: %w", err)
	case process:
		return fmt.Errorf("move datastore aside: k3s server runs in container %s", c.Name)
	case c.State == "restarting":
		return fmt.Errorf("move datastore aside: the engine is about to start container %s again", c.Name)
	}
	// An agent opens no datastore, and one may run here: a boot can start it in the middle.
	agent, _, err := h.k3sIn(ctx, p.agent, fleet.RoleAgent)
	if err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	if err := h.stranger(); err != nil && !agent {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	return h.disk().MoveAside()
}

// SaveSnapshot implements platform.Store. The command runs in the server's container
// and goes on by itself; when this process ends meanwhile, the next one sees by the
// file whether it was done.
func (h *Host) SaveSnapshot(ctx context.Context, base string) error {
	p, err := h.pair(ctx)
	if err != nil {
		return fmt.Errorf("etcd snapshot %s: %w", base, err)
	}
	if !p.server.Runs() {
		return fmt.Errorf("etcd snapshot %s: the server's container does not run", base)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.snapshot.Running {
		return fmt.Errorf("etcd snapshot %s: %s is being taken", base, h.snapshot.Base)
	}
	h.snapshot = platform.SnapshotRun{Base: base, Running: true}
	command := append([]string{h.o.K3s}, k3s.Disk{}.SnapshotCommand(fleet.FileServerConf, base)...)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), snapshotTimeout)
		defer cancel()
		out, err := h.engine.Run(ctx, p.server.ID, command...)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.snapshot.Running = false
		switch {
		case err != nil:
			h.snapshot.Error = err.Error()
		case out.Status != 0:
			h.snapshot.Error = fmt.Sprintf("exit status %d: %s", out.Status, lastLine(out.Text))
		}
	}()
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	if len(last) > 300 {
		last = last[:300]
	}
	return last
}
