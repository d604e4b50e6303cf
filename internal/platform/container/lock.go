package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/internal/fleet"
)

func lockFile(root string) string {
	return filepath.Join("/", root, fleet.DefaultDataDir, fleet.FileLock)
}

// Lock takes the data volume for a k3s of a role: a record lock that lasts as long as the process, k3s's time included,
// and says who has it otherwise. It is fcntl's and no flock: a flock belongs to the
// open file, which k3s's children inherit, and a container shim that outlives k3s
// would hold the volume for ever. A record lock is the process's own and ends with
// it, killed or not.
//
// The file stays open over the exec, because closing it anywhere in the process ends
// the lock. Before Linux 5.11 an exec gives a process with more than one thread
// another file table, and the lock is lost with the old one; so this thread, which
// executes k3s, takes a table of its own first.
func Lock(root string, role fleet.Role) (by string, err error) {
	path := lockFile(root)
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
		by := holder(fd)
		_ = unix.Close(fd)
		return by, nil
	case err != nil:
		_ = unix.Close(fd)
		return "", fmt.Errorf("lock %s: %w", path, err)
	}
	// For the sentence of the other one; on a full disk it has none.
	_ = unix.Ftruncate(fd, 0)
	_, _ = unix.Pwrite(fd, []byte(string(role)+"\n"), 0)
	return "", nil
}

// Locked says whose k3s has the data volume, empty for nobody. It sees one in any
// container of this machine, of whatever project. Of this process itself it says nothing.
func Locked(root string) (by string, err error) {
	path := lockFile(root)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "", nil // no k3s was ever started on it by an entrypoint
	case err != nil:
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l); err != nil {
		return "", fmt.Errorf("lock of %s: %w", path, err)
	}
	if l.Type == unix.F_UNLCK {
		return "", nil
	}
	return holder(fd), nil
}

// holder is what the one who has the lock has written there.
func holder(fd int) string {
	who := make([]byte, 16)
	n, _ := unix.Pread(fd, who, 0)
	if by, ok := strings.CutSuffix(string(who[:max(n, 0)]), "\n"); ok {
		return by
	}
	return "of either role"
}
