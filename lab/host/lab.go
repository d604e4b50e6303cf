package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// stateDir holds a folder per lab with the pid of its owner, so that left-overs are found by name.
const stateDir = "/run/regrade-lab"

// Options of a lab.
type Options struct {
	// Name of the lab, at most 6 letters and digits. Empty: made of the process id.
	Name string
	// Packages of Debian that hosts have besides the usual ones.
	Packages []string
	// Binds are files or folders of the machine that every host sees: path in the host to path on the machine.
	// They are read-only in the host.
	Binds map[string]string
	// Logf tells what the lab does; nil means silence.
	Logf func(format string, args ...any)
	// Trace is given every command of the lab; nil means none.
	Trace func(format string, args ...any)
}

// labs counts those that this process has made.
var labs atomic.Int64

// Lab is a private network with hosts on it.
type Lab struct {
	options Options
	name    string
	dir     string // overlays and plain folders of the hosts
	state   string // below stateDir
	rootfs  string
	network *network
	guard   io.Closer

	mu      sync.Mutex
	hosts   []*Host
	closers []func()
	closed  bool
}

// New makes a lab without hosts. It first takes down the labs whose owner is gone, and builds the hosts' Debian if it is
// not cached. The caller ends the lab with Close.
func New(ctx context.Context, options Options) (*Lab, error) {
	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}
	if options.Name == "" {
		// The same process may have another lab beside this one.
		options.Name = fmt.Sprintf("p%x", (os.Getpid()*16+int(labs.Add(1)))&0xfffff)
	}
	if len(options.Name) > 6 || strings.Trim(options.Name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return nil, fmt.Errorf("lab name %q: want 1 to 6 small letters and digits", options.Name)
	}
	if err := Sweep(options.Logf); err != nil {
		return nil, err
	}
	rootfs, err := EnsureRootfs(ctx, options.Packages, options.Logf)
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	l := &Lab{
		options: options, name: options.Name, rootfs: rootfs,
		dir: filepath.Join(cache, "labs", options.Name), state: filepath.Join(stateDir, options.Name),
	}
	if err := claim(l.state, l.dir); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start lab %s: %w", l.name, err), l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	// Four hosts with k3s use up the usual 128 instances.
	if err := raiseSysctl("fs/inotify/max_user_instances", 1024); err != nil {
		return err
	}
	if _, err := makeCgroup(l.name); err != nil {
		return err
	}
	guard, err := startGuard(l.name)
	if err != nil {
		return err
	}
	l.guard = guard
	l.network, err = newNetwork(ctx, l)
	return err
}

// Name of the lab; it is part of the name of everything the lab makes.
func (l *Lab) Name() string { return l.name }

// Dir is a folder of the lab's own on the machine; it goes with the lab.
func (l *Lab) Dir() string { return l.dir }

// Hosts gives the hosts in the order in which they were added.
func (l *Lab) Hosts() []*Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hosts)
}

// Host gives the host of that name, or nil.
func (l *Lab) Host(name string) *Host {
	for _, h := range l.Hosts() {
		if h.name == name {
			return h
		}
	}
	return nil
}

// Boot boots the hosts side by side, all hosts of the lab when none is named, and waits until they run.
func (l *Lab) Boot(ctx context.Context, hosts ...*Host) error {
	if len(hosts) == 0 {
		hosts = l.Hosts()
	}
	failed := make([]error, len(hosts))
	var wait sync.WaitGroup
	for i, h := range hosts {
		wait.Go(func() { failed[i] = h.Boot(ctx) })
	}
	wait.Wait()
	return errors.Join(failed...)
}

// Defer registers what has to end before the hosts do: a watcher, a forwarder, a process on the lab's network. The last
// registered ends first.
func (l *Lab) Defer(end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, end)
}

// Close ends all processes of the lab and removes its hosts, its network and its folders.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	closers := l.closers
	l.mu.Unlock()
	for _, end := range slices.Backward(closers) {
		end()
	}
	err := takeDown(l.name)
	for _, h := range l.Hosts() {
		h.waitGone()
	}
	l.network.close()
	if l.guard != nil {
		err = errors.Join(err, l.guard.Close())
	}
	return err
}

// Keep leaves the lab running after the process has ended, and says how to enter it and how to end it. What runs in this
// process stops all the same: watchers and slow links (a slow link becomes a pulled cable).
func (l *Lab) Keep() (string, error) {
	if err := os.WriteFile(filepath.Join(l.state, "keep"), nil, 0o600); err != nil {
		return "", fmt.Errorf("keep lab %s: %w", l.name, err)
	}
	var how strings.Builder
	fmt.Fprintf(&how, "lab %s is kept\n", l.name)
	for _, h := range l.Hosts() {
		if pid := h.initPID(); pid != 0 {
			fmt.Fprintf(&how, "  %-8s %-12s nsenter -t %d -a\n", h.name, h.IP(), pid)
		} else {
			fmt.Fprintf(&how, "  %-8s %-12s is down; its tree: %s\n", h.name, h.IP(), h.root)
		}
	}
	fmt.Fprintf(&how, "  network  %-12s nsenter --net=/run/netns/%s\n", l.network.gateway, l.network.lan)
	fmt.Fprintf(&how, "end it with: go run ./cmd/lab-setup end %s", l.name)
	return how.String(), nil
}

// guardScript ends the lab's processes when the owner is gone without having closed the lab: reading fails as soon as
// the owner's end of the pipe is closed. Mounts and namespaces are left to the next Sweep.
const guardScript = `
read -r line && exit 0
[ -e "$1/keep" ] && exit 0
for round in 1 2 3 4 5 6 7 8 9 10; do
	pids=$(find /sys/fs/cgroup/*/"$2" /sys/fs/cgroup/"$2" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u)
	[ -n "$pids" ] || exit 0
	kill -KILL $pids 2>/dev/null
	find /sys/fs/cgroup/freezer/"$2" -name freezer.state 2>/dev/null | while read -r state; do echo THAWED >"$state"; done
	find /sys/fs/cgroup/unified/"$2" /sys/fs/cgroup/"$2" -name cgroup.freeze 2>/dev/null | while read -r state; do echo 0 >"$state"; done
	sleep 0.2
done
`

type guard struct {
	stdin io.WriteCloser
	cmd   *exec.Cmd
}

func startGuard(name string) (io.Closer, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "lab-guard", filepath.Join(stateDir, name), filepath.Join(cgroupParent, name))
	// A session of its own: the interrupt that ends the owner must not end the guard before it has done its work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the lab's guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the lab's guard: %w", err)
	}
	return &guard{stdin: stdin, cmd: cmd}, nil
}

// Close tells the guard that nothing is left to do.
func (g *guard) Close() error {
	if _, err := io.WriteString(g.stdin, "done\n"); err != nil {
		return fmt.Errorf("end the lab's guard: %w", err)
	}
	_ = g.stdin.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("end the lab's guard: %w", err)
	}
	return nil
}
