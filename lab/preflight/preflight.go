// Package preflight says whether this machine can run the lab's hosts, and installs the Debian packages they need.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/lab/host"
)

// tools the lab runs, each with the Debian package it comes from.
var tools = []struct{ command, pkg string }{
	{"debootstrap", "debootstrap"},
	{"systemd-nspawn", "systemd-container"},
	{"journalctl", "systemd"},
	{"ip", "iproute2"},
	{"iptables-restore", "iptables"},
	{"nsenter", "util-linux"},
	{"strace", "strace"},
	{"sysctl", "procps"},
}

var one sync.Mutex

// CanRun says whether the lab can run here, and otherwise the first reason why not, in one line.
func CanRun() (bool, string) {
	// Tests ask side by side, and each look makes and takes away things of one name.
	one.Lock()
	defer one.Unlock()
	for _, check := range []func() error{root, commands, capabilities, cgroups, overlay} {
		if err := check(); err != nil {
			return false, "the lab cannot run here: " + err.Error()
		}
	}
	return true, ""
}

func root() error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root (namespaces, mounts)")
	}
	return nil
}

func missing() []string {
	var packages []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool.command); err != nil {
			packages = append(packages, tool.pkg)
		}
	}
	return packages
}

func commands() error {
	if packages := missing(); len(packages) > 0 {
		return fmt.Errorf("missing Debian packages %s (install them with: go run ./cmd/lab-setup)", strings.Join(packages, ", "))
	}
	return nil
}

// capabilities: in a container root may lack what namespaces and mounts need.
func capabilities() error {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	var effective uint64
	for line := range strings.Lines(string(content)) {
		if hex, found := strings.CutPrefix(line, "CapEff:"); found {
			if _, err := fmt.Sscanf(strings.TrimSpace(hex), "%x", &effective); err != nil {
				return fmt.Errorf("read capabilities: %w", err)
			}
		}
	}
	for _, needed := range []struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, {unix.CAP_MKNOD, "CAP_MKNOD"}} {
		if effective&(1<<needed.bit) == 0 {
			return fmt.Errorf("root lacks %s", needed.name)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return errors.New("there is no /dev/net/tun (slow links need it)")
	}
	return nil
}

func cgroups() error {
	folder := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(folder, "cgroup.controllers")); err != nil {
		folder = "/sys/fs/cgroup/systemd"
		if _, err := os.Stat(folder); err != nil {
			return errors.New("neither a v2 cgroup tree nor a named systemd hierarchy is mounted below /sys/fs/cgroup")
		}
	}
	probe := filepath.Join(folder, fmt.Sprintf("regrade-lab-probe-%d", os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return fmt.Errorf("no cgroup can be made: %w", err)
	}
	return os.Remove(probe)
}

// overlay tries a mount where hosts will have theirs: an overlay on an overlay is refused.
func overlay() error {
	cache, err := host.CacheDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, "probe-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, part := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, part), 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	root := filepath.Join(dir, "root")
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("no overlay can be mounted below %s (%w); set XDG_CACHE_HOME to a folder on a plain disk", cache, err)
	}
	return unix.Unmount(root, unix.MNT_DETACH)
}

// Setup installs the Debian packages that are missing. It needs root and a Debian; it installs nothing when nothing is missing.
func Setup(ctx context.Context, logf func(string, ...any)) error {
	packages := missing()
	if len(packages) == 0 {
		return nil
	}
	if err := root(); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(packages, ", "), err)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s: this is no Debian (no apt-get)", strings.Join(packages, ", "))
	}
	logf("lab: installing %s", strings.Join(packages, ", "))
	install := append([]string{"apt-get", "install", "-y", "-qq", "--no-install-recommends"}, packages...)
	for _, argv := range [][]string{{"apt-get", "update", "-qq"}, install} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out[max(0, len(out)-1000):])))
		}
	}
	return nil
}
