package k3s

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// Disk is k3s's files on one host.
type Disk struct {
	// Root is put before every absolute path; empty is the host itself.
	Root string
	// DataDir is k3s's --data-dir; empty is fleet.DefaultDataDir.
	DataDir string
	// ServerConfig is the server's configuration file, which may put snapshots
	// elsewhere (etcd-snapshot-dir); empty is k3s's own place.
	ServerConfig string
}

func (d Disk) at(path string) string { return filepath.Join("/", d.Root, path) }

// Path is a path below the data folder, with the root.
func (d Disk) Path(elem ...string) string {
	dir := d.DataDir
	if dir == "" {
		dir = fleet.DefaultDataDir
	}
	return d.at(filepath.Join(append([]string{dir}, elem...)...))
}

// Datastore is what the datastore's folder says (k3s-facts §2).
type Datastore struct {
	// Exists: there is something a server would start on, or that an earlier
	// MoveAside has not finished with.
	Exists bool
	// WAL: server/db/etcd/member/wal is there, which alone means "initialised".
	WAL       bool
	Tombstone bool
	// Name is the member name, kept for the member's life.
	Name string
	// Certs: the client certificate for etcd is there.
	Certs bool
}

// names in server/.
const (
	db      = "db"
	aside   = "db.demoted"
	halfway = "db.demoted.new"
)

// places are where the datastore goes: beside server/db, or in it where that is
// a disk or a mount of its own, because a rename does not cross from one to
// another, not even between two mounts of one disk.
func (d Disk) places() (half, to string, err error) {
	own, err := d.mounted("server", db)
	if in, out, ok := devices(d.Path("server", db), d.Path("server")); ok && in != out {
		own = true
	}
	if own {
		return d.Path("server", db, halfway), d.Path("server", db, aside), err
	}
	return d.Path("server", halfway), d.Path("server", aside), err
}

// devices are the file systems that two folders are on.
func devices(a, b string) (x, y uint64, ok bool) {
	var s, t syscall.Stat_t
	if syscall.Stat(a, &s) != nil || syscall.Stat(b, &t) != nil {
		return 0, 0, false
	}
	return s.Dev, t.Dev, true
}

// kept stay in db when the datastore goes (safety rule 14).
var kept = []string{".metadata", "snapshots", aside, halfway, "lost+found"}

// ReadDatastore looks.
func (d Disk) ReadDatastore() (Datastore, error) {
	var s Datastore
	var err error
	look := func(elem ...string) bool {
		var there bool
		if err == nil {
			there, err = exists(d.Path(elem...))
		}
		return there
	}
	if s.WAL, s.Tombstone, err = d.Initialised(); err != nil {
		return Datastore{}, err
	}
	s.Exists = look("server", db, "etcd") || look("server", halfway) || look("server", db, halfway)
	s.Certs = look("server", "tls", "etcd", "client.crt") && look("server", "tls", "etcd", "client.key")
	if err != nil {
		return Datastore{}, fmt.Errorf("datastore: %w", err)
	}
	raw, err := os.ReadFile(d.Path("server", db, "etcd", "name"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotDir) {
		return Datastore{}, fmt.Errorf("member name: %w", err)
	}
	s.Name = strings.TrimSpace(string(raw))
	return s, nil
}

// Initialised is the part of it that decides whether a server may start (safety
// rules 12 and 19): there is a WAL; there is a tombstone.
func (d Disk) Initialised() (wal, tombstone bool, err error) {
	if wal, err = exists(d.Path("server", db, "etcd", "member", "wal")); err == nil {
		tombstone, err = exists(d.Path("server", db, "etcd", "tombstone"))
	}
	if err != nil {
		return false, false, fmt.Errorf("datastore: %w", err)
	}
	return wal, tombstone, nil
}

// Demoted says that a datastore was moved aside here, or half moved: this host
// was a member (R-A-11).
func (d Disk) Demoted() (bool, error) {
	for _, dir := range [][]string{{"server", aside}, {"server", halfway}, {"server", db, aside}, {"server", db, halfway}} {
		if there, err := exists(d.Path(dir...)); err != nil || there {
			if err != nil {
				err = fmt.Errorf("datastore moved aside: %w", err)
			}
			return there, err
		}
	}
	return false, nil
}

// MoveAside moves what is in server/db, all but snapshots and their metadata,
// to server/db.demoted (server/db/db.demoted where db is a disk of its own), and
// keeps one such copy. It is done piece by piece into
// a folder of another name, the etcd folder last, so that a crash anywhere
// leaves a state that Exists shows and that the next call goes on from. Where
// DatastoreProblem objects nothing is touched.
func (d Disk) MoveAside() error {
	from := d.Path("server", db)
	if p := d.DatastoreProblem(); p != "" {
		return fmt.Errorf("move datastore aside: %s", p)
	}
	half, to, err := d.places()
	if err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	names := []string{}
	for _, e := range entries {
		if !slices.Contains(kept, e.Name()) && e.Name() != "etcd" {
			names = append(names, e.Name())
		}
	}
	if there, err := exists(filepath.Join(from, "etcd")); err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	} else if there {
		names = append(names, "etcd")
	}
	halfThere, err := exists(half)
	if err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	if len(names) == 0 && !halfThere {
		return nil
	}
	if err := os.MkdirAll(half, 0o700); err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	if err := atomicfile.Sync(filepath.Dir(half)); err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(half, name)); err != nil {
			return fmt.Errorf("move datastore aside: %w", err)
		}
		if err := os.Rename(filepath.Join(from, name), filepath.Join(half, name)); err != nil {
			return fmt.Errorf("move datastore aside: %w", err)
		}
	}
	if err := errors.Join(atomicfile.Sync(half), os.RemoveAll(to)); err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	if err := os.Rename(half, to); err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	return atomicfile.Sync(filepath.Dir(to))
}

