package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/procs"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Services of the shipped project.
const (
	serviceServer = docker.DefaultServerService
	serviceAgent  = docker.DefaultAgentService
	serviceDaemon = "regrade-host"
)

// services are those of k3s.
var services = []string{serviceServer, serviceAgent}

func serviceOf(role fleet.Role) string {
	if role == fleet.RoleServer {
		return serviceServer
	}
	return serviceAgent
}

const (
	fileModules  = "/etc/modules-load.d/regrade.conf"
	secretMode   = 0o600
	readableMode = 0o644
)

// Engine is the host's engine, as far as it is looked at.
type Engine interface {
	Ping(ctx context.Context) error
	List(ctx context.Context, project string) ([]docker.Listed, error)
	Inspect(ctx context.Context, id string) (docker.Container, error)
	Processes(ctx context.Context, id string) ([]docker.Process, error)
}

// Host is one Docker host: its files below Root, its engine and its programs.
type Host struct {
	Root string
	// Engine and Programs are those of an engine's socket.
	Engine   func(socket string) (Engine, error)
	Programs func(socket string) Programs
}

func (h Host) at(path string) string { return filepath.Join("/", h.Root, path) }

// Socket is the engine's for a document: its own word, else the .env's.
func (h Host) Socket(d setup.Desired) (string, error) {
	e, _, err := h.env(d.DockerPart().Folder)
	if err != nil {
		return "", err
	}
	for _, s := range []string{d.DockerPart().Socket, e.Get(varSocket)} {
		if s != "" {
			return s, nil
		}
	}
	return docker.DefaultSocket, nil
}

func (h Host) env(folder string) (Env, bool, error) {
	raw, err := os.ReadFile(h.at(filepath.Join(folder, fileEnv)))
	if errors.Is(err, fs.ErrNotExist) {
		return ParseEnv(nil), false, nil
	}
	if err != nil {
		return Env{}, false, fmt.Errorf("look at the host: %w", err)
	}
	return ParseEnv(raw), true, nil
}

// Look reads everything that a plan is made of, and changes nothing.
func (h Host) Look(ctx context.Context, d setup.Desired) (Seen, error) {
	s, err := h.look(ctx, d)
	if err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	return s, nil
}

func (h Host) look(ctx context.Context, d setup.Desired) (Seen, error) {
	part := d.DockerPart()
	s := Seen{Boxes: map[string]*Box{}, Files: map[string][]byte{}, Open: map[string]fs.FileMode{}, Images: map[string]string{}, Pullable: map[string]bool{}}
	var err error
	if s.Record, err = Recorded(h.Root); err != nil {
		return Seen{}, err
	}
	if s.Env, s.Have, err = h.env(part.Folder); err != nil {
		return Seen{}, err
	}
	set, err := d.Settings()
	if err != nil {
		return Seen{}, err
	}
	socket, err := h.Socket(d)
	if err != nil {
		return Seen{}, err
	}
	programs := h.Programs(socket)
	if err := s.tools(ctx, programs); err != nil {
		return Seen{}, err
	}
	engine, err := h.Engine(socket)
	if err != nil {
		return Seen{}, err
	}
	if err := engine.Ping(ctx); err != nil {
		return Seen{}, err
	}
	// Of what the host shall have only names and places count here.
	w := s.wanted(d, set)
	if err := h.containers(ctx, engine, w[varProject], part.Folder, &s); err != nil {
		return Seen{}, err
	}
	if err := h.data(ctx, engine, programs, w[varProject], &s); err != nil {
		return Seen{}, err
	}
	if err := h.roles(part.Folder, w, &s); err != nil {
		return Seen{}, err
	}
	if s.Data != "" {
		if s.Node, s.CA, err = (k3s.Disk{Root: h.Root, DataDir: s.Data}).Whose(); err != nil {
			return Seen{}, err
		}
	}
	if err := h.files(part.Folder, w, &s); err != nil {
		return Seen{}, err
	}
	w = s.wanted(d, set) // by now it is known whether there are containers and a role
	if err := h.images(ctx, programs, w, part.Archive, &s); err != nil {
		return Seen{}, err
	}
	for name, sign := range map[string]string{"br_netfilter": "/proc/sys/net/bridge", "overlay": "/sys/module/overlay"} {
		if _, err := os.Stat(h.at(sign)); err != nil {
			s.Modules = append(s.Modules, name)
		}
	}
	slices.Sort(s.Modules)
	return s, nil
}

// wanted are the variables for what has been seen so far.
func (s Seen) wanted(d setup.Desired, h settings.Host) map[string]string {
	return wanted(d, h, prior{env: s.Env, have: s.Have, made: s.Boxes[serviceServer] != nil || s.Boxes[serviceAgent] != nil, recorded: s.Roles.Role != ""})
}

