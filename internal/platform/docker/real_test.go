package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	mobycontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/platformtest"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// TestMain lets the test binary be what runs in the containers of a real engine:
// `regrade entrypoint ROLE`, k3s, and the daemon's own look.
func TestMain(m *testing.M) {
	a := os.Args
	switch {
	case filepath.Base(a[0]) == "k3s" && len(a) > 1 && a[1] == "--version":
		fmt.Println("k3s version v1.36.3+k3s1 (test)")
		return
	case filepath.Base(a[0]) == "k3s":
		untilStopped()
		return
	case len(a) == 4 && a[1] == "hold":
		by, err := container.Lock(a[2], fleet.Role(a[3]))
		fmt.Println(by, err)
		untilStopped()
		return
	case len(a) == 3 && a[1] == "entrypoint" && a[2] == "network":
		name, _ := kernelNetwork()
		fmt.Println(name)
		return
	case len(a) == 3 && a[1] == "entrypoint":
		enter(fleet.Role(a[2]))
		return
	case len(a) == 3 && (a[1] == "observe" || a[1] == "start"):
		observe(a[2], a[1] == "start")
		return
	}
	os.Exit(m.Run())
}

func untilStopped() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}

// enter is the entrypoint's rule and no more: it becomes k3s or idles.
func enter(role fleet.Role) {
	f := container.New("", os.Getenv)
	files, err := f.Role()
	if err != nil || !rolefile.MayStart(files, role).May {
		fmt.Println("idle:", rolefile.MayStart(files, role).Why, err)
		untilStopped()
		return
	}
	if level, err := f.Level(); err == nil && role == fleet.RoleServer {
		if err := f.SetStarted(level); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(syscall.Exec("/bin/k3s", []string{"/bin/k3s", string(role)}, os.Environ()))
	os.Exit(1)
}

// observe is a look from within a container, before which it starts what is owed.
func observe(project string, start bool) {
	h, err := New(Options{Project: project})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	f, err := h.Observe(context.Background())
	if err == nil && start {
		err = h.Start(context.Background(), f.Owed)
		for len(h.running()) > 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(f)
}

// real is a project on a real engine.
type real struct {
	t       *testing.T
	client  *client.Client
	socket  string
	image   string
	root    string
	project string
}

func newReal(t *testing.T) *real {
	if os.Getenv("REGRADE_REAL_DOCKER") == "" {
		t.Skip("REGRADE_REAL_DOCKER is not set: it makes containers on the engine of this machine")
	}
	r := &real{t: t, socket: DefaultSocket, project: fmt.Sprintf("regrade-test-%d", time.Now().UnixNano())}
	if at, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		r.socket = at
	}
	var err error
	if r.client, err = client.New(client.WithHost("unix://" + r.socket)); err != nil {
		t.Fatal(err)
	}
	if r.root, err = os.MkdirTemp("/var/tmp", "regrade-docker"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(r.root) })
	r.makeImage()
	return r
}

// makeImage is this test binary, which must be static (CGO_ENABLED=0), as both programs.
func (r *real) makeImage() {
	self, err := os.ReadFile("/proc/self/exe")
	must(r.t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"regrade", "bin/k3s"} {
		must(r.t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(self)), Typeflag: tar.TypeReg}))
		_, err := w.Write(self)
		must(r.t, err)
	}
	must(r.t, w.WriteHeader(&tar.Header{Name: "tmp", Mode: 0o1777, Typeflag: tar.TypeDir}))
	must(r.t, w.Close())
	res, err := r.client.ImageImport(r.t.Context(), client.ImageImportSource{Source: &b, SourceName: "-"}, "regrade-test", client.ImageImportOptions{Tag: "k3s"})
	must(r.t, err)
	_, err = io.Copy(io.Discard, res)
	must(r.t, err)
	r.image = "regrade-test:k3s"
}

// container makes one, as Compose would.
func (r *real) container(service string, command, binds []string, change ...func(*client.ContainerCreateOptions)) string {
	timeout := 5
	o := client.ContainerCreateOptions{
		Config: &mobycontainer.Config{
			Image: r.image, Entrypoint: command, StopTimeout: &timeout, Hostname: "n1", Env: []string{"K3S_TOKEN=" + secretToken},
			Labels: map[string]string{labelProject: r.project, labelService: service, labelDir: r.root, labelOneOff: "False"},
		},
		HostConfig: &mobycontainer.HostConfig{Binds: binds, NetworkMode: "none", RestartPolicy: mobycontainer.RestartPolicy{Name: "unless-stopped"}},
		Name:       r.project + "-" + service,
	}
	for _, c := range change {
		c(&o)
	}
	c, err := r.client.ContainerCreate(r.t.Context(), o)
	must(r.t, err)
	r.t.Cleanup(func() {
		_, _ = r.client.ContainerRemove(context.Background(), c.ID, client.ContainerRemoveOptions{Force: true})
	})
	return c.ID
}

