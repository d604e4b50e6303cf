package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
)

// Process is one process.
type Process struct {
	PID, Parent int
	// Comm is the kernel's name of it.
	Comm string
	Args []string
}

// Processes are those of this PID namespace: k3s of a container on the same host is
// another's. Proc is where they are looked for, such as /proc.
func Processes(proc string) ([]Process, error) {
	all, err := All(proc)
	if err != nil {
		return nil, err
	}
	foreign := Foreign(proc)
	return slices.DeleteFunc(all, func(p Process) bool { return foreign(p.PID) }), nil
}

// All are those of the namespaces below as well: what runs in a pod or a container.
func All(proc string) ([]Process, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, alive, err := read(filepath.Join(proc, e.Name()), pid)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if alive {
			out = append(out, p)
		}
	}
	return out, nil
}

// Foreign tells the processes of another PID namespace than this one's. One whose
// namespace cannot be read is none.
func Foreign(proc string) func(pid int) bool {
	own, _ := os.Readlink(filepath.Join(proc, "self", "ns", "pid"))
	return func(pid int) bool {
		ns, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "pid"))
		return err == nil && own != "" && ns != own
	}
}

// read reads one; a process that has ended meanwhile is not alive, nor is a zombie.
func read(dir string, pid int) (Process, bool, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, false, unlessGone(err)
	}
	comm, state, parent, ok := parseStat(string(stat))
	if !ok || state == "Z" || state == "X" {
		return Process{}, false, nil
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, false, unlessGone(err)
	}
	return Process{PID: pid, Parent: parent, Comm: comm, Args: strings.FieldsFunc(string(line), func(r rune) bool { return r == 0 })}, true, nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// parseStat reads /proc/<pid>/stat; the name is in parentheses and may hold anything, so
// what follows begins behind the last one.
func parseStat(s string) (comm, state string, parent int, ok bool) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || end < open {
		return "", "", 0, false
	}
	rest := strings.Fields(s[end+1:])
	if len(rest) < 2 {
		return "", "", 0, false
	}
	parent, err := strconv.Atoi(rest[1])
	return s[open+1 : end], rest[0], parent, err == nil
}

// K3s is the role of a k3s main process, or of the one that this process was started
// by; empty for any other.
func (p Process) K3s(all []Process) fleet.Role {
	for range all { // parents form no circle, whatever they were read as
		if role := k3s.ProcessRole(p.Comm, p.Args); role != "" {
			return role
		}
		i := slices.IndexFunc(all, func(o Process) bool { return o.PID == p.Parent })
		if i < 0 {
			return ""
		}
		p = all[i]
	}
	return ""
}

// Daemon says whether it is a regrade host daemon, and none of its commands.
func (p Process) Daemon() bool {
	a := p.Args
	return len(a) >= 2 && filepath.Base(a[0]) == "regrade" && a[1] == "host" && (len(a) == 2 || strings.HasPrefix(a[2], "-"))
}

// Replaced says whether the file that a process runs from has been deleted or replaced
// since it was started.
func (p Process) Replaced(proc string) bool {
	exe, err := os.Readlink(filepath.Join(proc, strconv.Itoa(p.PID), "exe"))
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}
