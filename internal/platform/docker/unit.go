package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// k3sIn says whether a k3s process of the role runs in a container, and gives the
// container as it is then: one that ended between two questions is asked for again.
//
// That there is no k3s is believed of a list alone which has the container's first process,
// as each list of a running container has. A ps that sees other processes than the engine
// gives an empty one, with no error: a voter would pass for an idle container, be stopped
// as one, and have its datastore moved away under it (safety rule 10).
func (h *Host) k3sIn(ctx context.Context, c Container, role fleet.Role) (bool, Container, error) {
	blind := false
	for range 3 {
		if c.ID == "" || !c.Runs() {
			return false, c, nil
		}
		ps, err := h.engine.Processes(ctx, c.ID)
		switch {
		case err == nil && slices.ContainsFunc(ps, func(p Process) bool { return p.PID == c.Pid }):
			return RunsK3s(ps, role), c, nil
		case err != nil && !errors.Is(err, ErrAtRest):
			return false, c, err
		}
		blind = err == nil
		if c, err = h.engine.Inspect(ctx, c.ID); err != nil {
			return false, c, err
		}
	}
	if blind {
		return false, c, fmt.Errorf("docker: whether k3s runs in container %s cannot be told: the engine's list of its processes lacks its first one, %d", c.Name, c.Pid)
	}
	return false, c, fmt.Errorf("docker: container %s comes and goes", short(c.ID))
}

// stranger is the k3s that runs on this host's data in none of the project's two
// containers: one of `docker compose run`, or of a project of another name that has the
// same volume. The engine's lists show it as nobody's; the lock of its entrypoint does not
// lie. It is asked for where both containers hold no k3s (safety rule 10).
func (h *Host) stranger() error {
	by, err := container.Locked(h.o.Root)
	switch {
	case err != nil:
		return nil //nolint:nilerr // a volume that cannot be locked keeps nobody down (entrypoint)
	case by == "":
		return nil
	}
	return fmt.Errorf("k3s %s runs on this host's data in a container that is none of the two of the project %s: stop that first (`docker ps` shows it)", by, h.project)
}

// RunsK3s looks for k3s itself in the list of a container's processes. A pod's processes are in the list too, and a job
// that tests k3s is another's: whatever stands below a container shim does not count,
// nor does a zombie, which holds no file, port or lock any more.
func RunsK3s(ps []Process, role fleet.Role) bool {
	parents := map[int]Process{}
	for _, p := range ps {
		parents[p.PID] = p
	}
	for _, p := range ps {
		if k3s.ProcessRole(p.Name, p.Args) == role && !strings.HasPrefix(p.State, "Z") && !inPod(p, parents) {
			return true
		}
	}
	return false
}

func inPod(p Process, parents map[int]Process) bool {
	for range len(parents) {
		up, ok := parents[p.Parent]
		if !ok {
			return false
		}
		if len(up.Args) > 0 && strings.HasPrefix(filepath.Base(up.Args[0]), "containerd-shim") {
			return true
		}
		p = up
	}
	return false
}

// unit is what a container's state means for its role.
//
// A container that runs without k3s either waits (its entrypoint was let through and
// has not come to k3s yet, for it waits for the host to join) or idles (it was told
// no, and stays so for ever). Nothing in the container says which, so it is told by
// this process's own start: an entrypoint that we started in this boot, after the
// files allowed it, waits; any other one is taken for idle, and a start makes it ask
// again.
func (h *Host) unit(c Container, process bool, role fleet.Role, files rolefile.Files, r record) platform.Unit {
	u := platform.Unit{Process: process, Since: c.Started}
	u.ConditionProblem = h.conditionProblem(c, role)
	u.Conditioned = u.ConditionProblem == ""
	if c.Started.IsZero() && r.Start.Role == role {
		u.Since = r.Start.At // of a container that was made anew since (R-228-41)
	}
	switch {
	case c.ID == "":
		u.State = platform.StateInactive
	case c.State == "restarting":
		u.State = platform.StateActivating // the wait before an automatic restart
	case c.State == "removing":
		u.State = platform.StateDeactivating
	case !c.Runs() && c.ExitCode != 0 && c.State != "created":
		u.State = platform.StateFailed
	case !c.Runs():
		u.State = platform.StateInactive
	case process && (c.Health == "" || c.Health == "healthy"):
		u.State = platform.StateActive
	case process:
		u.State = platform.StateActivating
	case rolefile.MayStart(files, role).May && r.Start.covers(role, c, files.BootID) && !h.confirmedSince(c):
		u.State = platform.StateActivating
	default:
		u.State = platform.StateInactive
		if r.Start.Role == role {
			u.Since = r.Start.At // when k3s was started; an idle container's own start is none
		}
	}
	return u
}

// conditionProblem says why a container would not ask the role files before each
// start of k3s, empty when it does (safety rule 10). One that is not there starts
// nothing.
func (h *Host) conditionProblem(c Container, role fleet.Role) string {
	if c.ID == "" {
		return ""
	}
	service := "the service " + h.service(role)
	if !asks(c.Command, role) {
		return fmt.Sprintf("%s does not run `regrade entrypoint %s`", service, role)
	}
	for _, f := range []struct{ what, at string }{
		{"the role directory", fleet.RoleDir},
		{"the folder of a confirmed join", filepath.Dir(fleet.FileJoining)},
		{"k3s's data", fleet.DefaultDataDir},
	} {
		if p := h.sameFolder(c, f.at, h.at(f.at)); p != "" {
			return fmt.Sprintf("%s: %s, %s", service, f.what, p)
		}
	}
	switch c.Restart {
	case "unless-stopped", "always":
		return ""
	}
	// k3s ends itself with status 0 too (k3s-facts §3.7).
	return fmt.Sprintf("%s has the restart policy %q: k3s would not come back by itself; set unless-stopped", service, c.Restart)
}

func asks(command []string, role fleet.Role) bool {
	for i := range command {
		if command[i] == "entrypoint" && i+1 < len(command) {
			return command[i+1] == string(role)
		}
	}
	return false
}
