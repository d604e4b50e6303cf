package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// incarnation is one boot of a host.
type incarnation struct {
	nspawn *exec.Cmd
	init   int
	gone   chan struct{} // closed when nspawn has ended
	status int           // of nspawn, once gone
}

// rebootStatus is how systemd-nspawn ends when its host asked for a reboot.
const rebootStatus = 133

// bootLimit bounds the wait for a host to come up; it takes 0.5 to 1.4 s alone, and with an engine in it more than a minute at
// a load of 150.
const bootLimit = 3 * time.Minute

// enterCgroups prepares a command that first moves itself into the folders.
func enterCgroups(ctx context.Context, folders, argv []string) *exec.Cmd {
	script := `for folder in $LAB_CGROUPS; do echo $$ >"$folder/cgroup.procs" || exit 126; done; unset LAB_CGROUPS; exec "$@"`
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", script, "sh"}, argv...)...)
	cmd.Env = append(os.Environ(), "LAB_CGROUPS="+strings.Join(folders, " "))
	return cmd
}

// Boot starts the host and waits until its systemd says that all started, or that something failed (which is logged). The
// network is made anew.
func (h *Host) Boot(ctx context.Context) error {
	if h.initPID() != 0 {
		return fmt.Errorf("boot %s: it is up", h.name)
	}
	if err := h.boot(ctx); err != nil {
		return fmt.Errorf("boot %s: %w", h.name, err)
	}
	return nil
}

