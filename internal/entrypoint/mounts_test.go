package entrypoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestWhatIsMountedReadOnlyInAContainerWithoutPrivileges(t *testing.T) {
	const info = `600 590 0:100 / / rw,relatime - overlay overlay rw
601 600 0:101 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
602 601 0:101 /sys /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc rw
603 600 0:103 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
604 603 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw
605 603 0:31 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
606 603 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
607 600 8:1 /roles /etc/github-runner ro,relatime - ext4 /dev/sda1 rw
608 601 0:101 /bus /proc/bus ro - proc proc rw
broken
`
	all := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME)
	want := []mount{{"/proc/sys", all}, {"/sys", all}, {"/sys/fs/cgroup", all}, {"/sys/fs/cgroup/memory", 0}}
	if diff := cmp.Diff(want, readOnly(info), cmp.AllowUnexported(mount{})); diff != "" {
		t.Error(diff)
	}
}
