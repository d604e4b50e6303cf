package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is one process of a host.
type Process struct {
	// PID and Parent are the machine's numbers, not the host's.
	PID, Parent int
	// Started is the start time in ticks since the machine's boot; with PID it names the process for good.
	Started string
	// Name is the kernel's short name.
	Name string
	// Args is the command line.
	Args []string
	// State is the kernel's letter: R, S, T (stopped), Z (ended, not yet waited for), …
	State string
}

// Processes lists the host's processes and those of its containers, none when it is down.
func (h *Host) Processes() ([]Process, error) {
	pid := h.initPID()
	if pid == 0 {
		return nil, nil
	}
	space := pidSpace(pid)
	if space == "" {
		return nil, fmt.Errorf("processes of %s: it went down", h.name)
	}
	spaces := newSpaces(map[string]*Host{space: h})
	return processesWhere(func(pid int) bool { return spaces.owner(pid) == h })
}

func processesWhere(keep func(pid int) bool) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !keep(pid) {
			continue
		}
		if process, ok := readProcess(pid); ok {
			found = append(found, process)
		}
	}
	return found, nil
}

func readProcess(pid int) (Process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	before, after, found := strings.Cut(string(stat), " (")
	end := strings.LastIndex(after, ") ")
	if !found || before == "" || end < 0 {
		return Process{}, false
	}
	fields := strings.Fields(after[end+2:])
	if len(fields) < 20 {
		return Process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, false
	}
	process := Process{PID: pid, Parent: parent, Started: fields[19], Name: after[:end], State: fields[0]}
	// k3s writes its command line anew with spaces in place of the zeros.
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil {
		process.Args = strings.Fields(strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
	return process, true
}

// K3sRole gives "server" or "agent" for a k3s process of that role and "" for any other.
func (p Process) K3sRole() string {
	if len(p.Args) < 2 || p.State == "Z" || !strings.HasPrefix(filepath.Base(p.Args[0]), "k3s") {
		return ""
	}
	if role := p.Args[1]; role == "server" || role == "agent" {
		return role
	}
	return ""
}

// mainK3s keeps the main processes of k3s. A child of one is a part of it, or the moment between fork and exec in which a child
// still shows its parent's command line.
func mainK3s(processes []Process) []Process {
	var k3s []Process
	for _, p := range processes {
		if p.K3sRole() != "" {
			k3s = append(k3s, p)
		}
	}
	return slices.DeleteFunc(slices.Clone(k3s), func(p Process) bool {
		return slices.ContainsFunc(k3s, func(other Process) bool { return other.PID == p.Parent })
	})
}

// K3s lists the host's main k3s processes; there must never be two.
func (h *Host) K3s() ([]Process, error) {
	all, err := h.Processes()
	return mainK3s(all), err
}

// unitProcesses lists the machine's pids of all processes in the unit's cgroup.
func (h *Host) unitProcesses(unit string) ([]int, error) {
	mounts, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, mount := range mounts {
		// systemd keeps its units in the named hierarchy, or in the v2 one when that is the only one.
		if name := filepath.Base(mount); name != "systemd" && len(mounts) > 1 {
			continue
		}
		top := filepath.Join(mount, cgroupParent, h.lab.name, h.name)
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == unit {
				pids = append(pids, processesIn(path)...)
				return filepath.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("processes of %s on %s: %w", unit, h.name, err)
		}
	}
	return pids, nil
}

// SignalUnit sends the signal to every process of the unit, and says to how many. Killing a k3s unit this way also ends what
// runs beside its main process; KillMain is the way a crash of k3s alone looks.
func (h *Host) SignalUnit(unit string, signal syscall.Signal) (int, error) {
	pids, err := h.unitProcesses(unit)
	if err != nil {
		return 0, err
	}
	sent := 0
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err == nil {
			sent++
		}
	}
	return sent, nil
}

// KillUnit sends the signal to every process of the unit; a unit without a process is an error.
func (h *Host) KillUnit(unit string, signal syscall.Signal) error {
	sent, err := h.SignalUnit(unit, signal)
	if err != nil {
		return err
	}
	if sent == 0 {
		return fmt.Errorf("kill %s on %s: it has no process", unit, h.name)
	}
	return nil
}

// KillMain sends the signal to the unit's main process only.
func (h *Host) KillMain(ctx context.Context, unit string, signal syscall.Signal) error {
	if _, err := h.Systemctl(ctx, "kill", "--kill-whom=main", "--signal="+strconv.Itoa(int(signal)), unit); err != nil {
		return fmt.Errorf("kill the main process of %s on %s: %w", unit, h.name, err)
	}
	return nil
}

// Pause stops every process of the unit where it stands (SIGSTOP), as a machine that hangs. Its connections stay open and its
// kernel answers for it.
func (h *Host) Pause(unit string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		pids, err := h.unitProcesses(unit)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return fmt.Errorf("pause %s on %s: it has no process", unit, h.name)
		}
		// A process may have forked between the listing and the signal: again until all are stopped.
		stopped := 0
		for _, pid := range pids {
			if p, ok := readProcess(pid); !ok || p.State == "T" || p.State == "Z" {
				stopped++
				continue
			}
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if stopped == len(pids) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pause %s on %s: %d of %d processes stopped", unit, h.name, stopped, len(pids))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Continue lets the processes of a paused unit run on.
func (h *Host) Continue(unit string) error {
	_, err := h.SignalUnit(unit, syscall.SIGCONT)
	return err
}
