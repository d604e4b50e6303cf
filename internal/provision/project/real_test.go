package project_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/procs"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
)

// TestMain lets the test binary be what runs in the containers of a real engine: regrade's
// entrypoint and daemon, and k3s.
func TestMain(m *testing.M) {
	a := os.Args
	switch {
	case filepath.Base(a[0]) == "k3s", len(a) == 2 && a[1] == "host":
		untilStopped()
		return
	case len(a) == 3 && a[1] == "entrypoint" && a[2] == "health":
		return
	case len(a) == 3 && a[1] == "entrypoint":
		role := fleet.Role(a[2])
		if files, err := (rolefile.Dir{}).Read(); err != nil || !rolefile.MayStart(files, role).May {
			untilStopped()
			return
		}
		fmt.Println(syscall.Exec("/bin/k3s", []string{"/bin/k3s", string(role)}, os.Environ()))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func untilStopped() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}

// realHost is this machine: its engine, its Compose, its files.
type realHost struct {
	t *testing.T
	project.Host
	programs project.OfHost
	engine   docker.Engine
	name     string
}

func newRealHost(t *testing.T) *realHost {
	if os.Getenv("REGRADE_REAL_DOCKER") == "" {
		t.Skip("REGRADE_REAL_DOCKER is not set: it sets this machine up as a Docker host")
	}
	socket := docker.DefaultSocket
	if at, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		socket = at
	}
	e, err := docker.NewEngine(socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &realHost{t: t, engine: e, programs: project.OfHost{Socket: socket}, name: fmt.Sprintf("regrade-test-%d", time.Now().UnixNano())}
	r.Host = project.Host{
		Engine:   func(string) (project.Engine, error) { return e, nil },
		Programs: func(string) project.Programs { return r.programs },
	}
	for _, path := range []string{fleet.FileInstalled, "/etc/modules-load.d/regrade.conf"} {
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s is there: this is not a machine to try it on", path)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	return r
}

// must runs a program of the host that has to succeed.
func (r *realHost) must(argv ...string) string {
	r.t.Helper()
	out, err := r.programs.Run(context.Background(), project.Command{Argv: argv})
	if err != nil || out.Code != 0 {
		r.t.Fatalf("%v: %v %s", argv, err, out.Text)
	}
	return strings.TrimSpace(out.Text)
}

// image is one with the test binary in it, which must be static (CGO_ENABLED=0).
func (r *realHost) image(name, program, more string) {
	r.t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		r.t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"run", "tmp", "var/run", "bin", "usr/local/bin"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
			r.t.Fatal(err)
		}
	}
	for path, content := range map[string][]byte{program: self, "stamp": []byte(more)} {
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(content))}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			r.t.Fatal(err)
		}
	}
	file := filepath.Join(r.t.TempDir(), "image.tar")
	if err := w.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.must("docker", "import", "-c", `ENTRYPOINT ["/`+program+`"]`, file, name)
	r.t.Cleanup(func() {
		_, _ = r.programs.Run(context.Background(), project.Command{Argv: []string{"docker", "image", "rm", "-f", name}})
	})
}

