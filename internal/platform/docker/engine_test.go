package docker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// What a token and a node password must never be found as.
const (
	secretToken    = "K10secret-token-of-the-cluster"
	secretPassword = "secret-node-password-of-the-host"
	secretKey      = "secret-mesh-key-of-the-host"
)

// box is a container of the fake engine.
type box struct {
	id, name, project, service, dir string
	oneOff                          bool
	image                           string
	compose                         string // the version that made it
	command                         []string
	env                             []string
	restart                         string
	mounts                          [][2]string // source, target
	readOnly                        bool        // all of them
	network                         string      // the id of the container whose it has
	address                         string

	state   string
	exit    int
	started time.Time
	health  string
	main    []string // the arguments of its first process
	more    []string // rows of ps below it
	unseen  bool     // ps shows nothing of it
}

// fakeEngine speaks as much of the Engine API as is used, on a unix socket. What it
// does not know fails the test: regrade makes no container and removes none.
type fakeEngine struct {
	boot    string // this boot's id
	version string // the engine's
	refuses string // what it says of each call's version of the API
	t       *testing.T
	root    string
	socket  string

	mu    sync.Mutex
	boxes []*box
	calls []string
	// before, when set, is asked before each call: "start k3s", "stop k3s-agent",
	// "inspect k3s". An error is the engine's answer.
	before func(call string) error
	// waits: the entrypoint waits for the join host.
	waits bool
	// breaksOff: a restart stops a container and fails, as when the caller is gone.
	breaksOff bool
	text      string // what an exec prints
	code      int
	clock     time.Time
}

// firstPID is a container's first process, as the engine counts.
const firstPID = 100

