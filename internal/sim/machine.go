package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Machine is one host as its daemon may see and change it: the platform port
// in front of the world.
type Machine struct {
	w    *World
	name string
	gate Gate
}

// Machine returns the platform port of a host.
func (w *World) Machine(name string) *Machine { return &Machine{w: w, name: name} }

var _ platform.Host = (*Machine)(nil)

// on runs f on the host, unless the daemon cannot run just now.
func (m *Machine) on(ctx context.Context, what string, f func(*Host) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := m.gate.pass(what); err != nil {
		return err
	}
	// It may have stood still at the gate: no call goes out after its time.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.follow()
	h := m.w.host(m.name)
	if m.w.cut || !h.Up || h.Paused {
		return fmt.Errorf("%s: %w", what, ErrKilled)
	}
	return f(h)
}

func (m *Machine) change(ctx context.Context, what string, f func(*Host)) error {
	return m.on(ctx, what, func(h *Host) error {
		return m.w.effect(Effect{By: m.name, What: what, Node: m.name}, func() error { f(h); return nil })
	})
}

// Observe implements platform.Host.
func (m *Machine) Observe(ctx context.Context) (f platform.Facts, err error) {
	err = m.on(ctx, "observe", func(h *Host) error {
		f = platform.Facts{
			Files:      h.files(),
			Datastore:  h.Data.WAL || h.Data.Name != "" || h.Data.Tombstone,
			MemberName: h.Data.Name,
			EtcdCerts:  h.certs,
			Staged:     h.Staged,
			Level:      h.Level,
			ServerJoin: h.ServerJoin,
			AgentJoin:  h.AgentJoin,
			Server:     h.Units[fleet.RoleServer].facts(),
			Agent:      h.Units[fleet.RoleAgent].facts(),
			Shims:      h.Shims,
			PeerPort:   h.PeerPort,
			Snapshot:   platform.SnapshotRun{Base: h.snapshot.base, Running: h.snapshot.running, Error: h.snapshot.err},
			Snapshots:  slices.Clone(h.Data.Snapshots),
			K3sVersion: m.w.cfg.Version,
			Journal:    slices.Clone(h.Journal),

			LevelJournal: slices.Clone(h.LevelJournal),
		}
		if f.Server.Process {
			f.Server.Level = h.server.level
		}
		return nil
	})
	return f, err
}

func (u *Unit) facts() platform.Unit {
	f := platform.Unit{State: platform.StateInactive, Process: u.Process, Since: u.Started, Conditioned: true}
	switch {
	case u.stopping:
		f.State, f.Job = platform.StateDeactivating, platform.JobStop
	case u.Process && u.Ready:
		f.State = platform.StateActive
	case u.Process:
		f.State, f.Job = platform.StateActivating, platform.JobStart
	case u.Wanted:
		f.State = platform.StateActivating // the wait before an automatic restart
	}
	if u.again {
		f.Job = platform.JobStart
	}
	return f
}

// SetRole implements platform.Files.
func (m *Machine) SetRole(ctx context.Context, role fleet.Role) error {
	return m.change(ctx, "role file "+string(role), func(h *Host) { h.Files.Role = role })
}

// SetLeaving implements platform.Files.
func (m *Machine) SetLeaving(ctx context.Context, id fleet.SwapID) error {
	what := "leaving written"
	if id == "" {
		what = "leaving deleted"
	}
	return m.change(ctx, what, func(h *Host) { h.Files.Leaving = id })
}

// SetJoining implements platform.Files.
func (m *Machine) SetJoining(ctx context.Context, j rolefile.Joining) error {
	what := "joining written"
	if j == (rolefile.Joining{}) {
		what = "joining deleted"
	}
	return m.change(ctx, what, func(h *Host) { h.Files.Joining = j })
}

// SetIdentity implements platform.Files.
func (m *Machine) SetIdentity(ctx context.Context, id rolefile.Identity) error {
	return m.change(ctx, "identity written", func(h *Host) {
		kept := h.Files.Identity.ClusterID
		h.Files.Identity = id
		h.Files.Identity.Voters = slices.Clone(id.Voters)
		if id.ClusterID == 0 {
			h.Files.Identity.ClusterID = kept
		}
	})
}

