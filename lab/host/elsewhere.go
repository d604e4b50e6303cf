package host

import (
	"path/filepath"
	"strings"
)

// elsewhere is a folder that programs of the host see at another path than the host itself.
type elsewhere struct{ seen, lies string }

// Elsewhere says where a folder lies that containers of this host see at another path: /var/lib/rancher/k3s, say, in the folder
// of a volume. ReadFile, Path and the like take the path that the containers see from then on. Commands do not.
func (h *Host) Elsewhere(seen, lies string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elsewhere = append(h.elsewhere, elsewhere{filepath.Clean(seen), filepath.Clean(lies)})
}

// folder gives the host's own path.
func (h *Host) folder(path string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	path = filepath.Clean("/" + path)
	for _, e := range h.elsewhere {
		if rest, below := strings.CutPrefix(path+"/", e.seen+"/"); below {
			return filepath.Join(e.lies, rest)
		}
	}
	return path
}

// seen is the way back of folder.
func (h *Host) seen(path string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.elsewhere {
		if rest, below := strings.CutPrefix(path+"/", e.lies+"/"); below {
			return filepath.Join(e.seen, rest)
		}
	}
	return path
}
