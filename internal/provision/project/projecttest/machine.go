// Package projecttest is a Docker host for tests: an engine, Compose and a disk, which do what
// they are told as the real ones do.
package projecttest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/provision/project"
)

// Box is a container of the machine's engine.
type Box struct {
	docker.Listed
	Image   string
	Env     map[string]string
	Hash    string // of everything that it was made from
	Data    string // where its data volume lies
	Process []docker.Process
	PID     int
}

// Machine is a host with an engine and Compose, which do what they are told as the real
// ones do: what differs is made anew, running or not, unless --no-recreate is said.
type Machine struct {
	t    *testing.T
	Root string
	// Have are the programs; Plugin says that docker has Compose as a plugin, of Version.
	Have    map[string]bool
	Plugin  bool
	Version string

	// Boxes are the containers, Images the ids of those that the engine has, by name;
	// Registry those that can be pulled, Archive those of a file that is loaded.
	Boxes    []*Box
	Images   map[string]string
	Registry map[string]bool
	Archive  []string
	// Insecure are registries that the engine asks without TLS; docker asks them so where it is
	// told to.
	Insecure []string
	next     int

	// Calls are the commands that change something.
	Calls []string
	// Fail is the call that ends in an error, the first being 1; Says what it prints then.
	Fail int
	Says string
	// OnRun is called with each of them before it is carried out.
	OnRun func(project.Command)
	// Killed are names of containers that were made anew while k3s ran in them.
	Killed []string
	// Broken makes Compose forget --no-recreate.
	Broken bool
}

// ErrPower is what a call that fails ends in.
var ErrPower = errors.New("the power is gone")

// New is a host with an engine, two images and nothing else.
func New(t *testing.T) *Machine {
	m := &Machine{
		t: t, Root: t.TempDir(), Have: map[string]bool{"ps": true, "docker": true, "modprobe": true}, Plugin: true, Version: "2.29.7",
		Images: map[string]string{"rancher/k3s:v1.36.3-k3s1": "sha256:k3s", "regrade:v1": "sha256:regrade"}, Registry: map[string]bool{},
	}
	m.Plant("/sys/module/overlay/refcnt", "1", 0o644)
	m.Plant("/proc/1/stat", "1 (init) S 0 1", 0o644)
	m.Plant("/proc/1/cmdline", "/sbin/init\x00", 0o644)
	return m
}

// Host is it as package project sees it.
func (m *Machine) Host() project.Host {
	return project.Host{
		Root:     m.Root,
		Engine:   func(string) (project.Engine, error) { return m, nil },
		Programs: func(string) project.Programs { return m },
	}
}

// At is a path of the host, in the test's folder.
func (m *Machine) At(path string) string { return filepath.Join(m.Root, path) }

// Plant writes a file.
func (m *Machine) Plant(path, content string, mode fs.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.At(path)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(m.At(path), []byte(content), mode), os.Chmod(m.At(path), mode)); err != nil {
		m.t.Fatal(err)
	}
}