func (r *realHost) run(d setup.Desired) (project.Plan, []string) {
	r.t.Helper()
	var plan project.Plan
	for range 2 { // as the command: images first
		seen, err := r.Look(r.t.Context(), d)
		if err != nil {
			r.t.Fatal(err)
		}
		p, problems := project.Make(seen, d)
		if len(problems) > 0 {
			var codes []string
			for _, p := range problems {
				codes = append(codes, p.Code+": "+p.Sentence)
			}
			return project.Plan{}, codes
		}
		if plan = p; len(plan.Images) == 0 {
			break
		}
		if err := r.Bring(r.t.Context(), plan); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.Carry(r.t.Context(), plan); err != nil {
		r.t.Fatal(err)
	}
	return plan, nil
}

func (r *realHost) box(service string) (docker.Container, bool) {
	r.t.Helper()
	all, err := r.engine.List(r.t.Context(), r.name)
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(l docker.Listed) bool { return l.Service == service })
	if i < 0 {
		return docker.Container{}, false
	}
	c, err := r.engine.Inspect(r.t.Context(), all[i].ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return c, true
}

// k3s says whether k3s runs in the container of a service, within a moment.
func (r *realHost) k3s(service string, role fleet.Role) bool {
	deadline := time.Now().Add(10 * time.Second)
	for {
		if c, there := r.box(service); there && c.Runs() {
			if ps, err := r.engine.Processes(r.t.Context(), c.ID); err == nil && docker.RunsK3s(ps, role) {
				return true
			}
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// What is taken for granted of a real engine and a real Compose: that a second `up` with
// the same words keeps a container, that an image is built of a file alone, that a variable
// of the daemon's own changes nothing of k3s's, that a profile in a further file keeps the
// daemon away.
func TestARealHostIsSetUpAndTakenBack(t *testing.T) {
	r := newRealHost(t)
	ps, err := procs.All("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(ps, func(p procs.Process) bool { return k3s.ProcessRole(p.Comm, p.Args) != "" }) {
		t.Fatal("k3s runs on this machine")
	}
	r.image("regrade-test/k3s:v1", "bin/k3s", "")
	r.image("regrade-test/regrade:v1", "usr/local/bin/regrade", "one")
	folder := filepath.Join(t.TempDir(), "k3s")
	text := strings.NewReplacer("ROLE", "server", "NODE", "n1").Replace(document)
	d, err := setup.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d.Docker.Founder, d.Kubeconfig, d.Voter = true, "", nil
	d.Token = "hush with a space and $HOME # no comment"
	d.Docker.Folder, d.Docker.Project, d.Docker.Socket = folder, r.name, r.programs.Socket
	d.Docker.Images = setup.Images{K3s: "regrade-test/k3s:v1", Regrade: "regrade-test/regrade:v1", Both: "regrade-test/both:v1"}
	// What runs here needs no rights, and a machine may lack those of rights.yaml.
	d.Docker.Files = []string{"compose.yaml", "mine/rights.yaml"}
	mine := "services:\n  k3s: &rights\n    cap_add: [NET_ADMIN]\n  k3s-agent: *rights\n"
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "mine"), 0o755), os.WriteFile(filepath.Join(folder, "mine/rights.yaml"), []byte(mine), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []string{"k3s", "k3s-agent", "regrade-host"} {
			_, _ = r.programs.Run(context.Background(), project.Command{Argv: []string{"docker", "rm", "-f", "-v", r.name + "-" + c}})
		}
		for _, v := range []string{"k3s-data", "k3s-node", "k3s-tailscale-data", "k3s-kubelet", "k3s-cni", "k3s-log", "regrade-state"} {
			_, _ = r.programs.Run(context.Background(), project.Command{Argv: []string{"docker", "volume", "rm", "-f", r.name + "_" + v}})
		}
		_, _ = r.programs.Run(context.Background(), project.Command{Argv: []string{"docker", "image", "rm", "-f", "regrade-test/both:v1"}})
	})
	if _, problems := r.run(d); len(problems) > 0 {
		t.Fatal(problems)
	}
	if !r.k3s("k3s", fleet.RoleServer) {
		t.Fatal("k3s does not run")
	}
	server, _ := r.box("k3s")
	agent, _ := r.box("k3s-agent")
	daemon, _ := r.box("regrade-host")
	if agent.State != "created" || daemon.State != "running" || server.Env("K3S_TOKEN") != d.Token.Reveal() || server.Restart != "unless-stopped" {
		t.Fatalf("agent %s, daemon %s, restart %s; the token is the same: %v", agent.State, daemon.State, server.Restart, server.Env("K3S_TOKEN") == d.Token.Reveal())
	}
	same := func(when string) {
		t.Helper()
		if c, there := r.box("k3s"); !there || c.ID != server.ID || !c.Started.Equal(server.Started) {
			t.Errorf("%s: k3s's container is another, or was started anew", when)
		}
	}
	plan, problems := r.run(d)
	if !plan.Empty() || len(problems) > 0 {
		t.Errorf("the second run: %v %v", plan.Containers, problems)
	}
	same("a second run")

	pinned := d
	pinned.Pinned = true
	if _, problems := r.run(pinned); len(problems) != 1 || !strings.HasPrefix(problems[0], project.CodeRecreate) {
		t.Errorf("another variable: %q", problems)
	}
	same("a refusal")

	by := r.compose(d)
	byHand := func(when string) {
		t.Helper()
		up := project.Command{Dir: folder, Argv: append(slices.Clone(by), "--profile", "server", "up", "-d")}
		if out, err := r.programs.Run(t.Context(), up); err != nil || out.Code != 0 {
			t.Fatalf("%v %s", err, out.Text)
		}
		same("an `up` by hand after " + when)
	}
	byHand("a setup")

	r.image("regrade-test/regrade:v2", "usr/local/bin/regrade", "two")
	next := d
	part := *d.Docker
	part.Images.Regrade = "regrade-test/regrade:v2"
	next.Docker = &part
	if by[0] == "docker-compose" {
		if _, problems := r.run(next); len(problems) != 1 || !strings.HasPrefix(problems[0], project.CodeRecreate) {
			t.Errorf("a new regrade with Compose 1: %q", problems)
		}
	} else {
		d = next
		r.run(d)
		if c, there := r.box("regrade-host"); !there || c.ID == daemon.ID || c.State != "running" {
			t.Errorf("a new regrade: the daemon is %s %s", c.ID, c.State)
		}
	}
	same("a new regrade")
	byHand("a new regrade")

	r.must("docker", "rm", r.name+"-k3s-agent")
	r.run(d)
	if c, there := r.box("k3s-agent"); !there || c.State != "created" {
		t.Errorf("a pruned container: %s", c.State)
	}
	same("a pruned container")

	seen, err := r.LookForRemoval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removal, refused := project.MakeRemoval(seen)
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	if err := r.Remove(t.Context(), removal); err != nil {
		t.Fatal(err)
	}
	byHand("a removal")
	if _, there := r.box("regrade-host"); there {
		t.Error("the daemon has come back")
	}
}

// compose is the host's Compose, as it was found.
func (r *realHost) compose(d setup.Desired) []string {
	r.t.Helper()
	seen, err := r.Look(r.t.Context(), d)
	if err != nil {
		r.t.Fatal(err)
	}
	return seen.Compose
}
