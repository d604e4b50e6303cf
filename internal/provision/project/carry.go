package project

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Bring brings the images of a plan. It touches no file and no container, and may take
// minutes: it is done without the host lock, under which the daemon would be silent.
func (h Host) Bring(ctx context.Context, p Plan) error {
	for _, c := range p.Images {
		if err := h.run(ctx, p, c); err != nil {
			return err
		}
	}
	return nil
}

// Carry carries the rest out, safe to be done again after any interruption: the record
// first, then files, then containers, k3s's before the daemon.
func (h Host) Carry(ctx context.Context, p Plan) error {
	if p.Empty() {
		return nil
	}
	record := p.Record
	record.Pending = true
	if err := h.note(record); err != nil {
		return err
	}
	for _, f := range p.Folders {
		if err := h.folder(f); err != nil {
			return err
		}
	}
	for _, f := range append(append([]setup.File{}, p.Files...), p.Closed...) {
		if err := atomicfile.Write(h.at(f.Path), f.Content, f.Mode); err != nil {
			return fmt.Errorf("set up the host: %w", err)
		}
	}
	for _, m := range p.Modprobe {
		if err := h.run(ctx, p, Command{Argv: []string{"modprobe", m}}); err != nil {
			return err
		}
	}
	for _, c := range p.Containers {
		if err := h.run(ctx, p, c); err != nil {
			return err
		}
	}
	if err := h.kept(ctx, p); err != nil {
		return err
	}
	record.Pending, record.Start = false, false
	return h.note(record)
}

// folder makes one; the mode of one that is there is its owner's.
func (h Host) folder(f Folder) error {
	if info, err := os.Stat(h.at(f.Path)); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(h.at(f.Path)), 0o755); err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	if err := os.Mkdir(h.at(f.Path), f.Mode); err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	return nil
}

// kept sees that the containers which were to stay are the same ones, and that the project
// is whole. Compose was asked for that; it is not taken at its word.
func (h Host) kept(ctx context.Context, p Plan) error {
	engine, err := h.Engine(p.Record.Socket)
	if err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	all, err := engine.List(ctx, p.Record.Project)
	if err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	ids := map[string]string{}
	for _, l := range all {
		if l.Project == p.Record.Project && !l.OneOff && l.State != "dead" && l.State != "removing" {
			ids[l.Service] = l.ID
		}
	}
	for service, id := range p.Keep {
		if ids[service] != id {
			return fmt.Errorf("set up the host: the container of %s was made anew, which nobody asked Compose for: see whether k3s runs there", service)
		}
	}
	for _, service := range append([]string{serviceDaemon}, services...) {
		if ids[service] == "" {
			return fmt.Errorf("set up the host: Compose has made no container of the service %s", service)
		}
	}
	return nil
}

func (h Host) note(r Record) error {
	raw, err := r.Encode()
	if err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	if err := atomicfile.Write(h.at(fleet.FileInstalled), raw, fs.FileMode(readableMode)); err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	return nil
}

// run runs a command of a plan. What it printed goes into the error without the secrets of
// the files that it may have read.
func (h Host) run(ctx context.Context, p Plan, c Command) error {
	out, err := h.Programs(p.Record.Socket).Run(ctx, c)
	if err != nil {
		return fmt.Errorf("set up the host: %s: %w", c, err)
	}
	if out.Code == 0 {
		return nil
	}
	text := strings.TrimSpace(out.Text)
	for _, s := range p.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return fmt.Errorf("set up the host: %s: exit status %d: %s", c, out.Code, text)
}