// Recorded is what an earlier setup wrote down, nil for none. One of a native host is a
// record of another platform.
func Recorded(root string) (*Record, error) {
	raw, err := os.ReadFile(filepath.Join("/", root, fleet.FileInstalled))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", fleet.FileInstalled, err)
	}
	return &r, nil
}

// tools finds the programs. A Compose of its own is asked for after docker's plugin.
func (s *Seen) tools(ctx context.Context, p Programs) error {
	if !p.Has("ps") {
		s.Lacks = append(s.Lacks, "ps (procps), with which the engine lists a container's processes")
	}
	if !p.Has("docker") {
		s.Lacks = append(s.Lacks, "the docker program")
		return nil
	}
	for _, words := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if !p.Has(words[0]) {
			continue
		}
		out, err := p.Run(ctx, Command{Argv: append(slices.Clone(words), "version", "--short")})
		if err != nil {
			return err
		}
		if v := strings.TrimPrefix(strings.TrimSpace(out.Text), "v"); out.Code == 0 && v != "" {
			s.Compose, s.Version = words, v
			return nil
		}
	}
	s.Lacks = append(s.Lacks, "Docker Compose, v2 (docker compose) or 1.29 (docker-compose)")
	return nil
}

// containers finds the project's containers, and everything that may be mistaken for it.
func (h Host) containers(ctx context.Context, e Engine, project, folder string, s *Seen) error {
	all, err := e.List(ctx, "")
	if err != nil {
		return err
	}
	pids := map[int]bool{}
	for _, l := range all {
		name := strings.Join(l.Names, " ")
		k3s, own := slices.Contains(services, l.Service), l.Service == serviceDaemon
		mine := l.Project == project && (k3s || own) && !l.OneOff
		here := h.same(l.Dir, folder)
		switch {
		case mine && !here:
			s.Elsewhere = append(s.Elsewhere, fmt.Sprintf("the Compose project %s is in %s (container %s): write docker.folder: %s, or give one of the two another docker.project", project, l.Dir, name, l.Dir))
		case here && l.Project != project && (k3s || own) && !l.OneOff:
			s.Elsewhere = append(s.Elsewhere, fmt.Sprintf("the project in %s is called %s (container %s): write docker.project: %s, for another name is another, empty node", folder, l.Project, name, l.Project))
		}
		role, err := h.k3sIn(ctx, e, l, pids)
		if err != nil {
			return err
		}
		if role != "" && (!mine || !here || !k3s) {
			of := "of no Compose project"
			if l.Project != "" {
				of = fmt.Sprintf("of the Compose project %s in %s", l.Project, l.Dir)
			}
			s.Outside = append(s.Outside, fmt.Sprintf("k3s %s runs in the container %s %s", role, name, of))
		}
		if !mine || !here || l.State == "dead" || l.State == "removing" {
			continue
		}
		if s.Boxes[l.Service] != nil {
			s.Elsewhere = append(s.Elsewhere, fmt.Sprintf("the project %s has more than one container of the service %s, %s among them: take away the one that an `up` that was broken off has left", project, l.Service, name))
			continue
		}
		c, err := e.Inspect(ctx, l.ID)
		if err != nil {
			return err
		}
		s.Boxes[l.Service] = &Box{ID: c.ID, Name: c.Name, State: c.State, Image: c.Image, Env: c.Env, K3s: role}
		for _, m := range c.Mounts {
			if k3s && filepath.Clean(m.Target) == fleet.DefaultDataDir {
				s.Data = m.Source
			}
		}
	}
	return h.strays(pids, s)
}

// strays finds k3s among the processes that the engine has not listed: one of a unit, or of
// a container of something else.
func (h Host) strays(listed map[int]bool, s *Seen) error {
	all, err := procs.All(h.at("/proc"))
	if err != nil {
		return err
	}
	var ps []docker.Process
	for _, p := range all {
		if !listed[p.PID] {
			ps = append(ps, docker.Process{PID: p.PID, Parent: p.Parent, Name: p.Comm, Args: p.Args})
		}
	}
	for _, role := range roles {
		if docker.RunsK3s(ps, role) {
			s.Outside = append(s.Outside, fmt.Sprintf("k3s %s runs on this host itself, in no container of its engine", role))
		}
	}
	return nil
}

