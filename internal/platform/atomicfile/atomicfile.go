// Package atomicfile writes and deletes small files so that a reader, and the
// host after a power loss, sees the old content or the new, never half of it:
// temporary file, fsync, rename, fsync of the folder.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write makes path hold content with the mode. Missing folders are made with
// 0755. A file that already holds just that is left alone.
func Write(path string, content []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode.Perm() {
			return nil
		}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := replace(path, dir, content, mode); err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // without the temporary name: the same trouble reads the same each time
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Sync(dir)
}

// replace is renameio.WriteFile, which would keep the mode of a file that is there.
func replace(path, dir string, content []byte, mode fs.FileMode) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// Remove deletes path; one that is not there is no error.
func Remove(path string) error {
	err := os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("delete: %w", err)
	}
	return Sync(filepath.Dir(path))
}

// Sync makes the names in a folder durable.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
