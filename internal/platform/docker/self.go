package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// containerID is in the paths that the engine mounts a container's hostname and
// resolver files from. They are those of the container whose network this one has,
// which is another one with network_mode container:NAME.
var containerID = regexp.MustCompile(`/containers/([0-9a-f]{64})/`)

// networkFiles are what an engine mounts into each container. Other mounts with an id in
// their path are a host's too: it has the shared memory of its containers mounted at
// containers/ID/mounts/shm, and is none of them.
var networkFiles = []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}

// mountinfo is this process's own (proc(5)), empty where it cannot be read.
func mountinfo() string {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return string(raw)
}

// knowSelf asks once what this process is to the engine. A container of it sees what
// the engine calls a source where its own mounts have it, and is of the project whose
// k3s it drives. On a host it has no mounts, and the project is the shipped one's
// unless the settings name another.
func (h *Host) knowSelf(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.own != nil {
		return nil
	}
	own, project := []Mount{}, DefaultProject
	info := h.o.Self()
	var near []string
	have := points(info)
	for _, file := range networkFiles {
		if m := containerID.FindStringSubmatch(have[file]); m != nil && !slices.Contains(near, m[1]) {
			near = append(near, m[1])
		}
	}
	if len(near) > 0 {
		c, err := h.myself(ctx, near, have)
		if err != nil {
			return err
		}
		own = append(own, c.Mounts...)
		h.self = c
		if c.Project != "" {
			project = c.Project
		}
	}
	if h.o.Project != "" {
		project = h.o.Project
	}
	if err := h.shares(ctx, project); err != nil {
		return err
	}
	h.own, h.project = own, project
	return nil
}

// shares refuses a role folder that is another project's too. A project that was given
// another name has other, empty volumes, and what ran under the old name runs on: two
// daemons with one role folder, each with a host lock of its own, and two k3s of one Node.
// Whoever only reads there is let be.
func (h *Host) shares(ctx context.Context, project string) error {
	own := h.at(fleet.RoleDir)
	if h.self.ID != "" {
		own = source(h.self, fleet.RoleDir)
	}
	all, err := h.engine.List(ctx, "")
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Project == "" || l.Project == project || !(Container{State: l.State}).Runs() && l.State != "restarting" {
			continue
		}
		k3s := l.Service == h.o.ServerService || l.Service == h.o.AgentService
		if slices.ContainsFunc(l.Mounts, func(m Mount) bool {
			return own != "" && m.Source == own && path.Clean(m.Target) == fleet.RoleDir && (k3s || m.Writable)
		}) {
			return fmt.Errorf("docker: the role folder %s is that of the project %s as well, whose container %s runs: a project of another name is another, empty node; take it down under its old name, or give each project folders of its own",
				own, l.Project, strings.Join(l.Names, " "))
		}
	}
	return nil
}

// myself finds the container that this process is, by its mounts: no other one has
// the engine's socket and everything else where this one has it. Those that its
// network files name are asked first, and are it as a rule.
func (h *Host) myself(ctx context.Context, near []string, have map[string]string) (Container, error) {
	var usual Container
	for _, id := range near {
		c, err := h.engine.Inspect(ctx, id)
		switch {
		case errors.Is(err, ErrGone):
			continue
		case err != nil:
			return Container{}, fmt.Errorf("this process is a container, %s or in its network: %w", short(id), err)
		}
		if _, fits := h.fits(c, have); fits {
			return c, nil
		}
		if usual.ID == "" && source(c, h.o.Socket) != "" {
			usual = c
		}
	}
	all, err := h.engine.List(ctx, "")
	if err != nil {
		return Container{}, err
	}
	var best []Container
	most := -1
	for _, l := range all {
		if slices.Contains(near, l.ID) {
			continue
		}
		c, err := h.engine.Inspect(ctx, l.ID)
		if err != nil {
			continue // it has gone meanwhile
		}
		switch alike, fits := h.fits(c, have); {
		case !fits || !c.Runs() || alike < most:
		case alike == most && twins(best[0], c):
			// `compose run` of the daemon's service beside the daemon: either answer is right.
		case alike == most:
			best = append(best, c)
		default:
			best, most = []Container{c}, alike
		}
	}
	switch {
	case len(best) == 1:
		return best[0], nil
	case len(best) > 1:
		return Container{}, fmt.Errorf("this process is one of the containers %s and %s, and their mounts are alike", best[0].Name, best[1].Name)
	case usual.ID != "":
		return usual, nil
	}
	return Container{}, fmt.Errorf("this process is a container that the engine at %s does not know (%s): is the socket this engine's?", h.o.Socket, short(near[0]))
}

// twins have one project and the same mounts, which is all that is asked of them.
func twins(a, b Container) bool {
	if a.Project != b.Project || len(a.Mounts) != len(b.Mounts) {
		return false
	}
	for _, m := range a.Mounts {
		if !slices.Contains(b.Mounts, m) {
			return false
		}
	}
	return true
}

// fits says whether a container has its mounts where this process has mounts, the
// engine's socket among them, and how many of them come from folders of like names. A
// source is the engine's path, and a root the path in its file system, so only their
// ends can be alike.
func (h *Host) fits(c Container, have map[string]string) (alike int, fits bool) {
	if source(c, h.o.Socket) == "" {
		return 0, false
	}
	for _, m := range c.Mounts {
		if m.Source == "" {
			continue // made in memory
		}
		root, ok := have[path.Clean(m.Target)]
		if !ok {
			resolved, err := filepath.EvalSymlinks(m.Target)
			if root, ok = have[resolved]; err != nil || !ok {
				return 0, false
			}
		}
		if last(root) == last(m.Source) {
			alike++
		}
	}
	return alike, true
}

// last are the last two names of a path: a volume's folder is always called _data.
func last(p string) string {
	dir, name := path.Split(path.Clean(p))
	return path.Join(path.Base(dir), name)
}

// points are the mount points of a mountinfo, and of each the root: where it begins
// in its file system.
func points(info string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(info) {
		if f := strings.Fields(line); len(f) > 4 {
			out[unescaped.Replace(f[4])] = unescaped.Replace(f[3])
		}
	}
	return out
}

var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
