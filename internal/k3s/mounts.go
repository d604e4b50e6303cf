package k3s

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mountInfo lists the mounts that this process sees (proc(5)).
const mountInfo = "/proc/self/mountinfo"

// DatastoreProblem says why the datastore could not be moved aside, empty when
// nothing speaks against it. The move is a rename (safety rule 14): a mount
// point cannot be renamed, and one below the datastore would go along, so that
// the next boot mounts nothing where k3s looks. server/db itself may be a mount:
// then the move stays in it.
func (d Disk) DatastoreProblem() string {
	db := d.real("server", db)
	mounts, err := d.mounts()
	if err != nil {
		return err.Error()
	}
	for _, m := range mounts {
		rest, ok := strings.CutPrefix(m, db+"/")
		if !ok {
			continue
		}
		if name, _, _ := strings.Cut(rest, "/"); !slices.Contains(kept, name) {
			return m + " is a mount point: the datastore cannot be moved aside; mount the disk at " + db + " instead"
		}
	}
	return ""
}

// mounted says whether a folder of the data folder is a mount point.
func (d Disk) mounted(elem ...string) (bool, error) {
	mounts, err := d.mounts()
	return slices.Contains(mounts, d.real(elem...)), err
}

// real is a path below the data folder as the mount list spells it: without the
// root, links resolved.
func (d Disk) real(elem ...string) string {
	path := d.Path(elem...)
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	root := d.at("/")
	if to, err := filepath.EvalSymlinks(root); err == nil {
		root = to
	}
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); ok {
		return "/" + rest
	}
	return path
}

// mounts are the mount points. No list is none: that is a root without /proc.
func (d Disk) mounts() ([]string, error) {
	raw, err := os.ReadFile(d.at(mountInfo))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mount points: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 4 {
			out = append(out, unescape.Replace(f[4]))
		}
	}
	return out, nil
}

// unescape undoes what the kernel does to a path in that list.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
