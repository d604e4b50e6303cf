package entrypoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/container"
)

// Options are a container's.
type Options struct {
	// Root is put before every path; empty is the container itself.
	Root string
	// K3s is the program that is executed as k3s, below Root. A program that puts
	// a mesh up and then executes k3s with the same arguments may stand here.
	K3s string
	// Inventory is the role that the Compose project gives this host.
	Inventory fleet.Role
	// Eligible and Pinned are "true", "false" or empty for no label (R-185-34).
	Eligible, Pinned string
	Keys             fleet.Keys
	SQLite           bool
	Environ          []string
}

// Read reads the facts of a role. notes are what went unread and decides nothing.
func Read(o Options, files *container.Files, role fleet.Role) (f Facts, notes []string, err error) {
	f = Facts{Role: role, Inventory: o.Inventory, SQLite: o.SQLite, Labels: labels(o)}
	if f.Files, err = files.Role(); err != nil {
		return Facts{}, nil, fmt.Errorf("entrypoint: %w", err)
	}
	if j, err := files.Join(role); err != nil {
		f.JoinProblem = err.Error()
	} else {
		f.URL, f.Token = j.URL, j.Token.Reveal() != ""
	}
	if f.JoinProblem != "" && f.Files.WAL && role == fleet.RoleServer {
		notes = append(notes, f.JoinProblem)
	}
	for _, dir := range container.Identity() {
		part := filepath.Join(dir, fleet.FilePartCopy)
		if _, err := os.Lstat(filepath.Join("/", o.Root, part)); err == nil {
			f.Part = part
		}
	}
	if role != fleet.RoleServer {
		return f, notes, nil
	}
	if j, err := files.Join(fleet.RoleAgent); err != nil {
		f.AgentProblem = err.Error()
	} else {
		f.AgentURL = j.URL
	}
	f.First, _ = strconv.ParseBool(getenv(o.Environ)(container.EnvFirst))
	if f.Level, err = files.Level(); err != nil {
		// A level is never a vote: a file that says nothing keeps no voter down.
		notes, f.Level = append(notes, err.Error()+"; the server starts full"), fleet.LevelFull
	}
	return f, notes, nil
}

func labels(o Options) []string {
	var out []string
	for _, l := range []struct{ key, value string }{{o.Keys.Eligible(), o.Eligible}, {o.Keys.Pinned(), o.Pinned}} {
		if l.value != "" {
			out = append(out, l.key+"="+l.value)
		}
	}
	return out
}

// getenv looks a variable up in a process's environment; the last one counts.
func getenv(environ []string) func(string) string {
	return func(name string) string {
		for i := len(environ) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(environ[i], name+"="); ok {
				return v
			}
		}
		return ""
	}
}
