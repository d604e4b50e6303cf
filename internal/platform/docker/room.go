package docker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// copyProblem says why a folder of the identity could not be copied, empty when
// nothing speaks against it. It is asked long before the copy, in which the host has
// no role: what cannot be read, and a volume that is full, are named while a swap can
// still be refused. A copy that fails in spite of it changes nothing (tree.go).
func copyProblem(from, to string) string {
	need, err := readable(from)
	if err != nil {
		return fmt.Sprintf("cannot be read: %v", err)
	}
	var s syscall.Statfs_t
	if syscall.Statfs(to, &s) != nil || s.Blocks == 0 || s.Bsize <= 0 {
		return "" // it says nothing of its room
	}
	if room := s.Bavail * uint64(s.Bsize); room < need {
		return fmt.Sprintf("has no room where it is copied to: %d KiB are free, and it takes %d", room>>10, need>>10)
	}
	return ""
}

// page is what a file takes at least, its entry and its owner's bits included.
const page = 4 << 10

// readable reads the beginning of each file that a copy would take, and says how much
// room a copy needs.
func readable(from string) (need uint64, err error) {
	first := make([]byte, 1)
	err = filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Dir(path) == filepath.Clean(from) && notCopied(e.Name()):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		need += page
		if !e.Type().IsRegular() {
			return nil
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close() //nolint:errcheck // only read
		info, err := in.Stat()
		if err != nil {
			return err
		}
		if _, err := in.Read(first); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		need += (uint64(info.Size()) + page - 1) / page * page
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return need, nil // it went in between: a running k3s writes there
	}
	return need, err
}
