package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/native"
	"github.com/exadev/regrade/internal/platform/peerport"
)

// Options make a Host.
type Options struct {
	native.Layout
	// K3s is k3s's binary; empty is /usr/local/bin/k3s.
	K3s string
	// PeerAddress is where the peer port is held; empty is :2380.
	PeerAddress string
	// Proc is where processes are looked for; empty is /proc.
	Proc string
	// Bus is systemd; nil is the host's own.
	Bus Bus
}

// snapshotTimeout ends a snapshot command: k3s's own bound is two minutes
// (k3s-facts §8).
const snapshotTimeout = 150 * time.Second

// Host is a native host.
type Host struct {
	*native.Files
	o Options

	peer peerport.Port

	mu       sync.Mutex
	snapshot platform.SnapshotRun
	version  versionOf
}

var _ platform.Host = (*Host)(nil)

// New makes a Host; it touches nothing yet.
func New(o Options) *Host {
	o.Layout = o.Layout.Defaults()
	if o.K3s == "" {
		o.K3s = "/usr/local/bin/k3s"
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Bus == nil {
		o.Bus = NewBus()
	}
	return &Host{Files: native.New(o.Layout), o: o, peer: peerport.Port{Address: o.PeerAddress}}
}

// Observe implements platform.Host.
func (h *Host) Observe(ctx context.Context) (platform.Facts, error) {
	// The snapshot command before its file: one that has ended has its file now.
	h.mu.Lock()
	snapshot := h.snapshot
	h.mu.Unlock()
	f, err := h.Files.Observe()
	if err != nil {
		return platform.Facts{}, err
	}
	// Units before processes: a process seen after its unit was at rest has
	// come back, one that went in between is looked for again in the next pass.
	server, err := h.unit(ctx, fleet.RoleServer)
	if err != nil {
		return platform.Facts{}, err
	}
	server.Level = f.Server.Level
	if f.Agent, err = h.unit(ctx, fleet.RoleAgent); err != nil {
		return platform.Facts{}, err
	}
	ps, err := processes(h.o.Proc)
	if err != nil {
		return platform.Facts{}, err
	}
	for _, p := range ps {
		switch {
		case p.role == fleet.RoleServer:
			server.Process = true
		case p.role == fleet.RoleAgent:
			f.Agent.Process = true
		case p.shim:
			f.Shims++
		}
	}
	if !server.Process {
		server.Level = ""
	}
	f.Server = server
	f.K3sVersion = h.version.of(ctx, h.o.K3s)
	h.mu.Lock()
	defer h.mu.Unlock()
	f.PeerPort, f.Snapshot = h.peer.Held(), snapshot
	return f, nil
}

func (h *Host) unit(ctx context.Context, role fleet.Role) (platform.Unit, error) {
	s, err := h.o.Bus.Unit(ctx, h.Unit(role))
	if err != nil {
		return platform.Unit{}, err
	}
	u := platform.Unit{Since: s.Since}
	switch s.Active {
	case "active", "reloading":
		u.State = platform.StateActive
	case "activating":
		u.State = platform.StateActivating
	case "deactivating":
		u.State = platform.StateDeactivating
	case "failed":
		u.State = platform.StateFailed
	case "inactive", "":
		u.State = platform.StateInactive
	default:
		return platform.Unit{}, fmt.Errorf("systemd: unit %s is %q", h.Unit(role), s.Active)
	}
	switch s.Job {
	case "":
	case "start", "verify-active":
		u.Job = platform.JobStart
	case "stop":
		u.Job = platform.JobStop
	default:
		u.Job = platform.JobOther
	}
	for _, c := range s.Conditions {
		if strings.Contains(c, "role-is "+string(role)) {
			u.Conditioned = true
		}
	}
	switch {
	case s.Masked:
		u.Conditioned, u.ConditionProblem = false, fmt.Sprintf("the unit %s is masked, so nothing starts it: systemctl unmask %s", h.Unit(role), h.Unit(role))
	case !s.Loaded:
		u.Conditioned, u.ConditionProblem = false, fmt.Sprintf("systemd has not loaded the unit %s: is it there, and right?", h.Unit(role))
	}
	return u, nil
}

// SetJoin implements platform.Files and tells systemd of the unit's drop-in.
func (h *Host) SetJoin(ctx context.Context, role fleet.Role, url string) error {
	if err := h.Files.SetJoin(ctx, role, url); err != nil {
		return err
	}
	return h.o.Bus.Reload(ctx)
}

// Start implements platform.Units. The unit is enabled too, so that a reboot
// asks its condition (R-216-24, safety rule 10).
func (h *Host) Start(ctx context.Context, role fleet.Role) error {
	name := h.Unit(role)
	s, err := h.o.Bus.Unit(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case s.Masked:
		return fmt.Errorf("systemd: unit %s is masked", name)
	case !s.Loaded:
		return fmt.Errorf("systemd: unit %s is not there", name)
	}
	if s.Enabled == "disabled" {
		if err := h.o.Bus.Enable(ctx, name); err != nil {
			return err
		}
		s.Stale = true
	}
	if s.Stale {
		if err := h.o.Bus.Reload(ctx); err != nil {
			return err
		}
	}
	if s.Active == "failed" {
		if err := h.o.Bus.ResetFailed(ctx, name); err != nil {
			return err
		}
	}
	return h.o.Bus.Start(ctx, name)
}

// Stop implements platform.Units.
func (h *Host) Stop(ctx context.Context, role fleet.Role) error {
	return h.o.Bus.Stop(ctx, h.Unit(role))
}

// Restart implements platform.Units.
func (h *Host) Restart(ctx context.Context) error {
	name := h.Unit(fleet.RoleServer)
	if s, err := h.o.Bus.Unit(ctx, name); err != nil {
		return err
	} else if s.Stale {
		if err := h.o.Bus.Reload(ctx); err != nil {
			return err
		}
	}
	return h.o.Bus.Restart(ctx, name)
}

// KillShims implements platform.Units: the shims and all below them, as k3s's
// own killall does (k3s-facts §1.4).
func (h *Host) KillShims(context.Context) error {
	all, err := processes(h.o.Proc)
	if err != nil {
		return err
	}
	var shims []int
	for _, p := range all {
		if p.shim {
			shims = append(shims, p.pid)
		}
	}
	var problems []error
	for _, pid := range descendants(all, shims) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			problems = append(problems, fmt.Errorf("kill pod process %d: %w", pid, err))
		}
	}
	return errors.Join(problems...)
}