// Read reads one.
func (m *Machine) Read(path string) string {
	m.t.Helper()
	raw, err := os.ReadFile(m.At(path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(raw)
}

// Box is the project's container of a service, nil for none.
func (m *Machine) Box(service string) *Box {
	for _, b := range m.Boxes {
		if b.Service == service && b.Project == "regrade" {
			return b
		}
	}
	return nil
}

// Ping implements project.Engine.
func (m *Machine) Ping(context.Context) error { return nil }

// List implements project.Engine.
func (m *Machine) List(_ context.Context, name string) ([]docker.Listed, error) {
	var out []docker.Listed
	for _, b := range m.Boxes {
		if name == "" || b.Project == name {
			out = append(out, b.Listed)
		}
	}
	return out, nil
}

func (m *Machine) find(id string) *Box {
	for _, b := range m.Boxes {
		if b.ID == id || slices.Contains(b.Names, id) {
			return b
		}
	}
	return nil
}

// Inspect implements project.Engine.
func (m *Machine) Inspect(_ context.Context, id string) (docker.Container, error) {
	b := m.find(id)
	if b == nil {
		return docker.Container{}, docker.ErrGone
	}
	c := docker.Container{ID: b.ID, Name: b.Names[0], Project: b.Project, Image: b.Image, State: b.State, Pid: b.PID, Env: func(k string) string { return b.Env[k] }}
	if b.Data != "" {
		c.Mounts = []docker.Mount{{Source: b.Data, Target: fleet.DefaultDataDir, Writable: true}}
	}
	return c, nil
}

// Processes implements project.Engine.
func (m *Machine) Processes(_ context.Context, id string) ([]docker.Process, error) {
	b := m.find(id)
	if b == nil || b.State != "running" {
		return nil, docker.ErrAtRest
	}
	return b.Process, nil
}

// Has implements project.Programs.
func (m *Machine) Has(name string) bool { return m.Have[name] }

// Run implements project.Programs.
func (m *Machine) Run(_ context.Context, c project.Command) (project.Output, error) {
	words := strings.Join(c.Argv, " ")
	done := func(text string, ok bool) (project.Output, error) {
		if ok {
			return project.Output{Text: text}, nil
		}
		return project.Output{Code: 1, Text: text}, nil
	}
	name := c.Argv[len(c.Argv)-1]
	switch {
	case words == "docker compose version --short":
		return done(m.Version+"\n", m.Plugin)
	case words == "docker-compose version --short":
		return done("1.29.2\n", true)
	case strings.HasPrefix(words, "docker volume inspect"):
		dir := "/var/lib/docker/volumes/" + name + "/_data"
		_, err := os.Stat(m.At(dir))
		if err != nil {
			dir = "Error: No such volume: " + name
		}
		return done(dir, err == nil)
	case strings.HasPrefix(words, "docker image inspect"):
		if m.Images[name] == "" {
			return done("Error: No such image: "+name, false)
		}
		return done(m.Images[name]+"\n", true)
	case strings.HasPrefix(words, "docker manifest inspect"):
		host := strings.Split(name, "/")[0]
		plain := slices.ContainsFunc(m.Insecure, func(v string) bool {
			network, err := netip.ParsePrefix(v)
			ip, none := netip.ParseAddr(strings.Split(host, ":")[0])
			return v == host || err == nil && none == nil && network.Contains(ip)
		})
		return done("", m.Registry[name] && plain == slices.Contains(c.Argv, "--insecure"))
	case strings.HasPrefix(words, "docker info -f"):
		return done("docker.io "+strings.Join(m.Insecure, " ")+" 127.0.0.0/8\n", true)
	}
	m.Calls = append(m.Calls, c.String())
	if m.OnRun != nil {
		m.OnRun(c)
	}
	if m.Fail == len(m.Calls) {
		if m.Says != "" {
			return done(m.Says, false)
		}
		return project.Output{}, ErrPower
	}
	switch {
	case strings.HasPrefix(words, "docker load"):
		for _, i := range m.Archive {
			m.Images[i] = "sha256:of-" + i
		}
	case strings.HasPrefix(words, "docker pull"):
		m.Images[name] = "sha256:of-" + name
	case strings.HasPrefix(words, "docker build"):
		if !bytes.Contains(c.In, []byte("FROM ${K3S_IMAGE}")) {
			return done("no Dockerfile", false)
		}
		m.Images[c.Argv[len(c.Argv)-2]] = "sha256:built-" + c.Argv[len(c.Argv)-2]
	case strings.HasPrefix(words, "docker restart"), strings.HasPrefix(words, "docker stop"):
		b := m.find(name)
		m.Stop(b)
		if c.Argv[1] == "restart" {
			m.Start(b)
		}
	case strings.HasPrefix(words, "docker rm"):
		m.Boxes = slices.DeleteFunc(m.Boxes, func(b *Box) bool { return slices.Contains(b.Names, name) })
	case c.Argv[0] == "modprobe":
		m.Plant("/proc/sys/net/bridge/x", "", 0o644)
	case strings.Contains(words, " up "):
		return m.up(c)
	default:
		m.t.Fatalf("an unknown command: %s", words)
	}
	return done("", true)
}

// up is `compose up`.
func (m *Machine) up(c project.Command) (project.Output, error) {
	raw, err := os.ReadFile(filepath.Join(m.At(c.Dir), ".env"))
	if err != nil {
		return project.Output{Code: 14, Text: "no .env"}, nil
	}
	e := project.ParseEnv(raw)
	of := func(key, otherwise string) string {
		if v := e.Get(key); v != "" {
			return v
		}
		return otherwise
	}
	if e.Get("COMPOSE_FILE") == "" {
		m.t.Error("no COMPOSE_FILE")
	}
	gone := false
	for name := range strings.SplitSeq(e.Get("COMPOSE_FILE"), ":") {
		if _, err := os.Stat(filepath.Join(m.At(c.Dir), name)); err != nil {
			return project.Output{Code: 14, Text: err.Error()}, nil
		}
		if name == "without-regrade.yaml" {
			gone = true
			continue
		}
	}
	profiles, named, flags := map[string]bool{}, []string{}, map[string]bool{}
	for i := len(strings.Fields("docker compose")); i < len(c.Argv); i++ {
		switch w := c.Argv[i]; {
		case w == "--profile":
			i++
			profiles[c.Argv[i]] = true
		case strings.HasPrefix(w, "-"):
			flags[w] = true
		case w != "up":
			named = append(named, w)
		}
	}
	if m.Broken {
		flags["--no-recreate"] = false
	}
	for _, s := range []struct{ service, profile string }{{"k3s", "server"}, {"k3s-agent", "agent"}, {"regrade-host", ""}} {
		if len(named) > 0 && !slices.Contains(named, s.service) || len(named) == 0 && s.profile != "" && !profiles[s.profile] || len(named) == 0 && gone && s.profile == "" {
			continue
		}
		image := of("K3S_REGRADE_IMAGE", "k3s-regrade:latest")
		if s.profile == "" {
			image = e.Get("REGRADE_IMAGE")
		}
		if m.Images[image] == "" {
			return project.Output{Code: 1, Text: "no such image " + image}, nil
		}
		hash, env := m.Images[image]+s.service, map[string]string{}
		for _, key := range []string{
			"K3S_NODE_NAME", "K3S_TOKEN", "K3S_TOKEN_FILE", "K3S_AGENT_TOKEN", "K3S_AGENT_TOKEN_FILE", "K3S_JOIN_SERVER_URL", "K3S_AGENT_SERVER_URL", "K3S_DATASTORE",
			"K3S_CLUSTER_INIT", "FLEET_ROLE_INVENTORY_ROLE", "FLEET_ROLE_ELIGIBLE", "FLEET_ROLE_PINNED", "FLEET_ROLE_LABEL_PREFIX", "FLEET_ROLE_K3S",
		} {
			env[key] = e.Get(key)
			hash += env[key] + "\n"
		}
		if s.profile == "" {
			hash += e.Get("DOCKER_SOCKET") + e.Get("REGRADE_SETTINGS_DIR")
		}
		b := m.Box(s.service)
		if b != nil && b.Hash != hash && !flags["--no-recreate"] {
			if b.K3s() {
				m.Killed = append(m.Killed, b.Names[0])
			}
			m.Boxes = slices.DeleteFunc(m.Boxes, func(x *Box) bool { return x == b })
			b = nil
		}
		if b == nil {
			m.next++
			name := e.Get("COMPOSE_PROJECT_NAME")
			b = &Box{Listed: docker.Listed{ID: fmt.Sprintf("id-%d", m.next), Names: []string{name + "-" + s.service}, Project: name, Service: s.service, Dir: c.Dir, State: "created"}, Image: m.Images[image], Env: env, Hash: hash}
			if s.profile != "" {
				b.Data = "/var/lib/docker/volumes/" + name + "_k3s-data/_data"
				if err := os.MkdirAll(m.At(b.Data), 0o755); err != nil {
					m.t.Fatal(err)
				}
			}
			m.Boxes = append(m.Boxes, b)
		}
		if flags["-d"] {
			m.Start(b)
		}
	}
	return project.Output{}, nil
}

// K3s says whether k3s runs in it.
func (b *Box) K3s() bool { return len(b.Process) > 1 }

// Start is that of the shipped entrypoint: k3s runs where the role file lets it.
func (m *Machine) Start(b *Box) {
	if b.State == "running" {
		return
	}
	m.next++
	b.State, b.PID = "running", m.next
	b.Process = []docker.Process{{PID: b.PID, Name: "regrade", Args: []string{"regrade"}}}
	role := map[string]string{"k3s": "server", "k3s-agent": "agent"}[b.Service]
	file, err := os.ReadFile(m.At("/srv/k3s/fleet-role.d/role"))
	if err != nil {
		file = []byte(b.Env["FLEET_ROLE_INVENTORY_ROLE"])
	}
	if role != "" && strings.TrimSpace(string(file)) == role {
		b.Process = append(b.Process, docker.Process{PID: b.PID + 1000, Parent: b.PID, Name: "k3s-" + role, Args: []string{"k3s", role}})
	}
}

// Stop stops a container.
func (m *Machine) Stop(b *Box) { b.State, b.Process = "exited", nil }

// State is everything of the host: files with modes, containers.
func (m *Machine) State() map[string]string {
	m.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(m.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if !d.IsDir() {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(raw)
		}
		out[strings.TrimPrefix(path, m.Root)] = info.Mode().String() + "\n" + content
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, b := range m.Boxes {
		out["container "+b.Names[0]] = fmt.Sprint(b.State, b.Image, b.Env, b.K3s())
	}
	for name, id := range m.Images {
		out["image "+name] = id
	}
	return out
}

// Saved writes an archive as `docker save` does.
func Saved(t *testing.T, path string, names ...string) {
	t.Helper()
	manifest, err := json.Marshal([]map[string]any{{"Config": "x.json", "RepoTags": names}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range map[string][]byte{"layer.tar": bytes.Repeat([]byte("x"), 5000), "manifest.json": manifest} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