// k3sIn is the role of the k3s that runs in a container. That there is none is believed of
// a list alone that has the container's first process in it, as in package docker.
func (h Host) k3sIn(ctx context.Context, e Engine, l docker.Listed, pids map[int]bool) (fleet.Role, error) {
	for range 3 {
		c, err := e.Inspect(ctx, l.ID)
		switch {
		case errors.Is(err, docker.ErrGone):
			return "", nil
		case err != nil:
			return "", err
		case !c.Runs():
			return "", nil
		}
		ps, err := e.Processes(ctx, l.ID)
		switch {
		case errors.Is(err, docker.ErrAtRest), errors.Is(err, docker.ErrGone):
			continue
		case err != nil:
			return "", err
		case !slices.ContainsFunc(ps, func(p docker.Process) bool { return p.PID == c.Pid }):
			continue
		}
		for _, p := range ps {
			pids[p.PID] = true
		}
		for _, role := range roles {
			if docker.RunsK3s(ps, role) {
				return role, nil
			}
		}
		return "", nil
	}
	return "", fmt.Errorf("whether k3s runs in the container %s cannot be told: the engine's list of its processes lacks its first one, or it comes and goes", strings.Join(l.Names, " "))
}

// same compares two folders, links followed.
func (h Host) same(a, b string) bool {
	if a == "" {
		return false
	}
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err1 := os.Stat(h.at(a))
	y, err2 := os.Stat(h.at(b))
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// data finds the data volume, also one whose containers are gone.
func (h Host) data(ctx context.Context, e Engine, p Programs, project string, s *Seen) error {
	name := volume(project)
	if s.Data == "" && p.Has("docker") {
		out, err := p.Run(ctx, Command{Argv: []string{"docker", "volume", "inspect", "-f", "{{.Mountpoint}}", name}})
		switch {
		case err != nil:
			return err
		case out.Code == 0:
			s.Data = strings.TrimSpace(out.Text)
		case !strings.Contains(strings.ToLower(out.Text), "no such volume"):
			return fmt.Errorf("ask for the volume %s: exit status %d: %s", name, out.Code, strings.TrimSpace(out.Text))
		default:
			return nil
		}
	}
	if info, err := os.Stat(h.at(s.Data)); s.Data == "" || err != nil || !info.IsDir() {
		s.Data, s.DataProblem = "", fmt.Sprintf("the volume %s is not a folder of this host that can be looked into (%q): whether the host is a member cannot be told", name, s.Data)
	}
	return nil
}

// roles reads the role files and the datastore.
func (h Host) roles(folder string, w map[string]string, s *Seen) error {
	var err error
	if s.Roles, err = (rolefile.Dir{Root: h.Root, RoleDir: in(folder, w[varRoleDir]), RunDir: in(folder, w[varRunDir])}).Read(); err != nil {
		return err
	}
	if s.Data == "" {
		return nil
	}
	disk := k3s.Disk{Root: h.Root, DataDir: s.Data}
	if s.Roles.WAL, s.Roles.Tombstone, err = disk.Initialised(); err != nil {
		return err
	}
	if s.Roles.Demoted, err = disk.Demoted(); err != nil {
		return err
	}
	raw, err := os.ReadFile(disk.Path(fleet.FileLevel))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	level, err := fleet.ParseLevel(strings.TrimSpace(string(raw)))
	s.Lowered = err != nil || level != fleet.LevelFull
	return nil
}

// files reads those that a plan may write, and sees that the project's others are there.
func (h Host) files(folder string, w map[string]string, s *Seen) error {
	for _, path := range paths(folder, w) {
		info, err := os.Stat(h.at(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(h.at(path))
		if err != nil {
			return err
		}
		s.Files[path] = raw
		if m := info.Mode().Perm(); m&0o077 != 0 {
			s.Open[path] = m
		}
	}
	for _, name := range composeFiles(w[varFiles]) {
		if slices.Contains([]string{fileCompose, fileRights, fileIdentity}, name) {
			continue
		}
		if _, err := os.Stat(h.at(in(folder, name))); err != nil {
			s.Absent = append(s.Absent, name)
		}
	}
	return nil
}

// paths are the files that a plan may write, on the host.
func paths(folder string, w map[string]string) []string {
	k, conf := in(folder, w[varK3sDir]), in(folder, w[varSettings])
	return []string{
		fileModules,
		in(folder, fileCompose), in(folder, fileRights), in(folder, fileIdentity), in(folder, fileImage), in(folder, fileWithout),
		filepath.Join(k, configs[fleet.RoleServer]), filepath.Join(k, configs[fleet.RoleAgent]), filepath.Join(k, filepath.Base(fleet.FileKubeconfig)),
		filepath.Join(conf, filepath.Base(fleet.FileHostConfig)), filepath.Join(conf, filepath.Base(fleet.FileJoinConfig)),
		filepath.Join(in(folder, w[varRoleDir]), filepath.Base(fleet.FileRole)),
		in(folder, fileEnv),
	}
}