// snapshots is the folder that SnapshotCommand saves to. A configuration that
// cannot be read names none: the command fails on it and says why.
func (d Disk) snapshots() string {
	if d.ServerConfig != "" {
		if c, err := d.ReadConfig(d.ServerConfig); err == nil && filepath.IsAbs(c.Get("etcd-snapshot-dir")) {
			return d.at(c.Get("etcd-snapshot-dir"))
		}
	}
	return d.Path("server", db, "snapshots")
}

// OwnSnapshots are the files of regrade's own etcd snapshots, oldest first. The
// swap in a name tells the API server's time, the seconds at its end this host's
// (k3s-facts §8), which a clock that was put right may have made older than those
// of the snapshot before; where both are alike the file's own time decides.
func (d Disk) OwnSnapshots() ([]string, error) {
	entries, err := os.ReadDir(d.snapshots())
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotDir) {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, ok := snapshotSeconds(e.Name()); ok && strings.HasPrefix(e.Name(), fleet.SnapshotPrefix) {
			names = append(names, e.Name())
		}
	}
	written := map[string]time.Time{}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(d.snapshots(), name)); err == nil {
			written[name] = info.ModTime()
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		x, _ := snapshotSeconds(a)
		y, _ := snapshotSeconds(b)
		return cmp.Or(snapshotSwap(a).Compare(snapshotSwap(b)), cmp.Compare(x, y), written[a].Compare(written[b]), strings.Compare(a, b))
	})
	return names, nil
}

// snapshotSwap is when the swap of a snapshot's name began, zero in a name that
// tells none.
func snapshotSwap(name string) time.Time {
	return fleet.SwapID(strings.TrimPrefix(name, fleet.SnapshotPrefix)).Started()
}

// snapshotSeconds is the time in a finished snapshot's name; one being written
// ends in .part.
func snapshotSeconds(name string) (int64, bool) {
	name = strings.TrimSuffix(name, ".zip")
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	return n, err == nil && n >= 0
}

// PruneSnapshots deletes the oldest of regrade's own etcd snapshots and their
// metadata, and keeps the newest.
func (d Disk) PruneSnapshots(keep int) error {
	names, err := d.OwnSnapshots()
	if err != nil {
		return err
	}
	dir := d.snapshots()
	for len(names) > keep {
		if err := atomicfile.Remove(filepath.Join(dir, names[0])); err != nil {
			return fmt.Errorf("prune snapshots: %w", err)
		}
		if err := os.Remove(filepath.Join(filepath.Dir(dir), ".metadata", names[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prune snapshots: %w", err)
		}
		names = names[1:]
	}
	return nil
}

// SnapshotCommand are the arguments that take an etcd snapshot (R-D1-28).
func (d Disk) SnapshotCommand(config, base string) []string {
	return []string{"etcd-snapshot", "save", "--config", config, "--data-dir", d.Path(), "--name", base}
}

// ReadFile reads a file below the root; one that is not there is nil.
func (d Disk) ReadFile(path string) ([]byte, error) {
	raw, err := os.ReadFile(d.at(path))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return nil, nil
	}
	return raw, err
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotDir):
		return false, nil
	}
	return false, err
}
