package docker

import (
	"context"
	"path/filepath"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

func (h *Host) at(path string) string { return filepath.Join("/", h.o.Root, path) }

func (h *Host) disk() k3s.Disk { return k3s.Disk{Root: h.o.Root, ServerConfig: fleet.FileServerConf} }

// files are what the entrypoint of a role reads, with the variables that it has.
func (h *Host) files(c Container) *container.Files {
	env := c.Env
	if env == nil { // no container
		env = func(string) string { return "" }
	}
	f := container.New(h.o.Root, env)
	f.SetBootID(h.o.BootID)
	return f
}

// read reads all that the files say. server is the server's container.
func (h *Host) read(server Container) (platform.Facts, error) {
	var x platform.Facts
	var err error
	f, disk := h.files(server), h.disk()
	if x.Files, err = f.Role(); err != nil {
		return platform.Facts{}, err
	}
	if _, err := h.o.BootID(); err != nil {
		return platform.Facts{}, err
	}
	store, err := disk.ReadDatastore()
	if err != nil {
		return platform.Facts{}, err
	}
	x.Datastore, x.MemberName, x.EtcdCerts = store.Exists, store.Name, store.Certs
	if x.Datastore {
		x.DatastoreProblem = disk.DatastoreProblem()
	}
	if x.Snapshots, err = disk.OwnSnapshots(); err != nil {
		return platform.Facts{}, err
	}
	if x.Level, err = f.Level(); err != nil {
		return platform.Facts{}, err
	}
	// The entrypoint notes at every start what it starts with (R-112-16).
	if x.Server.Level, err = f.Started(); err != nil {
		return platform.Facts{}, err
	}
	if x.ServerJoin, err = h.dir.JoinURL(fleet.RoleServer); err != nil {
		return platform.Facts{}, err
	}
	if x.AgentJoin, err = h.dir.JoinURL(fleet.RoleAgent); err != nil {
		return platform.Facts{}, err
	}
	if x.Journal, err = h.dir.Journal(); err != nil {
		return platform.Facts{}, err
	}
	x.LevelJournal, err = h.dir.LevelJournal()
	return x, err
}

// SetRole implements platform.Files.
func (h *Host) SetRole(ctx context.Context, role fleet.Role) error {
	h.mark(ctx, role)
	if err := h.dir.SetRole(role); err != nil {
		return err
	}
	return h.dir.EndAllowJoin()
}

// SetLeaving implements platform.Files.
func (h *Host) SetLeaving(_ context.Context, id fleet.SwapID) error { return h.dir.SetLeaving(id) }

// SetJoining implements platform.Files.
func (h *Host) SetJoining(ctx context.Context, j rolefile.Joining) error {
	if j.Swap != "" {
		h.mark(ctx, fleet.RoleServer)
	}
	return h.dir.SetJoining(j)
}

// SetIdentity implements platform.Files.
func (h *Host) SetIdentity(_ context.Context, id rolefile.Identity) error {
	return h.dir.SetIdentity(id)
}

// SetJournal implements platform.Files.
func (h *Host) SetJournal(_ context.Context, raw []byte) error { return h.dir.SetJournal(raw) }

// SetLevelJournal implements platform.Files.
func (h *Host) SetLevelJournal(_ context.Context, raw []byte) error {
	return h.dir.SetLevelJournal(raw)
}

// SetLevel implements platform.Files: the level file in the data volume (R-112-15).
func (h *Host) SetLevel(_ context.Context, level fleet.Level) error {
	return h.files(Container{}).SetLevel(level)
}

// SetJoin implements platform.Files. The agent's URL has a file of its own: its first
// start after being a server depends on that alone (safety rule 15, R-228-14).
func (h *Host) SetJoin(_ context.Context, role fleet.Role, url string) error {
	if url != "" {
		if err := k3s.CheckJoinURL(url); err != nil {
			return err
		}
	}
	return h.dir.SetJoinURL(role, url)
}

// PruneSnapshots implements platform.Store.
func (h *Host) PruneSnapshots(_ context.Context, keep int) error {
	return h.disk().PruneSnapshots(keep)
}
