package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const debianSuite = "bookworm"

// rootfsEdition changes when what [finishRootfs] does changes, so that an older cached tree is not taken.
const rootfsEdition = "5"

// basePackages are on every host. iputils-ping is for the lab's own checks; the sshd runs only where a scenario wants it.
var basePackages = []string{
	"ca-certificates", "dbus", "iproute2", "iptables", "iputils-ping", "kmod", "openssh-server", "procps", "systemd", "systemd-sysv",
}

// CacheDir is where trees and binaries are kept between runs: regrade-lab below the user's cache folder.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		// A service of a test machine may have no HOME.
		base = "/var/cache"
	}
	dir := filepath.Join(base, "regrade-lab")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the lab's cache: %w", err)
	}
	return dir, nil
}

// LockCache takes the lock that covers building what is kept under name, and waits for it. The caller closes the file.
func LockCache(name string) (*os.File, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the lab's cache: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock the lab's cache: %w", err)
	}
	return file, nil
}

// EnsureRootfs gives the folder of the Debian tree with the given packages besides the usual ones, building it on first
// use (about 80 s). The tree is read-only by agreement: hosts use it as the lower layer of an overlay.
func EnsureRootfs(ctx context.Context, extra []string, logf func(string, ...any)) (string, error) {
	packages := slices.Concat(basePackages, extra)
	slices.Sort(packages)
	packages = slices.Compact(packages)
	sum := sha256.Sum256([]byte(rootfsEdition + " " + debianSuite + " " + strings.Join(packages, " ")))
	name := "rootfs-" + hex.EncodeToString(sum[:6])

	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	lock, err := LockCache(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()

	tree := filepath.Join(cache, name)
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	logf("lab: building the hosts' Debian (%s), once, about 80 s", name)
	building := tree + ".building"
	if err := discardTree(building); err != nil {
		return "", err
	}
	debs := filepath.Join(cache, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return "", fmt.Errorf("build the hosts' Debian: %w", err)
	}
	argv := []string{"--variant=minbase", "--cache-dir=" + debs, "--include=" + strings.Join(packages, ","), debianSuite, building}
	if mirror := os.Getenv("LAB_MIRROR"); mirror != "" {
		argv = append(argv, mirror)
	}
	result, err := run(ctx, exec.CommandContext(ctx, "debootstrap", argv...))
	if err != nil {
		return "", fmt.Errorf("build the hosts' Debian: %w", err)
	}
	if err := result.Err(); err != nil {
		tail := result.Stdout[max(0, len(result.Stdout)-1500):]
		return "", fmt.Errorf("build the hosts' Debian: debootstrap: %w\n%s", err, tail)
	}
	// debootstrap leaves proc mounted where it could not unmount it.
	if err := unmountBelow(building); err != nil {
		return "", err
	}
	if err := finishRootfs(building); err != nil {
		return "", fmt.Errorf("build the hosts' Debian: %w", err)
	}
	if err := os.Rename(building, tree); err != nil {
		return "", fmt.Errorf("build the hosts' Debian: %w", err)
	}
	return tree, nil
}

// masked units do nothing of use on a test host, or do it at a bad time.
var masked = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "console-getty.service",
	"systemd-journald-audit.socket", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "e2scrub_reap.service",
	"systemd-timesyncd.service", "systemd-resolved.service", "systemd-networkd.service", "systemd-pstore.service", "remote-fs.target",
	"modprobe@.service", "systemd-modules-load.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount",
	"sys-fs-fuse-connections.mount", "dev-hugepages.mount", "systemd-logind.service", "systemd-user-sessions.service",
	"systemd-remount-fs.service", "systemd-initctl.socket", "ssh.service",
}

// prepareScript is what a real k3s needs of a host under cgroup v1 before any pod starts: each controller, /sys and
// /proc/sys writable, mounts shared. A plain remount of a controller is refused as busy, hence bind.
const prepareScript = `#!/bin/sh
mount -o remount,bind,rw /sys 2>/dev/null
mount -o remount,bind,rw /proc/sys 2>/dev/null
for d in /sys/fs/cgroup /sys/fs/cgroup/*; do
	mountpoint -q "$d" && mount -o remount,bind,rw "$d" 2>/dev/null
done
mount --make-rshared /
exit 0
`

const prepareUnit = `[Unit]
Description=Make this test host writable for containers
DefaultDependencies=no
After=local-fs.target
Before=k3s.service k3s-agent.service
# Slow, and of no use to a host whose k3s runs no containers.
ConditionPathExists=/etc/lab/containers

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/lab/prepare

[Install]
WantedBy=multi-user.target
`

func finishRootfs(tree string) error {
	files := map[string]string{
		"etc/systemd/journald.conf.d/lab.conf":   "[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\nSystemMaxUse=200M\nForwardToSyslog=no\nReadKMsg=no\n",
		"etc/systemd/system/lab-prepare.service": prepareUnit,
		"usr/local/lib/lab/prepare":              prepareScript,
		"etc/resolv.conf":                        "",
		// The address comes with the namespace.
		"etc/network/interfaces": "",
	}
	for name, content := range files {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			return err
		}
	}
	units := filepath.Join(tree, "etc/systemd/system")
	for _, unit := range masked {
		path := filepath.Join(units, unit)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.Symlink("/dev/null", path); err != nil {
			return err
		}
	}
	wants := filepath.Join(units, "multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	link := filepath.Join(wants, "lab-prepare.service")
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	if err := os.Symlink("/etc/systemd/system/lab-prepare.service", link); err != nil {
		return err
	}
	for _, dir := range []string{"var/log/journal", "var/lib/rancher", "var/lib/kubelet", "etc/rancher/k3s"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return err
		}
	}
	// Otherwise each host's first boot makes its library cache, users and message catalogues again.
	for _, stamp := range []string{"etc/.updated", "var/.updated"} {
		if err := os.WriteFile(filepath.Join(tree, stamp), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}
