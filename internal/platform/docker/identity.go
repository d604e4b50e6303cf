package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// place is one folder that says who the host is, as this process sees it for each
// role.
type place struct {
	path          string // in the containers
	server, agent string // here
}

func (l place) of(role fleet.Role) string {
	if role == fleet.RoleServer {
		return l.server
	}
	return l.agent
}

// shared: both services have one folder, and nothing is ever copied.
func (l place) shared() bool { return l.server == l.agent }

// password is the node password, without which an agent is turned away (k3s-facts §9).
func (l place) password(role fleet.Role) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(l.of(role), "password"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return bytes.TrimSpace(raw), err
}

// places finds the identity's folders by the mounts of both containers. What one
// role has in a volume and the other has not would be lost with a switch, and what
// this process does not see it cannot copy: both are a problem, in words.
func (h *Host) places(p pair) ([]place, string) {
	var out []place
	for i, path := range h.o.Identity {
		server, agent := source(p.server, path), source(p.agent, path)
		switch {
		case server == "" && agent == "" && i > 0:
			continue // no mesh, say
		case server == "" || agent == "":
			return nil, fmt.Sprintf("%s is in no volume of the service %s: it would go with the container", path, h.service(roleWithout(server)))
		}
		l := place{path: path}
		var mayServer, mayAgent bool
		l.server, mayServer = h.here(server)
		l.agent, mayAgent = h.here(agent)
		switch {
		case l.server == "" || l.agent == "":
			return nil, fmt.Sprintf("%s of the service %s is not mounted in this daemon's container", path, h.service(roleWithout(l.server)))
		case !l.shared() && !(mayServer && mayAgent):
			return nil, fmt.Sprintf("%s is mounted read-only in this daemon's container: it could not be copied", path)
		}
		out = append(out, l)
	}
	return out, ""
}

func roleWithout(server string) fleet.Role {
	if server == "" {
		return fleet.RoleServer
	}
	return fleet.RoleAgent
}

// errTwoIdentities: a person has to say which one is the host's.
var errTwoIdentities = errors.New("both services have a node password, they differ, and neither was seen running: delete the volumes of the one that is not this host's")

// bearer is the role whose folders have the host's identity: the one that ran last.
// Where none was seen running it is told by the marks of a switch, then by the node
// passwords; empty when there is none yet, as before a first start.
func (h *Host) bearer(places []place, r record) (fleet.Role, error) {
	if r.Owner != "" {
		return r.Owner, nil
	}
	for _, l := range places {
		server, agent := exists(filepath.Join(l.server, partCopy)), exists(filepath.Join(l.agent, partCopy))
		switch {
		case l.shared() || server == agent:
		case server:
			return fleet.RoleAgent, nil
		default:
			return fleet.RoleServer, nil
		}
	}
	node := places[0]
	if node.shared() {
		return "", nil
	}
	server, err := node.password(fleet.RoleServer)
	if err != nil {
		return "", err
	}
	agent, err := node.password(fleet.RoleAgent)
	if err != nil {
		return "", err
	}
	switch {
	case len(server) == 0 && len(agent) == 0:
		return "", nil
	case len(agent) == 0:
		return fleet.RoleServer, nil
	case len(server) == 0:
		return fleet.RoleAgent, nil
	case bytes.Equal(server, agent):
		return "", nil
	}
	return "", errTwoIdentities
}

// identityProblem says why a role could not be given this host's identity, empty
// when nothing speaks against it. passwordless says that the password is what lacks.
func (h *Host) identityProblem(p pair, r record) (problem string, passwordless bool) {
	places, problem := h.places(p)
	if problem != "" {
		return problem, false
	}
	node := places[0]
	role, err := h.bearer(places, r)
	if err != nil {
		return err.Error(), false
	}
	if role == "" {
		role = fleet.RoleAgent
	}
	switch password, err := node.password(role); {
	case err != nil:
		return err.Error(), false
	case len(password) == 0:
		return fmt.Sprintf("%s/password of the service %s is missing or empty: the host could not come back as an agent", node.path, h.service(role)), true
	}
	for _, l := range places {
		if l.shared() {
			continue
		}
		if problem := copyProblem(l.of(role), l.of(other(role))); problem != "" {
			return fmt.Sprintf("%s of the service %s %s", l.path, h.service(role), problem), false
		}
	}
	return "", false
}

// password is the fingerprint of the node password that is the host's now, empty
// where that cannot be told.
func (h *Host) password(p pair, r record) string {
	if p.server.ID == "" || p.agent.ID == "" {
		return ""
	}
	places, problem := h.places(p)
	if problem != "" {
		return ""
	}
	role, err := h.bearer(places, r)
	if err != nil {
		return ""
	}
	if role == "" {
		role = fleet.RoleAgent // both have the same
	}
	password, err := places[0].password(role)
	if err != nil {
		return ""
	}
	return rolefile.Fingerprint(password)
}

