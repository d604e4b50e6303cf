package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	root := fs.String("C", ".", "the checkout")
	version := fs.String("version", "", "of the release, like v1.2.3 or v1.2.3-rc.1")
	dirty := fs.Bool("dirty", false, "also from a tree with changes, to try it")
	only := fs.String("only", "", "the one kind of machine to make it for, to try it: amd64, arm64 or armv7")
	reproduce := fs.Bool("reproduce", false, "only build amd64 twice, in two folders with caches of their own, and compare")
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	s, err := open(ctx, dir, *version, *dirty)
	if err != nil {
		return err
	}
	if *reproduce {
		return twice(ctx, s, out)
	}
	r := &release{Source: s, arches: arches, dist: filepath.Join(dir, "dist"), out: out}
	if *only != "" {
		r.arches = slices.DeleteFunc(slices.Clone(arches), func(a arch) bool { return a.name != *only })
		if len(r.arches) == 0 {
			return fmt.Errorf("-only %q: want amd64, arm64 or armv7", *only)
		}
	}
	return r.make(ctx)
}

// release is one run: its source and the files that it has made.
type release struct {
	Source
	arches []arch
	dist   string
	out    io.Writer
	// stage holds what goes into packages and archives; it is taken away at the end.
	stage string
}

// make makes everything anew.
func (r *release) make(ctx context.Context) error {
	// Files of another version beside these would be taken for this one's.
	if err := os.RemoveAll(r.dist); err != nil {
		return fmt.Errorf("empty the folder: %w", err)
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	var err error
	if r.stage, err = os.MkdirTemp("", "regrade-release-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.stage) }()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"binaries", r.binaries},
		{"notices and bills of materials", r.notices},
		{"completions and man pages", r.pages},
		{"archives", r.archives},
		{"deb and rpm", r.packages},
		{"images", r.images},
		{"chart", r.chart},
		{"sums", r.sums},
		{"the same again", r.again},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		_, _ = fmt.Fprintf(r.out, "%-32s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
	return r.list()
}

// list says what there is.
func (r *release) list() error {
	entries, err := os.ReadDir(r.dist)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(r.out, "%8.1f MiB  dist/%s\n", float64(info.Size())/(1<<20), e.Name())
	}
	return nil
}
