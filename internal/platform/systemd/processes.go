package systemd

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/procs"
)

// process is one process as /proc shows it.
type process struct {
	pid    int
	parent int
	role   fleet.Role // of a k3s main process, else empty
	shim   bool
}

// processes lists those that matter. Of k3s and of shims only those of this PID
// namespace do: k3s of a container on the same host (a runner that tests k3s) is
// another's. What a shim has started is in its pod's.
func processes(proc string) ([]process, error) {
	all, err := procs.All(proc)
	if err != nil {
		return nil, err
	}
	foreign := procs.Foreign(proc)
	var out []process
	for _, one := range all {
		p := process{pid: one.PID, parent: one.Parent}
		p.role, p.shim = classify(one)
		if (p.role != "" || p.shim) && foreign(p.pid) {
			continue
		}
		out = append(out, p)
	}
	return out, nil
}

// classify tells k3s's main processes and pod shims.
func classify(p procs.Process) (role fleet.Role, shim bool) {
	args := k3s.TitleSplit(p.Args)
	if len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") {
		return "", ownShim(args[0], args)
	}
	return k3s.ProcessRole(p.Comm, args), false
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
