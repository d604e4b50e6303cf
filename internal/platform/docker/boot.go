package docker

import (
	"os"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/atomicfile"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// owed is the role that this boot still owes (platform.Facts.Owed). An engine brings
// back after a boot what ran before it, and nothing that was stopped: a host that was
// cut off between the stop of one role and the start of the other would have neither.
// Once k3s has run in this boot, or regrade has started or stopped something in it,
// nothing is owed: what a person stops stays stopped. But for one thing: a server that
// a restart has stopped and not started, since the daemon that asked for it died and its
// engine took that for a cancel (ADR 0013).
func (h *Host) owed(f platform.Facts, server Container, r record) fleet.Role {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.Server.Process || f.Agent.Process {
		h.upIn = f.Files.BootID
		h.ran()
	} else if h.upIn == "" && h.ranIn() == f.Files.BootID {
		h.upIn = f.Files.BootID // a daemon before this one saw it
	}
	if f.Files.Role != "" && f.Server.Gone() && f.Agent.Gone() && r.Restarting.cutShort(server, f.Files.BootID) && rolefile.MayStart(f.Files, fleet.RoleServer).May {
		return fleet.RoleServer
	}
	if h.upIn == f.Files.BootID || r.Boot == f.Files.BootID || f.Files.Role == "" {
		return ""
	}
	for role, u := range map[fleet.Role]platform.Unit{fleet.RoleServer: f.Server, fleet.RoleAgent: f.Agent} {
		// Of the two at most one may start (TestNeverBothRoles).
		if rolefile.MayStart(f.Files, role).May && u.Gone() {
			return role
		}
	}
	return ""
}

// ran writes down, for the next daemon of this boot, that k3s has run in it. The file
// lies where a boot empties, and names the boot for the case that it did not. Whoever
// looks may write it, a command too: they all write the same. Unwritten it is known to
// this process alone.
func (h *Host) ran() {
	if h.upIn == "" || h.notedIn == h.upIn {
		return
	}
	if h.ranIn() == h.upIn || atomicfile.Write(h.at(fleet.FileRan), []byte(h.upIn+"\n"), 0o644) == nil {
		h.notedIn = h.upIn
	}
}

func (h *Host) ranIn() string {
	raw, err := os.ReadFile(h.at(fleet.FileRan))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// confirmedSince says that a join was confirmed after a container was started: its
// entrypoint has asked without it, and idles. Where the host is a container itself a
// boot of it has no id of its own, and empties /run all the same.
func (h *Host) confirmedSince(c Container) bool {
	info, err := os.Stat(h.at(fleet.FileJoining))
	return err == nil && info.ModTime().After(c.Started)
}

// boot is this boot's id, empty where it cannot be told.
func (h *Host) boot() string {
	boot, err := h.o.BootID()
	if err != nil {
		return ""
	}
	return boot
}

// booted notes that something was done in this boot.
func (h *Host) booted(r *record) {
	if boot := h.boot(); boot != "" {
		r.Boot = boot
	}
}
