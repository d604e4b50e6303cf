package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// pair are the project's two k3s containers as they were seen in one go. One that
// was never made, or was removed, has no id.
type pair struct {
	server, agent Container
	// absent says why a container is not there, by role.
	absent map[fleet.Role]string
	// warnings are of the project.
	warnings []platform.Warning
}

func (p pair) of(role fleet.Role) Container {
	if role == fleet.RoleServer {
		return p.server
	}
	return p.agent
}

func other(role fleet.Role) fleet.Role {
	if role == fleet.RoleServer {
		return fleet.RoleAgent
	}
	return fleet.RoleServer
}

func (h *Host) service(role fleet.Role) string {
	if role == fleet.RoleServer {
		return h.o.ServerService
	}
	return h.o.AgentService
}

// pair finds the containers by Compose's labels, never by their names, which another
// project may have taken. Nothing is guessed: two that answer to one service are
// refused, because to stop the wrong one would stop somebody else's server.
func (h *Host) pair(ctx context.Context) (pair, error) {
	if err := h.knowSelf(ctx); err != nil {
		return pair{}, err
	}
	listed, err := h.engine.List(ctx, h.project)
	if err != nil {
		return pair{}, err
	}
	ids, err := h.idsOf(listed)
	if err != nil {
		return pair{}, err
	}
	p := pair{absent: map[fleet.Role]string{}, warnings: h.madeBy(listed)}
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		if ids[role] == "" {
			if p.absent[role], err = h.whyAbsent(ctx, role, h.makeCommand(listed)); err != nil {
				return pair{}, err
			}
			continue
		}
		c, err := h.engine.Inspect(ctx, ids[role])
		if err != nil {
			return pair{}, err
		}
		if role == fleet.RoleServer {
			p.server = c
		} else {
			p.agent = c
		}
	}
	return p, nil
}

func (h *Host) idsOf(listed []Listed) (map[fleet.Role]string, error) {
	ids, dirs := map[fleet.Role]string{}, []string{}
	// What is left of a removal counts last, where there is nothing else: a disk that was busy
	// leaves a dead container, and Compose makes another beside it.
	listed = slices.SortedStableFunc(slices.Values(listed), func(a, b Listed) int {
		switch {
		case a.leftover() == b.leftover():
			return 0
		case a.leftover():
			return 1
		}
		return -1
	})
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		for _, l := range listed {
			if l.Service != h.service(role) || l.OneOff || l.Project != h.project || l.leftover() && ids[role] != "" {
				continue
			}
			if !slices.ContainsFunc(dirs, func(dir string) bool { return h.sameDir(dir, l.Dir) }) {
				dirs = append(dirs, l.Dir)
			}
			if ids[role] == "" {
				ids[role] = l.ID
				continue
			}
			if len(dirs) == 1 {
				return nil, fmt.Errorf("docker: the project %s has more than one container of the service %s, %s among them: scale it to one, or remove what an `up` that was broken off has left", h.project, l.Service, strings.Join(append(l.Names, short(l.ID)), " "))
			}
		}
	}
	switch {
	case len(dirs) > 1:
		slices.Sort(dirs)
		return nil, fmt.Errorf("docker: two Compose projects have the name %s, in %s: where one is a link to the other make all containers anew from one of the two (docs/operations.md); where it is a copy give that another name",
			h.project, strings.Join(dirs, " and "))
	case len(dirs) == 0 && len(listed) == 0:
		return nil, fmt.Errorf("docker: there is no Compose project %s on this engine: is its name the one in docker.project?", h.project)
	case len(dirs) == 0:
		return nil, fmt.Errorf("docker: the Compose project %s has a container of neither %s nor %s: make them with `%s`",
			h.project, h.o.ServerService, h.o.AgentService, h.makeCommand(listed))
	}
	return ids, nil
}

// sameDir compares the folders of two containers' projects. A link is followed where
// this process sees it: on a host, and in a container that has them mounted.
func (h *Host) sameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, _ := h.here(a)
	y, _ := h.here(b)
	return x != "" && y != "" && sameFile(x, y)
}

// makeCommand is what a person types to have the containers that are missing, and to leave
// those that are there alone.
func (h *Host) makeCommand(listed []Listed) string {
	in := ""
	for _, l := range listed {
		if l.Project == h.project && l.Dir != "" {
			in = "cd " + l.Dir + " && "
			break
		}
	}
	return in + "docker compose --profile server --profile agent up --no-start --no-recreate"
}

// whyAbsent says why a service has no container, and names who has taken the name
// that it would get: then Compose cannot make it.
func (h *Host) whyAbsent(ctx context.Context, role fleet.Role, with string) (string, error) {
	why := fmt.Sprintf("the Compose project %s has no container of the service %s: make it with `%s`", h.project, h.service(role), with)
	all, err := h.engine.List(ctx, "")
	if err != nil {
		return "", err
	}
	would := []string{h.project + "-" + h.service(role)} // container_name, as the shipped project sets it
	for _, between := range []string{"-", "_"} {
		would = append(would, h.project+between+h.service(role)+between+"1")
	}
	for _, l := range all {
		if l.Project == h.project && l.Service == h.service(role) {
			continue
		}
		for _, n := range l.Names {
			if slices.Contains(would, n) {
				return why + fmt.Sprintf(", once the container %s, whose name is %s and which is none of it, has made way", short(l.ID), n), nil
			}
		}
	}
	return why, nil
}
