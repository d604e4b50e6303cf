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

// classify tells k3s's main processes and pod shims. k3s executes itself under
// the names k3s-server and k3s-agent and overwrites its arguments with
// "<path> server" in one piece (k3s hides them, R-112-16).
func classify(comm, cmdline string) (role fleet.Role, shim bool) {
	args := strings.FieldsFunc(cmdline, func(r rune) bool { return r == 0 })
	first := ""
	if len(args) > 0 {
		first = args[0]
		// A process title in one piece.
		if path, rest, ok := strings.Cut(first, " "); ok {
			first = path
			args = append([]string{path}, append(strings.Fields(rest), args[1:]...)...)
		}
	}
	base := filepath.Base(first)
	if strings.HasPrefix(base, "containerd-shim") {
		return "", ownShim(first, args)
	}
	switch {
	case comm == "k3s-server" || base == "k3s-server":
		return fleet.RoleServer, false
	case comm == "k3s-agent" || base == "k3s-agent":
		return fleet.RoleAgent, false
	case base == "k3s" && len(args) > 1 && args[1] == "server":
		return fleet.RoleServer, false
	case base == "k3s" && len(args) > 1 && args[1] == "agent":
		return fleet.RoleAgent, false
	}
	return "", false
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
