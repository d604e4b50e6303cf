package entrypoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/obs"
)

// alone takes the data volume for the k3s that this process becomes. The role files
// let one role start; they do not stop one that runs, and somebody may have written
// another role beside it. Of two k3s on one volume each would ruin the other's files.
//
// A volume that cannot be locked (a full disk, a file system without locks) keeps no
// voter down: the role files have let it start.
func alone(root string, role fleet.Role, d Decision, log *slog.Logger) Decision {
	by, err := lock(filepath.Join("/", root, fleet.DefaultDataDir, fleet.FileLock), role)
	switch {
	case err != nil:
		log.Warn("the data volume is not locked", obs.Err, err)
	case by != "":
		return Decision{Kind: Idle, Why: fmt.Sprintf("k3s %s runs on this data volume, in another container: stop that first", by)}
	}
	return d
}

// lock takes a record lock that lasts as long as the process, k3s's time included,
// and says who has it otherwise. It is fcntl's and no flock: a flock belongs to the
// open file, which k3s's children inherit, and a container shim that outlives k3s
// would hold the volume for ever. A record lock is the process's own and ends with
// it, killed or not.
//
// The file stays open over the exec, because closing it anywhere in the process ends
// the lock. Before Linux 5.11 an exec gives a process with more than one thread
// another file table, and the lock is lost with the old one; so this thread, which
// executes k3s, takes a table of its own first.
func lock(path string, role fleet.Role) (by string, err error) {
	runtime.LockOSThread()
	_ = unix.Unshare(unix.CLONE_FILES) // where it is forbidden a newer kernel needs none
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		who := make([]byte, 16)
		n, _ := unix.Pread(fd, who, 0)
		_ = unix.Close(fd)
		if by, ok := strings.CutSuffix(string(who[:max(n, 0)]), "\n"); ok {
			return by, nil
		}
		return "of either role", nil
	case err != nil:
		_ = unix.Close(fd)
		return "", fmt.Errorf("lock %s: %w", path, err)
	}
	// For the sentence of the other one; on a full disk it has none.
	_ = unix.Ftruncate(fd, 0)
	_, _ = unix.Pwrite(fd, []byte(string(role)+"\n"), 0)
	return "", nil
}