// parts are the marks in the identity's folders of one container: what they hold is not
// the host's yet.
func (h *Host) parts(c Container) (out []string) {
	for _, path := range h.o.Identity {
		here, _ := h.here(source(c, path))
		if part := filepath.Join(here, partCopy); here != "" && exists(part) {
			out = append(out, part)
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// mark says in the folders of a role that the host's identity has to be brought there
// first. It is asked before the other role is stopped, and before the files let this one
// in: from then on somebody else may start its container, the engine with a policy of
// always or a person, and a node password that k3s makes there itself locks the host out
// for good. A copy that is cut short has the same mark. What cannot be marked is as it was
// without: nobody is kept down for it.
func (h *Host) mark(ctx context.Context, role fleet.Role) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	p, err := h.pair(ctx)
	if err != nil || p.server.ID == "" || p.agent.ID == "" {
		return
	}
	places, problem := h.places(p)
	if problem != "" {
		return
	}
	if from, err := h.bearer(places, h.record()); err != nil || from != other(role) {
		return
	}
	for _, l := range places {
		if !l.shared() {
			_ = os.Mkdir(filepath.Join(l.of(role), partCopy), 0o700)
		}
	}
}

// carry brings the identity to where a role looks for it, and says whether anything
// was copied. It reads the folders of the role that ran last and never writes to
// them, so a copy that was cut short anywhere is made again from the same source; a
// half one is never started on, because whose identity it is is noted only after it
// is whole. Nothing of what is copied is printed (safety rule 31).
func (h *Host) carry(ctx context.Context, role fleet.Role, r record) (bool, error) {
	p, err := h.pair(ctx)
	if err != nil {
		return false, err
	}
	if r.Owner == role {
		return false, h.itsOwn(p.of(role))
	}
	if p.server.ID == "" || p.agent.ID == "" {
		// There is one service only, and so one identity; unless the other one's container
		// was taken away in the middle of a switch.
		if len(h.parts(p.of(role))) > 0 {
			return false, fmt.Errorf("identity: it is in the volumes of the service %s: %s", h.service(other(role)), p.absent[other(role)])
		}
		return false, nil
	}
	places, problem := h.places(p)
	if problem != "" {
		return false, fmt.Errorf("identity: %s", problem)
	}
	from, err := h.bearer(places, r)
	switch {
	case err != nil:
		return false, fmt.Errorf("identity: %w", err)
	case from != other(role):
		return false, h.itsOwn(p.of(role))
	}
	moved := false
	for _, l := range places {
		if l.shared() {
			continue
		}
		if !moved {
			// Asked right before: both containers are stopped (R-N-09).
			for _, c := range []Container{p.server, p.agent} {
				if !c.AtRest() {
					return false, fmt.Errorf("identity: container %s is %s: nothing is copied under it", c.Name, c.State)
				}
			}
			password, err := places[0].password(from)
			if err != nil {
				return false, fmt.Errorf("identity: %w", err)
			}
			if len(password) == 0 && !places[0].shared() {
				return false, fmt.Errorf("identity: %s/password of the service %s is missing or empty: nothing is copied", places[0].path, h.service(from))
			}
		}
		if err := h.o.copier.replace(l.of(from), l.of(role)); err != nil {
			return false, fmt.Errorf("identity: %s of the %s for the %s: %w", l.path, from, role, err)
		}
		moved = true
	}
	return moved, nil
}

// itsOwn takes marks away from folders that are known to have the host's identity: their
// role has run since, by an entrypoint that did not know of marks, or a person's hand.
func (h *Host) itsOwn(c Container) error {
	for _, part := range h.parts(c) {
		if err := os.RemoveAll(part); err != nil {
			return fmt.Errorf("identity: %w", err)
		}
	}
	return nil
}

// agentProblem says why the agent could not come back (safety rule 15).
func (h *Host) agentProblem(p pair, r record) string {
	if p.agent.ID == "" {
		return p.absent[fleet.RoleAgent]
	}
	if problem, _ := h.identityProblem(p, r); problem != "" && p.server.ID != "" {
		return problem
	}
	disk, f := h.disk(), h.files(p.agent)
	if problem := disk.AgentConfigProblem(fleet.FileAgentConf); problem != "" {
		return problem
	}
	j, err := f.Join(fleet.RoleAgent)
	switch {
	case err != nil:
		return err.Error()
	case strings.TrimSpace(j.Token.Reveal()) == "":
		return fmt.Sprintf("the service %s has no token: set K3S_TOKEN in the project's .env", h.service(fleet.RoleAgent))
	}
	return disk.AgentTokenProblem(j.Token)
}