// SetLevel implements platform.Files.
func (m *Machine) SetLevel(ctx context.Context, level fleet.Level) error {
	return m.change(ctx, "level "+string(level), func(h *Host) {
		if level == "" {
			level = fleet.LevelFull
		}
		h.Level = level
	})
}

// SetJoin implements platform.Files.
func (m *Machine) SetJoin(ctx context.Context, role fleet.Role, url string) error {
	return m.change(ctx, "join URL of the "+string(role)+": "+url, func(h *Host) {
		if role == fleet.RoleServer {
			h.ServerJoin = url
		} else {
			h.AgentJoin = url
		}
	})
}

// SetJournal implements platform.Files.
func (m *Machine) SetJournal(ctx context.Context, raw []byte) error {
	return m.change(ctx, "journal written", func(h *Host) { h.Journal = slices.Clone(raw) })
}

// SetLevelJournal implements platform.Files.
func (m *Machine) SetLevelJournal(ctx context.Context, raw []byte) error {
	return m.change(ctx, "level journal written", func(h *Host) { h.LevelJournal = slices.Clone(raw) })
}

// Start implements platform.Units.
func (m *Machine) Start(ctx context.Context, role fleet.Role) error {
	return m.change(ctx, "start k3s "+string(role), func(h *Host) { m.w.startUnit(h, role) })
}

// Stop implements platform.Units.
func (m *Machine) Stop(ctx context.Context, role fleet.Role) error {
	return m.change(ctx, "stop k3s "+string(role), func(h *Host) { m.w.stopUnit(h, role) })
}

// Restart implements platform.Units.
func (m *Machine) Restart(ctx context.Context) error {
	return m.change(ctx, "restart k3s server", func(h *Host) {
		m.w.stopUnit(h, fleet.RoleServer)
		m.w.startUnit(h, fleet.RoleServer)
	})
}

// KillShims implements platform.Units.
func (m *Machine) KillShims(ctx context.Context) error {
	return m.change(ctx, "container shims ended", func(h *Host) { h.Shims = 0 })
}

// DatastoreAside implements platform.Store.
func (m *Machine) DatastoreAside(ctx context.Context) error {
	return m.on(ctx, "datastore aside", func(h *Host) error {
		if h.Units[fleet.RoleServer].Process {
			return errors.New("datastore aside: a server process lives")
		}
		return m.w.effect(Effect{By: m.name, What: "datastore aside", Node: m.name}, func() error {
			if h.Data.WAL || h.Data.Name != "" || h.Data.Tombstone {
				m.w.etcd.Wipe(h.Name)
				h.Data = Data{Aside: 1, Backups: h.Data.Backups, Snapshots: h.Data.Snapshots}
			}
			return nil
		})
	})
}

// SaveSnapshot implements platform.Store.
func (m *Machine) SaveSnapshot(ctx context.Context, base string) error {
	return m.change(ctx, "etcd snapshot begun", func(h *Host) { m.w.beginSnapshot(h, base) })
}

// PruneSnapshots implements platform.Store.
func (m *Machine) PruneSnapshots(ctx context.Context, keep int) error {
	return m.change(ctx, "etcd snapshots pruned", func(h *Host) {
		if n := len(h.Data.Snapshots); n > keep {
			h.Data.Snapshots = slices.Clone(h.Data.Snapshots[n-keep:])
		}
	})
}

// HoldPeerPort implements platform.Host.
func (m *Machine) HoldPeerPort(ctx context.Context, hold bool) error {
	return m.on(ctx, "peer port", func(h *Host) error {
		if hold && h.Units[fleet.RoleServer].Process {
			return errors.New("hold peer port: address in use")
		}
		h.PeerPort = hold
		m.w.changes++
		return nil
	})
}

// DaemonDied ends what lives in the host daemon's process: the peer port it
// held and the snapshot it waited for.
func (w *World) DaemonDied(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	h.PeerPort, h.snapshot, h.locks = false, snapshotRun{}, 0
}
