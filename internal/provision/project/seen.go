package project

import (
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

// Reason codes of refusals, beside those of packages setup and adopt.
const (
	CodeTools     = "ComposeMissing"
	CodeProject   = "ProjectElsewhere"
	CodeOutside   = "K3sOutsideProject"
	CodeVolume    = "DataOutOfReach"
	CodeEnv       = "EnvUnreadable"
	CodeRecreate  = "RecreateNeeded"
	CodeImage     = "ImageMissing"
	CodeNodeIP    = "NodeIPMissing"
	CodeFlagPlace = "FlagNotInFile"
)

// Box is one container of the project.
type Box struct {
	ID, Name, State string
	// Image is the id of the one that it was made of.
	Image string
	// Env gives a variable that it starts with.
	Env func(string) string
	// K3s is the role of the k3s that runs in it, empty for none.
	K3s fleet.Role
}

// runs says that it has processes, or will have by itself.
func (b *Box) runs() bool {
	return b != nil && (b.State == "running" || b.State == "paused" || b.State == "restarting")
}

// Seen is what is on a host before anything is changed.
type Seen struct {
	// Compose is the Compose program, as the first words of its command, and its version;
	// Lacks says what the host lacks, Compose among it.
	Compose []string
	Version string
	Lacks   []string

	// Env is the project's .env; Have says that there is one.
	Env  Env
	Have bool
	// Files are those that a plan may write, by their path on the host; absent ones are not
	// in it. Open are those that others may read.
	Files map[string][]byte
	Open  map[string]fs.FileMode
	// Absent are files that COMPOSE_FILE names and that are not there.
	Absent []string

	// Elsewhere are sentences about projects that this one would be mistaken for, and
	// Outside about k3s that runs on this host and is not the project's.
	Elsewhere []string
	Outside   []string
	// Boxes are the project's containers by service.
	Boxes map[string]*Box

	// Data is where the data volume lies, empty for no volume; DataProblem why it cannot be
	// looked into.
	Data        string
	DataProblem string
	// Role files, and what the data volume says.
	Roles rolefile.Files
	// Node is the one that k3s last ran as, CA its cluster's; empty where k3s has not said so.
	Node string
	CA   []byte
	// Lowered: the server runs at a lower level.
	Lowered bool

	// Images are the ids of those that the engine has, by name; Pullable those that a
	// registry has; Archived those in the archive.
	Images   map[string]string
	Pullable map[string]bool
	Archived []string
	// ArchiveProblem says why the archive cannot be read.
	ArchiveProblem string

	// Modules are kernel modules that are not loaded.
	Modules []string
	Record  *Record
}

// Record is what a setup wrote down of a Docker host: fleet.FileInstalled.
type Record struct {
	Platform string `json:"platform"`
	Folder   string `json:"folder"`
	Project  string `json:"project"`
	Socket   string `json:"socket"`
	// Role is the one that the host had then. Adopted: its containers were there.
	Role    fleet.Role `json:"role"`
	Adopted bool       `json:"adopted,omitempty"`
	// Created are the files that were not there, in the order in which they were written.
	Created []string `json:"created"`
	// Pending: a setup has begun and not ended. Start: it has k3s still to start.
	Pending bool `json:"pending,omitempty"`
	Start   bool `json:"start,omitempty"`
}

const platformDocker = "docker"

// Encode is the record's file.
func (r Record) Encode() ([]byte, error) {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("what was found: %w", err)
	}
	return append(raw, '\n'), nil
}

// running is the role whose k3s runs in the project, empty for none; both says that both do.
func (s Seen) running() (role fleet.Role, both bool) {
	found := map[fleet.Role]bool{}
	for _, service := range services {
		if b := s.Boxes[service]; b != nil && b.K3s != "" {
			found[b.K3s] = true
			role = b.K3s
		}
	}
	return role, len(found) > 1
}

func problem(code, format string, args ...any) []status.Problem {
	return []status.Problem{{Code: code, Sentence: fmt.Sprintf(format, args...)}}
}
