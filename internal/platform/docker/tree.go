package docker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// partCopy is where a copy is made, in the folder that it is for: what is renamed
// must be on the same volume. No entrypoint starts an agent, or a server that has to join,
// while it is there.
const partCopy = fleet.FilePartCopy

// notCopied are not the identity: a part of an earlier copy, and what a file system
// makes by itself.
func notCopied(name string) bool { return name == partCopy || name == "lost+found" }

// copier copies folders. The zero value does; step is for tests: it is told of each
// thing about to be done and stops the copy there.
type copier struct{ step func(what string) error }

func (c copier) at(what string) error {
	if c.step == nil {
		return nil
	}
	return c.step(what)
}

// replace makes the folder to hold what from holds, owners, modes and times kept.
// All of it is written and synced beside the old before anything of the old is
// touched, so that a full disk changes nothing; then each entry is renamed over its
// predecessor, which needs no room. The part's own folder goes last: while it is
// there, the copy is not whole.
func (c copier) replace(from, to string) error {
	part := filepath.Join(to, partCopy)
	if err := c.build(from, to, part); err != nil {
		if c.step == nil {
			err = errors.Join(err, emptied(part)) // a full disk has room again
		}
		return err
	}
	entries, err := os.ReadDir(part)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	fresh := map[string]bool{}
	for _, e := range entries {
		fresh[e.Name()] = true
	}
	old, err := os.ReadDir(to)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for _, e := range old {
		if fresh[e.Name()] || notCopied(e.Name()) {
			continue
		}
		if err := c.at("delete old " + e.Name()); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(to, e.Name())); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	for _, e := range entries {
		if err := c.at("put " + e.Name()); err != nil {
			return err
		}
		if err := overwrite(filepath.Join(part, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	if err := c.at("sync"); err != nil {
		return err
	}
	if err := atomicfile.Sync(to); err != nil {
		return err
	}
	if err := c.at("delete the part"); err != nil {
		return err
	}
	if err := os.Remove(part); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return atomicfile.Sync(to)
}

func (c copier) build(from, to, part string) error {
	if err := c.at("begin"); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := emptied(part); err != nil {
		return err
	}
	if err := c.content(from, part, true); err != nil {
		return err
	}
	info, err := os.Lstat(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := c.at("owner"); err != nil {
		return err
	}
	return asItWas(to, info)
}

// emptied is a folder without content. It is not taken away for it: it says that the copy
// is not whole, from before its beginning to its end.
func emptied(dir string) error {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("copy: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	return nil
}

// content copies what a folder holds.
func (c copier) content(from, to string, top bool) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for _, e := range entries {
		if top && notCopied(e.Name()) {
			continue
		}
		if err := c.one(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return atomicfile.Sync(to)
}

func (c copier) one(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := c.at("copy " + filepath.Base(from)); err != nil {
		return err
	}
	switch info.Mode().Type() {
	case 0:
		err = file(from, to)
	case fs.ModeDir:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = c.content(from, to, false)
		}
	case fs.ModeSymlink:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default:
		return nil // a socket or a pipe is of a process, not of the host
	}
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return asItWas(to, info)
}

func file(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// asItWas gives a copy the owner, mode and time of what it is a copy of. The owner
// first: a change of owner takes set-id bits away.
func asItWas(path string, info fs.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("copy: %s: owner unknown", path)
	}
	if err := os.Lchown(path, int(s.Uid), int(s.Gid)); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return nil
	}
	if err := os.Chmod(path, info.Mode()); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

// overwrite renames over whatever is there. A file is replaced in one step; a folder
// has to go first.
func overwrite(from, to string) error {
	info, err := os.Lstat(to)
	if err == nil {
		fresh, err := os.Lstat(from)
		if err != nil {
			return err
		}
		if info.IsDir() || fresh.IsDir() {
			if err := os.RemoveAll(to); err != nil {
				return err
			}
		}
	}
	return os.Rename(from, to)
}
