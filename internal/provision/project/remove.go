package project

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
)

// without keeps the daemon from coming back with the next `up`: a profile that nobody names.
// The services of k3s are not in it, so their containers stay the same to Compose.
const without = `# Written by regrade host remove: the daemon is taken off this host, and is in a profile
# that nobody names. Named in COMPOSE_FILE (.env); regrade host setup takes it out again.
services:
  regrade-host:
    profiles: [regrade-removed]
`

// Removal is what takes the daemon off. k3s's containers are not touched, whoever made
// them: without the entrypoint a demoted host's server would found a second cluster, so how
// they end is a person's to say (docs/operations.md, "Turn it off").
type Removal struct {
	// Stop are commands that end the daemon's container.
	Stop []Command
	// Files keep it from coming back.
	Files []setup.File
	// Back: nothing keeps it from coming back, which is a person's to do.
	Back bool
	// Delete are files that setup made and that only the daemon needs, the record last.
	Delete []string

	socket string
}

// LookForRemoval reads what a removal is made of, by what an earlier setup wrote down;
// without a Record where there is none of a Docker host.
func (h Host) LookForRemoval(ctx context.Context) (Seen, error) {
	r, err := Recorded(h.Root)
	if err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	if r == nil || r.Platform != platformDocker {
		return Seen{}, nil
	}
	s := Seen{Record: r, Boxes: map[string]*Box{}, Files: map[string][]byte{}, Open: map[string]fs.FileMode{}}
	if s.Env, s.Have, err = h.env(r.Folder); err != nil {
		return Seen{}, err
	}
	engine, err := h.Engine(r.Socket)
	if err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	if err := h.containers(ctx, engine, r.Project, r.Folder, &s); err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	if err := h.data(ctx, engine, h.Programs(r.Socket), r.Project, &s); err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	w := map[string]string{}
	for _, key := range variables {
		w[key] = meant(key, s.Env.Get(key))
	}
	if err := h.roles(r.Folder, w, &s); err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	if err := h.files(r.Folder, w, &s); err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	return s, nil
}

// MakeRemoval decides how the daemon is taken off.
func MakeRemoval(s Seen) (Removal, []status.Problem) {
	switch {
	case s.Record == nil || s.Record.Platform != platformDocker:
		return Removal{}, problem(setup.CodeNotSetUp, "%s is missing, or of another platform: this host was not set up by regrade, or by hand", fleet.FileInstalled)
	case len(s.Elsewhere) > 0:
		return Removal{}, problem(CodeProject, "%s", strings.Join(s.Elsewhere, "; "))
	case s.Roles.Leaving != "" || s.Roles.Joining.Swap != "":
		return Removal{}, problem(setup.CodeUnderway, "this host is in the middle of a swap")
	case s.Lowered:
		return Removal{}, problem(setup.CodeLevel, "this server runs at a lower level; bring it up first: regrade level full")
	case len(s.Env.Odd()) > 0:
		return Removal{}, problem(CodeEnv, "%s: %s: write it out", in(s.Record.Folder, fileEnv), strings.Join(s.Env.Odd(), "; "))
	}
	r := Removal{socket: s.Record.Socket}
	if b := s.Boxes[serviceDaemon]; b != nil {
		// It is given its time: a restart of k3s that it waits for must not be broken off.
		r.Stop = []Command{{Argv: []string{"docker", "stop", b.Name}}, {Argv: []string{"docker", "rm", b.Name}}}
	}
	names := s.Env.Get(varFiles)
	if len(composeFiles(names)) < 2 {
		// With one file Compose 1 reads k3s's services otherwise than with two, and the next
		// `up` would make their containers anew.
		r.Back = true
		return r.delete(s), nil
	}
	if path := in(s.Record.Folder, fileWithout); string(s.Files[path]) != without {
		r.Files = append(r.Files, setup.File{Path: path, Mode: readableMode, Content: []byte(without), Old: s.Files[path]})
	}
	if s.Have && !slices.Contains(strings.Split(names, ":"), fileWithout) {
		path := in(s.Record.Folder, fileEnv)
		content, err := s.Env.With(map[string]string{varFiles: strings.Join(append(composeFiles(names), fileWithout), ":")})
		if err != nil {
			return Removal{}, problem(CodeEnv, "%v", err)
		}
		r.Files = append(r.Files, setup.File{Path: path, Mode: secretMode, Content: content, Old: s.Files[path], Secret: true})
	}
	return r.delete(s), nil
}

// delete adds what goes.
func (r Removal) delete(s Seen) Removal {
	for _, path := range slices.Backward(s.Record.Created) {
		if slices.Contains([]string{filepath.Base(fleet.FileKubeconfig), filepath.Base(fleet.FileHostConfig), filepath.Base(fleet.FileJoinConfig)}, filepath.Base(path)) {
			r.Delete = append(r.Delete, path)
		}
	}
	r.Delete = append(r.Delete, fleet.FileInstalled)
	return r
}

// Remove carries it out, safe to be done again.
func (h Host) Remove(ctx context.Context, r Removal) error {
	for _, c := range r.Stop {
		if err := h.run(ctx, Plan{Record: Record{Socket: r.socket}}, c); err != nil {
			return err
		}
	}
	for _, f := range r.Files {
		if err := atomicfile.Write(h.at(f.Path), f.Content, f.Mode); err != nil {
			return fmt.Errorf("take regrade off the host: %w", err)
		}
	}
	for _, path := range r.Delete {
		if err := atomicfile.Remove(h.at(path)); err != nil {
			return fmt.Errorf("take regrade off the host: %w", err)
		}
	}
	return nil
}
