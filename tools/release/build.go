package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// arch is one kind of machine by its names.
type arch struct {
	goarch, goarm string
	// name is that in file names; nfpm its name in the library that makes packages.
	name, nfpm string
}

var arches = []arch{
	{goarch: "amd64", name: "amd64", nfpm: "amd64"},
	{goarch: "arm64", name: "arm64", nfpm: "arm64"},
	{goarch: "arm", goarm: "7", name: "armv7", nfpm: "arm7"},
}

const program = "github.com/exadev/regrade/internal/cli.Version"

// build compiles a program for a kind of machine. Nothing of the machine that does it is
// in the result: no paths (-trimpath), no state of its checkout (-buildvcs), no C
// compiler's work, and none of the builder's settings.
func build(ctx context.Context, dir, pkg, version, to string, a arch, more ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X "+program+"="+version, "-o", to, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+a.goarch, "GOARM="+a.goarm, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Env = append(cmd.Env, more...)
	_, err := output(cmd)
	return err
}

// binary is where the one for a kind of machine is staged.
func (r *release) binary(a arch) string { return filepath.Join(r.stage, a.name, "regrade") }

func (r *release) binaries(ctx context.Context) error {
	for _, a := range r.arches {
		if err := build(ctx, r.Dir, "./cmd/regrade", r.Version, r.binary(a), a); err != nil {
			return err
		}
	}
	return nil
}

// again builds the amd64 binary once more, in another folder and with an empty cache: the
// release's must be the one that anybody gets from the commit.
func (r *release) again(ctx context.Context) error {
	switch {
	case r.Dirty:
		_, _ = fmt.Fprintln(r.out, "not built again to compare: the tree has changes")
		return nil
	case r.arches[0].name != arches[0].name:
		_, _ = fmt.Fprintln(r.out, "not built again to compare: that is done with amd64")
		return nil
	}
	want, err := sumOf(r.binary(arches[0]))
	if err != nil {
		return err
	}
	got, err := afresh(ctx, r.Source, "another/folder")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(r.out, "%s  regrade amd64, and again from another folder\n", want)
	if got != want {
		return fmt.Errorf("%s: built again from %s the binary is %s, and not %s", arches[0].name, r.Commit, got, want)
	}
	return nil
}

// twice builds the amd64 binary in two folders with an empty cache each, and compares.
func twice(ctx context.Context, s Source, out io.Writer) error {
	var sums []string
	for _, name := range []string{"one", "another/and-a-longer-one"} {
		sum, err := afresh(ctx, s, name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s  %s regrade amd64, built in %s\n", sum, s.Version, name)
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("two builds of %s differ", s.Commit)
	}
	return nil
}

// afresh is the sum of a binary built from the commit, in a folder and with a cache of
// its own.
func afresh(ctx context.Context, s Source, name string) (string, error) {
	work, err := os.MkdirTemp("", "regrade-reproduce-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	tree := filepath.Join(work, name)
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return "", err
	}
	archive, err := output(exec.CommandContext(ctx, "git", "-C", s.Dir, "archive", "--format=tar", s.Commit))
	if err != nil {
		return "", err
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", tree)
	unpack.Stdin = bytes.NewReader(archive)
	if _, err := output(unpack); err != nil {
		return "", err
	}
	to := filepath.Join(work, "regrade")
	if err := build(ctx, tree, "./cmd/regrade", s.Version, to, arches[0], "GOCACHE="+filepath.Join(work, "cache")); err != nil {
		return "", err
	}
	return sumOf(to)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