func (r *real) binds(node string) []string {
	var out []string
	for from, to := range map[string]string{fleet.RoleDir: fleet.RoleDir + ":ro", "/run/regrade": "/run/regrade:ro", fleet.DefaultDataDir: fleet.DefaultDataDir, node: container.Identity()[0]} {
		must(r.t, os.MkdirAll(filepath.Join(r.root, from), 0o755))
		out = append(out, filepath.Join(r.root, from)+":"+to)
	}
	return out
}

func (r *real) host() *Host {
	h, err := New(Options{Root: r.root, Socket: r.socket, Project: r.project, PeerAddress: "127.0.0.1:0"})
	must(r.t, err)
	return h
}

func (r *real) plant(path, content string) {
	full := filepath.Join(r.root, path)
	must(r.t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(r.t, os.WriteFile(full, []byte(content), 0o600))
}

func (r *real) both(separate bool) (server, agent string) {
	of := "/volumes/k3s-node"
	if separate {
		of = "/volumes/k3s-agent-node"
	}
	r.plant(of+"/password", secretPassword)
	return r.container("k3s", []string{"/regrade", "entrypoint", "server"}, r.binds("/volumes/k3s-node")),
		r.container("k3s-agent", []string{"/regrade", "entrypoint", "agent"}, r.binds(of))
}

func TestRealDockerConforms(t *testing.T) {
	for name, separate := range map[string]bool{"shared": false, "separate": true} {
		t.Run(name, func(t *testing.T) {
			platformtest.Run(t, func(t *testing.T) platformtest.Subject {
				r := newReal(t)
				r.both(separate)
				h := r.host()
				return platformtest.Subject{
					Host: h,
					Datastore: func() {
						r.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
						r.plant(fleet.DefaultDataDir+"/server/db/etcd/name", "n1-0123abcd")
					},
					Settle: func() { quiet(t, h) },
				}
			})
		})
	}
}

// quiet waits until both units stand still: an entrypoint needs a moment to be k3s.
func quiet(t *testing.T, h *Host) platform.Facts {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		f := look(t, h)
		if still(f.Server) && still(f.Agent) {
			return f
		}
		if time.Now().After(deadline) {
			t.Fatalf("never settled: %+v %+v", f.Server, f.Agent)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func still(u platform.Unit) bool {
	return u.Job == platform.JobNone && (u.State == platform.StateActive && u.Process || u.Gone())
}

func TestARealHostGoesThereAndBack(t *testing.T) {
	r := newReal(t)
	server, _ := r.both(true)
	h := r.host()
	must(t, h.SetRole(t.Context(), fleet.RoleAgent))
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	f := quiet(t, h)
	if !f.Agent.Process || f.K3sVersion != "v1.36.3+k3s1" || !f.Staged || f.AgentProblem != "" || !f.Server.Conditioned {
		t.Fatalf("%+v", f)
	}
	// A user starts the other profile by hand: it idles (R-X-02).
	_, err := r.client.ContainerStart(t.Context(), server, client.ContainerStartOptions{})
	must(t, err)
	if f := quiet(t, h); f.Server.Process || !f.Server.Gone() {
		t.Errorf("%+v", f.Server)
	}
	must(t, h.Stop(t.Context(), fleet.RoleAgent))
	quiet(t, h)
	r.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
	must(t, h.SetRole(t.Context(), fleet.RoleServer))
	must(t, h.Start(t.Context(), fleet.RoleServer))
	if f := quiet(t, h); !f.Server.Process || f.Agent.Process || f.Server.Level != fleet.LevelFull {
		t.Fatalf("%+v", f)
	}
	if raw, err := os.ReadFile(filepath.Join(r.root, "/volumes/k3s-node/password")); err != nil || string(raw) != secretPassword {
		t.Errorf("%q %v", raw, err)
	}
	_, err = r.client.ContainerPause(t.Context(), server, client.ContainerPauseOptions{})
	must(t, err)
	if u := look(t, h).Server; !u.Process || u.State != platform.StateActive {
		t.Errorf("paused: %+v", u)
	}
	_, err = r.client.ContainerUnpause(t.Context(), server, client.ContainerUnpauseOptions{})
	must(t, err)
	// What `regrade host` sees when it is a container itself.
	raw := r.within("regrade-host", r.project)
	var seen platform.Facts
	if err := json.Unmarshal(raw, &seen); err != nil || !seen.Server.Process || !seen.Server.Conditioned || !seen.Agent.Conditioned || seen.AgentProblem != "" {
		t.Errorf("from within: %s", raw)
	}
	// And in the network of another container, whose hostname file it has: which project
	// it is of it knows by itself.
	mesh := r.container("mesh", []string{"/bin/k3s", "mesh"}, nil)
	_, err = r.client.ContainerStart(t.Context(), mesh, client.ContainerStartOptions{})
	must(t, err)
	raw, seen = r.within("daemon-of-mesh", "", func(o *client.ContainerCreateOptions) {
		o.Config.Hostname, o.HostConfig.NetworkMode = "", mobycontainer.NetworkMode("container:"+mesh)
	}), platform.Facts{}
	if err := json.Unmarshal(raw, &seen); err != nil || !seen.Server.Process || !seen.Server.Conditioned || !seen.Agent.Conditioned || seen.AgentProblem != "" {
		t.Errorf("in the network of another: %s", raw)
	}
}

// within runs a look in a container that has the socket and every mount of ours.
func (r *real) within(service, project string, change ...func(*client.ContainerCreateOptions)) []byte {
	t := r.t
	binds := append(r.binds("/volumes/k3s-node"), filepath.Join(r.root, "/volumes/k3s-agent-node")+":/identity/agent", r.socket+":"+DefaultSocket)
	id := r.container(service, []string{"/regrade", "observe", project}, binds, change...)
	_, err := r.client.ContainerStart(t.Context(), id, client.ContainerStartOptions{})
	must(t, err)
	var out bytes.Buffer
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		logs, err := r.client.ContainerLogs(t.Context(), id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
		must(t, err)
		out.Reset()
		_, _ = stdcopy.StdCopy(&out, &out, logs)
		if strings.Contains(out.String(), "\n") {
			break
		}
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	return []byte(line)
}

// The container whose network the three have is started anew. What is taken for granted of
// an engine: the old network has lost the address, and a start joins the new one.
func TestARealNetworkThatIsStartedAnew(t *testing.T) {
	r := newReal(t)
	ctx := t.Context()
	mesh := r.container("mesh", []string{"/bin/k3s", "mesh"}, nil, func(o *client.ContainerCreateOptions) { o.HostConfig.NetworkMode = "bridge" })
	in := func(o *client.ContainerCreateOptions) {
		o.Config.Hostname, o.HostConfig.NetworkMode = "", mobycontainer.NetworkMode("container:"+mesh)
	}
	r.plant("/volumes/k3s-node/password", secretPassword)
	r.plant(fleet.FileRole, "server\n")
	r.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
	binds := r.binds("/volumes/k3s-node")
	k3s := r.container("k3s", []string{"/regrade", "entrypoint", "server"}, binds, in)
	r.container("k3s-agent", []string{"/regrade", "entrypoint", "agent"}, binds, in)
	daemon := r.container("regrade-host", []string{"/bin/k3s", "daemon"}, append(binds, r.socket+":"+DefaultSocket), in)
	e, err := NewEngine(r.socket)
	must(t, err)
	for _, id := range []string{mesh, k3s, daemon} {
		must(t, e.Start(ctx, id))
	}
	says := func(word string) (platform.Facts, string) {
		t.Helper()
		out, err := e.Run(ctx, daemon, "/regrade", word, r.project)
		must(t, err)
		var f platform.Facts
		_ = json.Unmarshal([]byte(out.Text), &f)
		return f, out.Text
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		f, said := says("observe")
		if f.Server.Process && f.Owed == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
	first, err := e.Inspect(ctx, k3s)
	must(t, err)
	must(t, e.Restart(ctx, mesh))
	if _, said := says("observe"); !strings.Contains(said, "is in the network that it had before") {
		t.Errorf("the daemon of before says %s", said)
	}
	must(t, e.Restart(ctx, daemon))
	if f, said := says("observe"); f.Owed != fleet.RoleServer || !f.Server.Process {
		t.Errorf("the next daemon says %s", said)
	}
	says("start")
	for deadline = time.Now().Add(20 * time.Second); ; {
		f, said := says("observe")
		now, err := e.Inspect(ctx, k3s)
		must(t, err)
		if f.Server.Process && f.Owed == "" && now.Started.After(first.Started) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
}
