package systemd

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

// process is one process as /proc shows it.
type process struct {
	pid    int
	parent int
	role   fleet.Role // of a k3s main process, else empty
	shim   bool
}

// processes lists those that matter in this PID namespace: k3s of a container
// on the same host (a runner that tests k3s) is another's.
func processes(proc string) ([]process, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	own, _ := os.Readlink(filepath.Join(proc, "self", "ns", "pid"))
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, alive, err := readProcess(filepath.Join(proc, e.Name()), pid)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if !alive {
			continue
		}
		if p.role != "" || p.shim {
			if ns, err := os.Readlink(filepath.Join(proc, e.Name(), "ns", "pid")); err == nil && own != "" && ns != own {
				continue
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// readProcess reads one; a process that has ended meanwhile is not alive, nor
// is a zombie: it holds no file, port or lock any more.
func readProcess(dir string, pid int) (process, bool, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if gone(err) {
		return process{}, false, nil
	}
	if err != nil {
		return process{}, false, err
	}
	comm, state, parent, ok := parseStat(string(stat))
	if !ok || state == "Z" || state == "X" {
		return process{}, false, nil
	}
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if gone(err) {
		return process{}, false, nil
	}
	if err != nil {
		return process{}, false, err
	}
	p := process{pid: pid, parent: parent}
	p.role, p.shim = classify(comm, string(cmdline))
	return p, true, nil
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// parseStat reads /proc/<pid>/stat; the name is in parentheses and may hold
// anything, so what follows begins behind the last one.
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

// classify tells k3s's main processes and pod shims.
func classify(comm, cmdline string) (role fleet.Role, shim bool) {
	args := k3s.TitleSplit(strings.FieldsFunc(cmdline, func(r rune) bool { return r == 0 }))
	if len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") {
		return "", ownShim(args[0], args)
	}
	return k3s.ProcessRole(comm, args), false
}

// ownShim says whether a shim is k3s's: by its path below k3s's data folder, as
// k3s-killall.sh tells them, or by the containerd it serves. Docker's and another
// containerd's on the same host are named alike and hold somebody else's
// containers.
func ownShim(path string, args []string) bool {
	bin := filepath.Dir(path)
	if filepath.Base(bin) == "bin" && filepath.Base(filepath.Dir(filepath.Dir(bin))) == "data" {
		return true
	}
	i := slices.Index(args, "-address")
	return i >= 0 && i+1 < len(args) && strings.HasPrefix(args[i+1], "/run/k3s/")
}

// descendants are the pids and all below them, parents first.
func descendants(all []process, roots []int) []int {
	out := append([]int(nil), roots...)
	seen := map[int]bool{}
	for _, r := range roots {
		seen[r] = true
	}
	for i := 0; i < len(out); i++ {
		for _, p := range all {
			if p.parent == out[i] && !seen[p.pid] {
				seen[p.pid] = true
				out = append(out, p.pid)
			}
		}
	}
	return out
}