// DatastoreAside implements platform.Store.
func (h *Host) DatastoreAside(context.Context) error {
	ps, err := processes(h.o.Proc)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if p.role == fleet.RoleServer {
			return fmt.Errorf("move datastore aside: the k3s server process %d lives", p.pid)
		}
	}
	return h.Disk().MoveAside()
}

// SaveSnapshot implements platform.Store. The command runs on by itself; when
// the daemon's unit ends, systemd ends it too, and the next daemon sees by the
// file whether it was done.
func (h *Host) SaveSnapshot(_ context.Context, base string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.snapshot.Running {
		return fmt.Errorf("etcd snapshot %s: %s is being taken", base, h.snapshot.Base)
	}
	h.snapshot = platform.SnapshotRun{Base: base, Running: true}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
		defer cancel()
		out, err := h.command(ctx, h.Disk().SnapshotCommand(h.Layout().ServerConfig, base)...)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.snapshot.Running = false
		if err != nil {
			h.snapshot.Error = fmt.Sprintf("%v: %s", err, lastLine(out))
		}
	}()
	return nil
}

func (h *Host) command(ctx context.Context, args ...string) ([]byte, error) {
	return exec.CommandContext(ctx, h.o.K3s, args...).CombinedOutput()
}

func lastLine(out []byte) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	last := lines[len(lines)-1]
	if len(last) > 300 {
		last = last[:300]
	}
	return string(last)
}

// HoldPeerPort implements platform.Host.
func (h *Host) HoldPeerPort(_ context.Context, hold bool) error { return h.peer.Hold(hold) }
