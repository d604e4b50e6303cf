package docker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// fileRecord is this adapter's own note, beside the daemon's journal.
const fileRecord = "/var/lib/regrade/docker.json"

// record is what an engine does not keep, or loses with a container. It is written
// by effects alone, which have the host lock; looking changes nothing.
type record struct {
	// Owner is the role that ran last: its service's volumes have this host's
	// identity. Empty when none was seen running.
	Owner fleet.Role `json:"owner,omitempty"`
	// Start is the last start that this platform made (R-228-41).
	Start start `json:"start,omitzero"`
	// Restarting is a restart of the server that was asked of the engine and whose end this
	// platform has not seen.
	Restarting start `json:"restarting,omitzero"`
	// Boot is the boot in which this platform last started or stopped something.
	Boot string `json:"boot,omitempty"`
	// Version is what the k3s of an image says of itself.
	Version versionOf `json:"version,omitzero"`
}

// start is one start of a role.
type start struct {
	Role      fleet.Role `json:"role,omitempty"`
	Container string     `json:"container,omitempty"`
	At        time.Time  `json:"at,omitzero"`
	// Boot is the boot in which it was made.
	Boot string `json:"boot,omitempty"`
}

// covers says whether a container runs since this start, or was restarted since, in
// this boot. What an engine brings back at a boot has asked before anything was
// confirmed anew: a joining file is gone then, and the entrypoint of a server idles.
func (s start) covers(role fleet.Role, c Container, boot string) bool {
	return s.Role == role && s.Container == c.ID && s.Boot == boot && !c.Started.Before(s.At)
}

// cutShort says that a restart asked for in this boot stopped the container and did not
// start it: the engine took this process's end for a change of mind (ADR 0013).
func (s start) cutShort(c Container, boot string) bool {
	return s.Role != "" && s.Container == c.ID && s.Boot == boot && boot != "" && c.AtRest() && c.Started.Before(s.At)
}

type versionOf struct {
	Image   string `json:"image,omitempty"`
	Version string `json:"version,omitempty"`
}

// record reads it. One that cannot be read holds nothing: what is missing in it is
// found out again, or asked of a person.
func (h *Host) record() record {
	h.mu.Lock()
	defer h.mu.Unlock()
	raw, err := os.ReadFile(h.at(fileRecord))
	var r record
	if err == nil && json.Unmarshal(raw, &r) != nil {
		r = record{}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r = record{}
	}
	// What runs now is truer than what was written.
	if h.seen.Owner != "" {
		r.Owner = h.seen.Owner
	}
	if h.seen.Version != (versionOf{}) {
		r.Version = h.seen.Version
	}
	return r
}

// note changes the record on disk. A job may, beside a pass.
func (h *Host) note(change func(*record)) error {
	h.noting.Lock()
	defer h.noting.Unlock()
	r := h.record()
	change(&r)
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	path := h.at(fileRecord)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	h.seen.Owner, h.seen.Version = "", r.Version // the next look says what runs
	return nil
}