func (h *Host) boot(ctx context.Context) error {
	// Two inits on one root destroy it: whatever an earlier boot left has to be gone.
	if err := killCgroup(h.lab.name, h.name); err != nil {
		return err
	}
	if h.boots > 0 {
		h.mu.Lock()
		h.hooked = false
		h.mu.Unlock()
		if err := h.plug(ctx); err != nil {
			return err
		}
	}
	machine := machineName(h.lab.name, h.name)
	if err := discardTree(filepath.Join("/run/systemd/nspawn/propagate", machine)); err != nil {
		return err
	}
	folders, err := makeCgroup(h.lab.name, h.name)
	if err != nil {
		return err
	}
	argv := []string{
		"systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--network-namespace-path=/run/netns/" + h.netns(),
		"--capability=all", "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe", "--bind=/dev/kmsg",
		"--system-call-filter=@keyring", // runc gives each container a keyring
		"-D", h.root, "-M", machine,
	}
	for _, path := range sortedKeys(h.lab.options.Binds) {
		if slices.Contains(h.without, path) {
			continue
		}
		argv = append(argv, "--bind-ro="+h.lab.options.Binds[path]+":"+path)
	}
	console, err := os.OpenFile(filepath.Join(h.dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	h.lab.trace(argv)
	// Not bound to the context: a host outlives the call that boots it.
	cmd := enterCgroups(context.WithoutCancel(ctx), folders, argv)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	i := &incarnation{nspawn: cmd, gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		i.status = cmd.ProcessState.ExitCode()
		close(i.gone)
	}()
	h.boots++
	began := time.Now()
	if err := h.awaitInit(ctx, i); err != nil {
		return errors.Join(err, killCgroup(h.lab.name, h.name))
	}
	h.mu.Lock()
	h.running = i
	h.mu.Unlock()
	state, err := h.awaitRunning(ctx, i)
	if err != nil {
		return err
	}
	if state != "running" {
		failed, _ := h.Systemctl(ctx, "list-units", "--failed", "--plain", "--no-legend")
		h.lab.options.Logf("lab: %s came up %s after %.1f s: %s", h.name, state, time.Since(began).Seconds(), strings.TrimSpace(failed))
	}
	return nil
}

// awaitInit waits until nspawn has started the host's first process, the one that is 1 in its own PID namespace.
func (h *Host) awaitInit(ctx context.Context, i *incarnation) error {
	limit := time.NewTimer(bootLimit)
	defer limit.Stop()
	for {
		if pid := initOf(i.nspawn.Process.Pid); pid != 0 {
			i.init = pid
			return nil
		}
		select {
		case <-i.gone:
			return fmt.Errorf("systemd-nspawn ended with status %d: %s", i.status, h.consoleTail())
		case <-limit.C:
			return fmt.Errorf("no init after %s: %s", bootLimit, h.consoleTail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (h *Host) consoleTail() string {
	content, _ := os.ReadFile(filepath.Join(h.dir, "console.log"))
	return strings.TrimSpace(string(content[max(0, len(content)-1000):]))
}

// awaitRunning waits for the end of the host's start-up. A unit that is starting (a k3s server waiting for its quorum) keeps
// systemd at "starting", so a host counts as up when its jobs are those of k3s only.
func (h *Host) awaitRunning(ctx context.Context, i *incarnation) (string, error) {
	limit := time.NewTimer(bootLimit)
	defer limit.Stop()
	state := ""
	for {
		// It has a status other than 0 in every state but running.
		if result, err := h.Exec(ctx, "systemctl", "is-system-running"); err == nil {
			state = strings.TrimSpace(result.Stdout)
		}
		switch state {
		case "running", "degraded":
			return state, nil
		case "starting":
			if h.onlyK3sStarts(ctx) {
				return "running", nil
			}
		}
		select {
		case <-i.gone:
			return state, fmt.Errorf("the host went down while it started: %s", h.consoleTail())
		case <-limit.C:
			return state, fmt.Errorf("still %q after %s: %s", state, bootLimit, h.consoleTail())
		case <-ctx.Done():
			return state, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (h *Host) onlyK3sStarts(ctx context.Context) bool {
	out, err := h.Systemctl(ctx, "list-jobs", "--plain", "--no-legend")
	if err != nil {
		return false
	}
	found := false
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch {
		case fields[3] == "running" && (strings.HasPrefix(fields[1], "k3s") || strings.HasPrefix(fields[1], "regrade")):
			found = true
		case fields[3] == "running":
			return false
		}
	}
	return found
}

// initOf gives the process that is 1 in the PID namespace below nspawn, or 0.
func initOf(nspawn int) int {
	// nspawn makes its payload a child of its own, whatever thread did it.
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", nspawn))
	for _, task := range tasks {
		content, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				continue
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(status)) {
				if inner, found := strings.CutPrefix(line, "NSpid:"); found {
					if pids := strings.Fields(inner); len(pids) > 1 && pids[len(pids)-1] == "1" && isSystemd(pid) {
						return pid
					}
				}
			}
		}
	}
	return 0
}

// isSystemd says whether the process has become the host's init; before that it is nspawn itself, still setting up.
func isSystemd(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == "systemd"
}

// initPID is the machine's pid of the host's first process, 0 while the host is down.
func (h *Host) initPID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil {
		return 0
	}
	select {
	case <-h.running.gone:
		return 0
	default:
		return h.running.init
	}
}

// Up says whether the host runs.
func (h *Host) Up() bool { return h.initPID() != 0 }

func (h *Host) current() (*incarnation, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil {
		return nil, fmt.Errorf("host %s is down", h.name)
	}
	return h.running, nil
}

// Shutdown stops the host as its power button does: every unit is stopped first. It waits for the end.
func (h *Host) Shutdown(ctx context.Context) error {
	i, err := h.current()
	if err != nil {
		return err
	}
	if err := i.nspawn.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("shut down %s: %w", h.name, err)
	}
	if err := h.awaitGone(ctx, i, 2*time.Minute); err != nil {
		return fmt.Errorf("shut down %s: %w", h.name, err)
	}
	return nil
}

// Crash ends the host at once, every process in it with SIGKILL. With power false its kernel is taken to live long enough
// to close its connections, so peers see the end at once; with power true its cable goes first and peers see silence. What the host wrote
// stays written: the machine's page cache is not lost.
func (h *Host) Crash(ctx context.Context, power bool) error {
	i, err := h.current()
	if err != nil {
		return err
	}
	if power {
		// Not recorded as unplugged: the next boot has its cable.
		if _, err := h.lab.machine(ctx, "ip", "-n", h.lab.network.lan, "link", "set", h.port(), "down"); err != nil {
			return fmt.Errorf("crash %s: %w", h.name, err)
		}
	}
	// The init and not nspawn: without nspawn the whole host runs on as an orphan.
	if err := syscall.Kill(i.init, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("crash %s: %w", h.name, err)
	}
	if err := h.awaitGone(ctx, i, 30*time.Second); err != nil {
		return fmt.Errorf("crash %s: %w", h.name, err)
	}
	return nil
}

// Reboot asks the host's systemd for a reboot and waits until it is up again.
func (h *Host) Reboot(ctx context.Context) error {
	i, err := h.current()
	if err != nil {
		return err
	}
	if _, err := h.Systemctl(ctx, "--no-block", "reboot"); err != nil {
		return fmt.Errorf("reboot %s: %w", h.name, err)
	}
	if err := h.awaitGone(ctx, i, 2*time.Minute); err != nil {
		return fmt.Errorf("reboot %s: %w", h.name, err)
	}
	if i.status != rebootStatus {
		return fmt.Errorf("reboot %s: systemd-nspawn ended with status %d, not %d", h.name, i.status, rebootStatus)
	}
	return h.Boot(ctx)
}

// CrashAndBoot is Crash and Boot.
func (h *Host) CrashAndBoot(ctx context.Context, power bool) error {
	if err := h.Crash(ctx, power); err != nil {
		return err
	}
	return h.Boot(ctx)
}

func (h *Host) awaitGone(ctx context.Context, i *incarnation, limit time.Duration) error {
	select {
	case <-i.gone:
	case <-time.After(limit):
		return fmt.Errorf("not down after %s: %s", limit, h.consoleTail())
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	if h.running == i {
		h.running = nil
	}
	h.mu.Unlock()
	// The namespace outlives the host and would go on answering for it. The next boot makes a new one.
	if _, err := h.lab.machine(ctx, "ip", "-n", h.lab.network.lan, "link", "set", h.port(), "down"); err != nil {
		return err
	}
	// A process that was entered from outside may outlive the init by a moment.
	return killCgroup(h.lab.name, h.name)
}

// waitGone waits a moment for nspawn after the lab's processes were killed, so that no zombie is left.
func (h *Host) waitGone() {
	h.mu.Lock()
	i := h.running
	h.running = nil
	h.mu.Unlock()
	if i == nil {
		return
	}
	select {
	case <-i.gone:
	case <-time.After(5 * time.Second):
	}
}
