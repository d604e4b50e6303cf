package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// here is where this process sees a folder that the engine has at source, empty when
// it does not, and whether it may write there. A container's mounts last as long as
// it does.
func (h *Host) here(source string) (path string, writable bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.own) == 0 {
		return source, true // on the host itself
	}
	best := -1
	for _, m := range h.own {
		if rest, ok := below(source, m.Source); ok && len(m.Source) > best {
			best, path, writable = len(m.Source), filepath.Join(m.Target, rest), m.Writable
		}
	}
	return path, writable
}

// below says whether path is dir or in it, and the rest.
func below(path, dir string) (rest string, ok bool) {
	path, dir = filepath.Clean(path), filepath.Clean(dir)
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// source is where the engine has a folder of a container, empty when it is in no
// mount and so goes with the container.
func source(c Container, path string) string {
	best, to := -1, ""
	for _, m := range c.Mounts {
		if rest, ok := below(path, m.Target); ok && len(m.Target) > best {
			best, to = len(m.Target), filepath.Join(m.Source, rest)
		}
	}
	return to
}

// sameFolder says what keeps a folder of a container from being the one that this
// process has at own, empty when nothing does: two processes that look at two
// folders would each be right, and both k3s would run.
func (h *Host) sameFolder(c Container, path, own string) string {
	from := source(c, path)
	if from == "" {
		return "is not mounted at " + path
	}
	if there, _ := h.here(from); there != "" && sameFile(there, own) {
		return ""
	}
	return fmt.Sprintf("at %s, is %s, and this daemon's %s is another", path, from, own)
}

// sameFile compares by what the kernel says, so that links do not matter. A folder
// that does not exist yet is the same when its name is.
func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}
