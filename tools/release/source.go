package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Source is what a release is made from.
type Source struct {
	// Dir is the checkout, Version like v1.2.3, Commit its full hash.
	Dir, Version, Commit string
	// Dirty: the tree has changes, which are not the commit's.
	Dirty bool
	// Time stands in every file: that of the commit, or of SOURCE_DATE_EPOCH.
	Time time.Time
}

// versions are Go's, and also those of packages and charts.
var versions = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z][0-9A-Za-z.]*)?$`)

// Number is the version without its v.
func (s Source) Number() string { return strings.TrimPrefix(s.Version, "v") }

// open looks at a checkout. A tree with changes is no source: nobody could make the
// same files from the commit.
func open(ctx context.Context, dir, version string, dirty bool) (Source, error) {
	if !versions.MatchString(version) {
		return Source{}, fmt.Errorf("VERSION %q: want one like v1.2.3 or v1.2.3-rc.1", version)
	}
	s := Source{Dir: dir, Version: version}
	var err error
	if s.Commit, err = git(ctx, dir, "rev-parse", "HEAD"); err != nil {
		return Source{}, err
	}
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return Source{}, err
	}
	s.Dirty = changes != ""
	if s.Dirty && !dirty {
		return Source{}, fmt.Errorf("the tree has changes, commit them first:\n%s", changes)
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = git(ctx, dir, "log", "-1", "--format=%ct"); err != nil {
			return Source{}, err
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: %w", seconds, err)
	}
	s.Time = time.Unix(n, 0).UTC()
	return s, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := output(exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...))
	return strings.TrimSpace(string(out)), err
}

// output runs a command; its error has what it said.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return out, nil
}