func newEngine(t *testing.T) *fakeEngine {
	t.Helper()
	e := &fakeEngine{t: t, boot: "boot-1", root: t.TempDir(), clock: time.Now().UTC(), text: "k3s version v1.36.3+k3s1 (abc)\n"}
	dir, err := os.MkdirTemp("", "engine") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e.socket = filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: e}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	for _, dir := range []string{fleet.RoleDir, "/run/regrade", fleet.DefaultDataDir} {
		if err := os.MkdirAll(filepath.Join(e.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, service := range []string{"k3s", "k3s-agent"} {
		role := "server"
		if service == "k3s-agent" {
			role = "agent"
		}
		e.boxes = append(e.boxes, &box{
			id: strings.Repeat(fmt.Sprintf("%02x", len(e.boxes)+10), 32), name: "github-runner-" + service, project: "github-runner", service: service, dir: "/srv/github-runner",
			image: "sha256:k3s", command: []string{"/regrade", "entrypoint", role}, restart: "unless-stopped", state: "created",
			env:    []string{"K3S_TOKEN=" + secretToken, "K3S_AGENT_SERVER_URL=https://10.0.0.9:6443"},
			mounts: e.mounts("k3s-node", "k3s-tailscale-data"),
		})
	}
	return e
}

// mounts are a k3s container's, with its identity in the volumes of these names.
func (e *fakeEngine) mounts(node, mesh string) [][2]string {
	m := [][2]string{{e.at(fleet.RoleDir), fleet.RoleDir}, {e.at("/run/regrade"), "/run/regrade"}, {e.at(fleet.DefaultDataDir), fleet.DefaultDataDir}}
	for name, target := range map[string]string{node: "/etc/rancher/node", mesh: "/var/lib/tailscale"} {
		if err := os.MkdirAll(e.at("/volumes/"+name), 0o755); err != nil {
			e.t.Fatal(err)
		}
		m = append(m, [2]string{e.at("/volumes/" + name), target})
	}
	return m
}

// separate gives the agent volumes of its own.
func (e *fakeEngine) separate() {
	e.box("k3s-agent").mounts = e.mounts("k3s-agent-node", "k3s-agent-tailscale-data")
}

func (e *fakeEngine) at(path string) string { return filepath.Join(e.root, path) }

func (e *fakeEngine) box(service string) *box {
	for _, b := range e.boxes {
		if b.service == service {
			return b
		}
	}
	e.t.Fatalf("no box %s", service)
	return nil
}

func (e *fakeEngine) host(change ...func(*Options)) *Host {
	e.t.Helper()
	o := Options{
		Root: e.root, Socket: e.socket, PeerAddress: "127.0.0.1:0",
		Self: func() string { return "" }, BootID: func() (string, error) { return e.boot, nil },
	}
	for _, c := range change {
		c(&o)
	}
	h, err := New(o)
	if err != nil {
		e.t.Fatal(err)
	}
	return h
}

func (e *fakeEngine) plant(path, content string) {
	e.t.Helper()
	full := e.at(path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

func (e *fakeEngine) read(path string) string {
	e.t.Helper()
	raw, err := os.ReadFile(e.at(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.t.Fatal(err)
	}
	return string(raw)
}

// effects are the calls that change something.
func (e *fakeEngine) effects() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, c := range e.calls {
		if !strings.HasPrefix(c, "inspect") && !strings.HasPrefix(c, "top") && c != "list" {
			out = append(out, c)
		}
	}
	return out
}

func (e *fakeEngine) reset() { e.mu.Lock(); e.calls = nil; e.mu.Unlock() }

// up is what a container's start does: the entrypoint asks the role files.
func (e *fakeEngine) up(b *box) {
	e.clock = e.clock.Add(time.Second)
	if now := time.Now().UTC(); now.After(e.clock) {
		e.clock = now
	}
	b.state, b.started, b.exit = "running", e.clock, 0
	b.main, b.more = b.command, nil
	role := fleet.Role(b.command[len(b.command)-1])
	f := container.New(e.root, func(name string) string {
		for _, kv := range b.env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	})
	f.SetBootID(func() (string, error) { return e.boot, nil })
	files, err := f.Role()
	if err != nil || !rolefile.MayStart(files, role).May || e.waits {
		return
	}
	for _, m := range b.mounts {
		if slices.Contains(container.Identity(), m[1]) && exists(filepath.Join(m[0], partCopy)) && (role == fleet.RoleAgent || !files.WAL) {
			return
		}
	}
	level, err := f.Level()
	if role == fleet.RoleServer && err == nil {
		if err := f.SetStarted(level); err != nil {
			e.t.Error(err)
		}
	}
	b.main = []string{"/bin/k3s", string(role)}
}

func (e *fakeEngine) down(b *box) {
	if b.state == "running" || b.state == "paused" || b.state == "restarting" {
		b.state, b.main, b.more = "exited", nil, nil
	}
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.41")
	if r.URL.Path == "/_ping" {
		_, _ = w.Write([]byte("OK"))
		return
	}
	if e.refuses != "" {
		answer(w, http.StatusBadRequest, map[string]string{"message": e.refuses})
		return
	}
	if r.URL.Path == "/v1.41/version" {
		e.mu.Lock()
		defer e.mu.Unlock()
		answer(w, http.StatusOK, map[string]string{"Version": e.version, "ApiVersion": "1.41"})
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v1.41/")
	if !ok {
		e.t.Errorf("another API version: %s", r.URL.Path)
	}
	parts := strings.Split(path, "/")
	if parts[0] == "exec" {
		e.exec(w, r, parts)
		return
	}
	if path == "containers/json" {
		e.list(w, r)
		return
	}
	var b *box
	e.mu.Lock()
	for _, x := range e.boxes {
		if len(parts) == 3 && x.id == parts[1] {
			b = x
		}
	}
	e.mu.Unlock()
	if b == nil {
		answer(w, http.StatusNotFound, map[string]string{"message": "No such container: " + parts[1]})
		return
	}
	word := map[string]string{"GET json": "inspect", "GET top": "top", "POST start": "start", "POST stop": "stop", "POST restart": "restart", "POST exec": "exec"}[r.Method+" "+parts[2]]
	if word == "" {
		e.t.Errorf("regrade asked the engine to %s %s", r.Method, r.URL.Path)
		answer(w, http.StatusNotFound, map[string]string{"message": "page not found"})
		return
	}
	call := word + " " + b.service
	e.mu.Lock()
	e.calls = append(e.calls, call)
	before := e.before
	e.mu.Unlock()
	if before != nil {
		if err := before(call); err != nil {
			answer(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch word {
	case "inspect":
		answer(w, http.StatusOK, e.inspected(b))
	case "top":
		e.top(w, b, r.URL.Query().Get("ps_args"))
	case "start":
		if b.state == "running" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		e.up(b)
		w.WriteHeader(http.StatusNoContent)
	case "stop":
		e.down(b)
		w.WriteHeader(http.StatusNoContent)
	case "restart":
		e.down(b)
		if e.breaksOff {
			answer(w, http.StatusInternalServerError, map[string]string{"message": "context canceled"})
			return
		}
		e.up(b)
		w.WriteHeader(http.StatusNoContent)
	case "exec":
		if b.state != "running" {
			answer(w, http.StatusConflict, map[string]string{"message": "Container is not running"})
			return
		}
		answer(w, http.StatusCreated, map[string]string{"Id": "exec1"})
	}
}

func (e *fakeEngine) list(w http.ResponseWriter, r *http.Request) {
	var f map[string]map[string]bool
	if raw := r.URL.Query().Get("filters"); raw != "" {
		if err := json.Unmarshal([]byte(raw), &f); err != nil {
			e.t.Error(err)
		}
	}
	if r.URL.Query().Get("all") != "1" {
		e.t.Error("a list without what is stopped")
	}
	e.mu.Lock()
	e.calls = append(e.calls, "list")
	before := e.before
	e.mu.Unlock()
	if before != nil {
		if err := before("list"); err != nil {
			answer(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := []any{}
	for _, b := range e.boxes {
		if len(f["label"]) > 0 && !f["label"]["com.docker.compose.project="+b.project] {
			continue
		}
		one := "False"
		if b.oneOff {
			one = "True"
		}
		out = append(out, map[string]any{"Id": b.id, "Names": []string{"/" + b.name}, "State": b.state, "Mounts": mountsOf(b), "Labels": map[string]string{
			"com.docker.compose.project": b.project, "com.docker.compose.service": b.service, "com.docker.compose.project.working_dir": b.dir, "com.docker.compose.oneoff": one,
			"com.docker.compose.version": b.compose,
		}})
	}
	answer(w, http.StatusOK, out)
}

func mountsOf(b *box) []any {
	mounts := []any{}
	for _, m := range b.mounts {
		mounts = append(mounts, map[string]any{"Source": m[0], "Destination": m[1], "RW": !b.readOnly})
	}
	return mounts
}

func (e *fakeEngine) inspected(b *box) any {
	mounts := mountsOf(b)
	pid := 0
	if b.state == "running" || b.state == "paused" {
		pid = firstPID
	}
	state := map[string]any{"Status": b.state, "ExitCode": b.exit, "StartedAt": b.started.Format(time.RFC3339Nano), "Running": b.state == "running", "Pid": pid}
	if b.health != "" {
		state["Health"] = map[string]any{"Status": b.health}
	}
	mode := "host"
	if b.network != "" {
		mode = "container:" + b.network
	}
	return map[string]any{
		"Id": b.id, "Name": "/" + b.name, "Image": b.image, "Path": b.command[0], "Args": b.command[1:], "State": state, "Mounts": mounts,
		"Config": map[string]any{"Env": b.env, "Hostname": "n1", "StopTimeout": 60, "Labels": map[string]string{
			"com.docker.compose.project": b.project,
		}},
		"HostConfig":      map[string]any{"RestartPolicy": map[string]any{"Name": b.restart}, "NetworkMode": mode},
		"NetworkSettings": map[string]any{"Networks": map[string]any{"bridge": map[string]any{"IPAddress": b.address}}},
	}
}

func (e *fakeEngine) top(w http.ResponseWriter, b *box, args string) {
	if b.state != "running" && b.state != "paused" {
		answer(w, http.StatusConflict, map[string]string{"message": "Container is not running"})
		return
	}
	if args != columns {
		e.t.Errorf("ps was asked for %q", args)
	}
	name := filepath.Base(b.main[0])
	if name == "k3s" {
		name = "k3s-" + b.main[1]
	}
	rows := [][]string{{fmt.Sprint(firstPID), "1", "Ssl", name, strings.Join(b.main, " ")}}
	for _, m := range b.more {
		f := strings.Fields(m)
		rows = append(rows, append(f[:4:4], strings.Join(f[4:], " ")))
	}
	if b.unseen {
		rows = rows[1:]
	}
	answer(w, http.StatusOK, map[string]any{"Titles": []string{"PID", "PPID", "STAT", "COMMAND", "COMMAND"}, "Processes": rows})
}

func (e *fakeEngine) exec(w http.ResponseWriter, r *http.Request, parts []string) {
	_, _ = io.Copy(io.Discard, r.Body)
	e.mu.Lock()
	text, code := e.text, e.code
	e.mu.Unlock()
	if parts[2] == "json" {
		answer(w, http.StatusOK, map[string]any{"ID": parts[1], "Running": false, "ExitCode": code})
		return
	}
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		e.t.Error(err)
		return
	}
	defer c.Close() //nolint:errcheck // the fake's own end
	_, _ = c.Write([]byte("HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"))
	head := make([]byte, 8)
	head[0] = 1
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	_, _ = c.Write(append(head, text...))
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
