package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is one that is in the binary.
type module struct {
	path, version string
	dir           string
	// texts are the licences, notices and grants that go with what is linked, by their
	// path in the module. ids are the licences' SPDX ids, sorted.
	texts map[string]string
	ids   []string
}

// standard is the name under which Go's own library goes; it is linked into every binary.
const standard = "std"

// linked are the modules of a binary, and Go's library, by path. It is asked what is in
// it; where the modules' files are is asked of the Go command, which has them in its cache.
func linked(ctx context.Context, dir, binary string, a arch) ([]*module, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	folders, err := packages(ctx, dir, a)
	if err != nil {
		return nil, err
	}
	goroot, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	root := strings.TrimSpace(string(goroot))
	out := []*module{{path: standard, version: strings.TrimPrefix(info.GoVersion, "go"), dir: root}}
	folders[standard] = []string{root}
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: whose licence is it?", d.Path, d.Replace.Path)
		}
		if len(folders[d.Path]) == 0 {
			return nil, fmt.Errorf("%s is in the binary and not in the module graph", d.Path)
		}
		m := &module{path: d.Path, version: d.Version}
		if m.dir, err = moduleDir(ctx, dir, d.Path); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	for _, m := range out {
		if err := m.read(folders[m.path]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// packages are the folders of what is linked, by module.
func packages(ctx context.Context, dir string, a arch) (map[string][]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{if .Module}}{{.Module.Path}}\t{{.Dir}}{{end}}", "./cmd/regrade")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "GOPROXY=off", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+a.goarch, "GOARM="+a.goarm)
	raw, err := output(cmd)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		if path, folder, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			out[path] = append(out[path], folder)
		}
	}
	return out, nil
}

func moduleDir(ctx context.Context, dir, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "GOPROXY=off")
	raw, err := output(cmd)
	if err != nil {
		return "", err
	}
	d := strings.TrimSpace(string(raw))
	if d == "" {
		return "", fmt.Errorf("%s is not in the module cache: go mod download", path)
	}
	return d, nil
}

// legal are the files that have to go along.
var legal = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

// licence are those of them that give the right; of documentation is none of what is linked.
var (
	licence       = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying)`)
	documentation = regexp.MustCompile(`(?i)\.docs$`)
)

// read takes the texts in the folders of linked packages and in those above, up to the
// module's: third parties' code within a module has its own beside it.
func (m *module) read(folders []string) error {
	m.texts = map[string]string{}
	seen := map[string]bool{}
	for _, folder := range append(slices.Clone(folders), m.dir) {
		for at := folder; !seen[at] && within(m.dir, at); at = filepath.Dir(at) {
			seen[at] = true
			if err := m.readFolder(at); err != nil {
				return err
			}
		}
	}
	ids := map[string]bool{}
	for name, text := range m.texts {
		if !licence.MatchString(filepath.Base(name)) || documentation.MatchString(name) {
			continue
		}
		found := spdx(text)
		if len(found) == 0 {
			return fmt.Errorf("%s %s: the licence in %s is none that is known here: read it, and teach it to this tool", m.path, m.version, name)
		}
		for _, id := range found {
			ids[id] = true
		}
	}
	for id := range ids {
		m.ids = append(m.ids, id)
	}
	slices.Sort(m.ids)
	if len(m.ids) == 0 {
		return fmt.Errorf("%s %s has no licence: it must not be in a release", m.path, m.version)
	}
	return nil
}

func within(root, dir string) bool {
	rel, err := filepath.Rel(root, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func (m *module) readFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.path, err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !legal.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		rel, err := filepath.Rel(m.dir, filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts[filepath.ToSlash(rel)] = string(raw)
	}
	return nil
}

var space = regexp.MustCompile(`\s+`)

// spdx are the licences in a text, by what only they say. More than one may be there.
func spdx(text string) (ids []string) {
	t := strings.ToLower(space.ReplaceAllString(text, " "))
	has := func(s string) bool { return strings.Contains(t, s) }
	for _, known := range []struct {
		id    string
		there bool
	}{
		{"Apache-2.0", has("apache license version 2.0") || has("apache license, version 2.0")},
		{"BSD-2-Clause", has("redistribution and use in source and binary forms") && !has("endorse or promote products")},
		{"BSD-3-Clause", has("redistribution and use in source and binary forms") && has("endorse or promote products")},
		{"ISC", has("permission to use, copy, modify, and/or distribute this software") || has("permission to use, copy, modify, and distribute this software")},
		{"MIT", has("permission is hereby granted, free of charge, to any person obtaining a copy")},
		{"MPL-2.0", has("mozilla public license version 2.0") || has("mozilla public license, version 2.0")},
	} {
		if known.there {
			ids = append(ids, known.id)
		}
	}
	return ids
}
