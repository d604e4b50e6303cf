package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Host is one test host. Its disk outlives crashes and reboots; its memory, its processes and its network do not.
type Host struct {
	lab    *Lab
	name   string
	number int
	ip     netip.Addr
	dir    string // on the machine: overlay parts and plain folders
	root   string // the mounted tree

	mu        sync.Mutex
	running   *incarnation
	bridge    string
	unplugged bool
	rules     map[string][][]string
	without   []string // binds of the lab that it does not get
	hooked    bool     // the rules' chain hangs in the present namespace
	elsewhere []elsewhere

	boots int
}

// plainFolders are not on the overlay: containers make overlays of their own there, and an overlay on an overlay is refused.
var plainFolders = map[string]string{"docker": "var/lib/docker", "rancher": "var/lib/rancher", "kubelet": "var/lib/kubelet"}

// AddHost makes a host with a disk and a network of its own. It is not booted yet, so files can be put on it first.
func (l *Lab) AddHost(ctx context.Context, name string) (*Host, error) {
	if name == "" || len(name) > 20 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name == "lan" || name == "labs" {
		return nil, fmt.Errorf("add host %q: want up to 20 small letters, digits and dashes, not lan", name)
	}
	l.mu.Lock()
	number := firstHost + len(l.hosts)
	l.mu.Unlock()
	address := subnet.Addr().As4()
	address[3] = byte(number)
	h := &Host{
		lab: l, name: name, number: number, ip: netip.AddrFrom4(address), bridge: Bridge, rules: map[string][][]string{},
		dir: filepath.Join(l.dir, name), root: filepath.Join(l.dir, name, "root"),
	}
	if l.Host(name) != nil {
		return nil, fmt.Errorf("add host %s: there is one of this name", name)
	}
	if err := h.makeDisk(); err != nil {
		return nil, fmt.Errorf("add host %s: %w", name, err)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	if err := h.plug(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Host) makeDisk() error {
	for _, part := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(h.dir, part), 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", h.lab.rootfs, filepath.Join(h.dir, "upper"), filepath.Join(h.dir, "work"))
	if err := unix.Mount("overlay", h.root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	for _, name := range sortedKeys(plainFolders) {
		plain, target := filepath.Join(h.dir, name), filepath.Join(h.root, plainFolders[name])
		if err := os.MkdirAll(plain, 0o755); err != nil {
			return err
		}
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(plain, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", target, err)
		}
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	files := map[string]string{
		"/etc/hostname": h.name + "\n",
		"/etc/hosts":    fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", h.ip, h.name),
		// With a machine id there is no "first boot", at which Debian's presets would enable every unit, k3s's own too.
		"/etc/machine-id": hex.EncodeToString(id) + "\n",
	}
	for _, path := range sortedKeys(files) {
		if err := h.WriteFile(path, []byte(files[path]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// NewDisk gives a host that is down an empty disk: nothing that was on the old one comes back.
func (h *Host) NewDisk() error {
	if h.Up() {
		return fmt.Errorf("new disk for %s: it is up", h.name)
	}
	if err := unmountBelow(h.root); err != nil {
		return err
	}
	for _, part := range append([]string{"upper", "work"}, sortedKeys(plainFolders)...) {
		if err := discardTree(filepath.Join(h.dir, part)); err != nil {
			return fmt.Errorf("new disk for %s: %w", h.name, err)
		}
	}
	if err := h.makeDisk(); err != nil {
		return fmt.Errorf("new disk for %s: %w", h.name, err)
	}
	return nil
}

// Name of the host, which is its host name too.
func (h *Host) Name() string { return h.name }

// IP is the host's address on the lab's network; it stays the same over reboots.
func (h *Host) IP() netip.Addr { return h.ip }

// Lab is the lab the host belongs to.
func (h *Host) Lab() *Lab { return h.lab }

// Path is where the host's file is on the machine. Only the disk is seen there while the host is down; while it is up,
// its volatile folders (/run, /tmp) as well. An absolute link as the last element is followed inside the host.
func (h *Host) Path(path string) string {
	base := h.root
	if pid := h.initPID(); pid != 0 {
		base = fmt.Sprintf("/proc/%d/root", pid)
	}
	path = h.folder(path)
	for range 10 {
		target, err := os.Readlink(filepath.Join(base, path))
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return filepath.Join(base, filepath.Clean("/"+path))
}

// ReadFile reads a file of the host, up or down.
func (h *Host) ReadFile(path string) ([]byte, error) {
	content, err := os.ReadFile(h.Path(path))
	if err != nil {
		return nil, fmt.Errorf("read %s on %s: %w", path, h.name, h.inside(err))
	}
	return content, nil
}

// WriteFile writes a file of the host, up or down, and makes the folders above it. The file appears whole.
func (h *Host) WriteFile(path string, content []byte, mode fs.FileMode) error {
	err := func() error {
		target := h.Path(path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		temporary := target + ".lab-tmp"
		if err := os.WriteFile(temporary, content, mode); err != nil {
			return err
		}
		if err := os.Chmod(temporary, mode); err != nil {
			return err
		}
		return os.Rename(temporary, target)
	}()
	if err != nil {
		return fmt.Errorf("write %s on %s: %w", path, h.name, h.inside(err))
	}
	return nil
}

// Without leaves the lab's bind at the path away, from the next boot on.
func (h *Host) Without(path string) { h.without = append(h.without, path) }

// Remove removes a file or a folder with all in it; nothing there is no error.
func (h *Host) Remove(path string) error {
	if err := os.RemoveAll(h.Path(path)); err != nil {
		return fmt.Errorf("remove %s on %s: %w", path, h.name, h.inside(err))
	}
	return nil
}

// Exists says whether the host has the file or folder.
func (h *Host) Exists(path string) (bool, error) {
	_, err := os.Stat(h.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s on %s: %w", path, h.name, h.inside(err))
	}
	return true, nil
}

// Glob lists the host's paths that match, as the host sees them.
func (h *Host) Glob(pattern string) ([]string, error) {
	base := strings.TrimSuffix(h.Path("/"), "/")
	matches, err := filepath.Glob(base + h.folder(pattern))
	if err != nil {
		return nil, fmt.Errorf("list %s on %s: %w", pattern, h.name, err)
	}
	for i := range matches {
		matches[i] = h.seen(strings.TrimPrefix(matches[i], base))
	}
	return matches, nil
}

// inside drops the machine's path from a file error: the host's path is named by the caller.
func (h *Host) inside(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Exec runs a command in the host and waits for it. Its own end is in the result; an error means that it could not run
// or that the context ended first. The command stays in the lab's own cgroups: it does not count for limits of the host.
func (h *Host) Exec(ctx context.Context, argv ...string) (Result, error) {
	return h.ExecInput(ctx, "", argv...)
}

// ExecInput is Exec with a standard input.
func (h *Host) ExecInput(ctx context.Context, stdin string, argv ...string) (Result, error) {
	cmd, err := h.command(ctx, argv...)
	if err != nil {
		return Result{Code: -1}, err
	}
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	result, err := run(ctx, cmd)
	if err != nil {
		return result, fmt.Errorf("on %s: %w", h.name, err)
	}
	return result, nil
}

func (h *Host) command(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	pid := h.initPID()
	if pid == 0 {
		return nil, fmt.Errorf("on %s: %s: the host is down", h.name, strings.Join(argv, " "))
	}
	full := append([]string{"nsenter", "-t", fmt.Sprint(pid), "-a", "-r", "-w", "--"}, argv...)
	h.lab.trace(full)
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "container=systemd-nspawn"}
	return cmd, nil
}

// Run is Exec for a command that must succeed; it gives what the command printed.
func (h *Host) Run(ctx context.Context, argv ...string) (string, error) {
	result, err := h.Exec(ctx, argv...)
	if err != nil {
		return "", err
	}
	if err := result.Err(); err != nil {
		return result.Stdout, fmt.Errorf("on %s: %s: %w", h.name, strings.Join(argv, " "), err)
	}
	return result.Stdout, nil
}

// Systemctl runs systemctl in the host; a status other than 0 is an error. Mind that starting a k3s unit blocks until it
// is ready: add --no-block where that may never come.
func (h *Host) Systemctl(ctx context.Context, args ...string) (string, error) {
	return h.Run(ctx, append([]string{"systemctl"}, args...)...)
}

// ActiveState of a unit (active, activating, inactive, failed, …), as systemctl show names it.
func (h *Host) ActiveState(ctx context.Context, unit string) (string, error) {
	out, err := h.Systemctl(ctx, "show", "-P", "ActiveState", unit)
	return strings.TrimSpace(out), err
}

// BootID is new at every boot.
func (h *Host) BootID(ctx context.Context) (string, error) {
	out, err := h.Run(ctx, "cat", "/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(out), err
}

// Journal gives what the unit logged in all boots of the host, oldest first; an empty unit means everything. It reads the
// disk, so it works for a host that is down.
func (h *Host) Journal(ctx context.Context, unit string) (string, error) {
	argv := []string{"journalctl", "-q", "-D", filepath.Join(h.root, "var/log/journal"), "-o", "short-iso-precise", "--no-pager"}
	if unit != "" {
		argv = append(argv, "-u", unit)
	}
	out, err := h.lab.machine(ctx, argv...)
	if err != nil {
		return out, fmt.Errorf("journal of %s: %w", h.name, err)
	}
	return out, nil
}

func (h *Host) restoreRules(ctx context.Context, script string) error {
	argv := []string{"nsenter", "--net=/run/netns/" + h.netns(), "--", "iptables-restore", "--noflush", "-w"}
	h.lab.trace(argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(script)
	result, err := run(ctx, cmd)
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		return fmt.Errorf("packet rules of host %s: %w\n%s", h.name, err, script)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Link makes a symbolic link on the host, replacing what is there. The target is as the host sees it.
func (h *Host) Link(target, path string) error {
	err := func() error {
		parent := h.Path(filepath.Dir(path))
		at := filepath.Join(parent, filepath.Base(path))
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		return os.Symlink(target, at)
	}()
	if err != nil {
		return fmt.Errorf("link %s on %s: %w", path, h.name, h.inside(err))
	}
	return nil
}
