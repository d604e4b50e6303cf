package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // the format
)

// kinds of package, and where each has zsh's completions.
var kinds = map[string]string{
	"deb": "/usr/share/zsh/vendor-completions/_regrade",
	"rpm": "/usr/share/zsh/site-functions/_regrade",
}

// packages makes deb and rpm for each kind of machine. Nothing in them is started or
// enabled by being installed; the scripts are in deploy/package.
func (r *release) packages(context.Context) error {
	for _, a := range r.arches {
		for kind := range kinds {
			if err := r.onePackage(kind, a); err != nil {
				return fmt.Errorf("%s %s: %w", kind, a.name, err)
			}
		}
	}
	return nil
}

func (r *release) onePackage(kind string, a arch) error {
	contents, err := r.contents(kind, a)
	if err != nil {
		return err
	}
	script := func(name string) string { return filepath.Join(r.Dir, "deploy/package", name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "regrade", Arch: a.nfpm, Platform: "linux", Version: r.Version, Release: "1", Section: "admin", Priority: "optional",
		Maintainer:  "the regrade project <regrade@exadev.com>",
		Description: "Keeps a k3s cluster's etcd votes on its fittest hosts\nHost daemon and commands of regrade. Installing it changes nothing on a host;\nregrade host setup does.",
		Vendor:      "exadev", Homepage: "https://github.com/exadev/regrade", License: "Apache-2.0", MTime: r.Time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts:  nfpm.Scripts{PostInstall: script("postinstall"), PreRemove: script("preremove"), PostRemove: script("postremove")},
			RPM:      nfpm.RPM{BuildHost: "regrade", Compression: "gzip:9", Summary: "Keeps a k3s cluster's etcd votes on its fittest hosts"},
			Deb:      nfpm.Deb{Compression: "gzip:9"},
		},
	})
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	to := filepath.Join(r.dist, packager.ConventionalFileName(info))
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := packager.Package(info, f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// contents of a package: the program where the units ask for it, the daemon's unit,
// pages, licences, and what people copy by hand.
func (r *release) contents(kind string, a arch) (files.Contents, error) {
	out := files.Contents{
		entry(r.binary(a), "/usr/local/bin/regrade", 0o755),
		entry(filepath.Join(r.Dir, "deploy/units/regrade-host.service"), "/usr/lib/systemd/system/regrade-host.service", 0o644),
		entry(filepath.Join(r.stage, "completions/regrade.bash"), "/usr/share/bash-completion/completions/regrade", 0o644),
		entry(filepath.Join(r.stage, "completions/_regrade"), kinds[kind], 0o644),
		entry(filepath.Join(r.stage, "completions/regrade.fish"), "/usr/share/fish/vendor_completions.d/regrade.fish", 0o644),
		entry(filepath.Join(r.stage, noticesFile), "/usr/share/doc/regrade/"+noticesFile, 0o644),
	}
	if kind == "deb" {
		out = append(out, entry(filepath.Join(r.Dir, "LICENSE"), "/usr/share/doc/regrade/copyright", 0o644))
	} else {
		out = append(out, entry(filepath.Join(r.Dir, "LICENSE"), "/usr/share/licenses/regrade/LICENSE", 0o644))
	}
	pages, err := r.manPages()
	if err != nil {
		return nil, err
	}
	out = append(out, pages...)
	for _, dir := range []string{"units", "compose", "monitoring"} {
		tree, err := readTree(filepath.Join(r.Dir, "deploy", dir), "")
		if err != nil {
			return nil, err
		}
		for _, f := range tree {
			out = append(out, entry(filepath.Join(r.Dir, "deploy", dir, f.name), path.Join("/usr/share/doc/regrade", dir, f.name), f.mode))
		}
	}
	return out, nil
}

// manPages are compressed, as every distribution has them.
func (r *release) manPages() (out files.Contents, err error) {
	pages, err := readTree(filepath.Join(r.stage, "man"), "")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.stage, "man.gz")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range pages {
		raw, err := zipped(p.content)
		if err != nil {
			return nil, err
		}
		from := filepath.Join(dir, p.name+".gz")
		if err := os.WriteFile(from, raw, 0o644); err != nil {
			return nil, err
		}
		out = append(out, entry(from, "/usr/share/man/man1/"+strings.TrimSuffix(p.name, ".gz")+".gz", 0o644))
	}
	return out, nil
}

func entry(from, to string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
}
