package entrypoint

import (
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/internal/obs"
)

// openMounts makes writable what an engine mounts read-only in a container that
// is not privileged, and without which a kubelet makes no pod: the cgroup
// hierarchies, /sys and /proc/sys. It takes CAP_SYS_ADMIN, which the container
// has for k3s anyway; a privileged one finds nothing to do. A mount that stays
// read-only is k3s's to complain of.
//
// Only the first process of a container may do this: anywhere else these mounts
// are the host's.
func openMounts(log *slog.Logger) {
	if os.Getpid() != 1 {
		return
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.Warn("mounts not read", obs.Err, err)
		return
	}
	for _, m := range readOnly(string(raw)) {
		if err := unix.Mount("", m.path, "", unix.MS_REMOUNT|unix.MS_BIND|m.flags, ""); err != nil {
			log.Warn("a mount stays read-only", obs.Path, m.path, obs.Err, err)
		}
	}
}

type mount struct {
	path  string
	flags uintptr // its other flags, which a remount would drop
}

// readOnly are the mounts to be opened (proc(5)), parents first.
func readOnly(mountinfo string) []mount {
	var out []mount
	for line := range strings.Lines(mountinfo) {
		head, tail, ok := strings.Cut(line, " - ")
		f, kind := strings.Fields(head), strings.Fields(tail)
		if !ok || len(f) < 6 || len(kind) < 1 {
			continue
		}
		path, options := f[4], strings.Split(f[5], ",")
		wanted := kind[0] == "cgroup" || kind[0] == "cgroup2" || path == "/sys" || path == "/sys/fs/cgroup" || path == "/proc/sys"
		if !wanted || !slices.Contains(options, "ro") {
			continue
		}
		m := mount{path: path}
		for _, o := range options {
			m.flags |= mountFlags[o]
		}
		out = append(out, m)
	}
	return out
}

var mountFlags = map[string]uintptr{
	"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "relatime": unix.MS_RELATIME, "noatime": unix.MS_NOATIME,
}
