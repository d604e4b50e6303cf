package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// mountinfoOf is what a process of a container reads, with the network of another one,
// or of itself.
func mountinfoOf(b, network *box) string {
	var out strings.Builder
	out.WriteString("600 590 0:100 / / rw,relatime - overlay overlay rw\n")
	for _, name := range []string{"resolv.conf", "hostname", "hosts"} {
		fmt.Fprintf(&out, "601 600 8:1 /var/lib/docker/containers/%s/%s /etc/%s rw - ext4 /dev/sda1 rw\n", network.id, name, name)
	}
	for _, m := range b.mounts {
		fmt.Fprintf(&out, "602 600 8:1 %s %s rw - ext4 /dev/sda1 rw\n", m[0], m[1])
	}
	return out.String()
}

// REGRADE_NETWORK=container:NAME gives the daemon the hostname and resolver files of
// another container. The break check: take the first id of the mountinfo.
func TestADaemonInTheNetworkOfAnotherContainerFindsItself(t *testing.T) {
	mesh := func(e *fakeEngine) *box {
		b := &box{id: strings.Repeat("77", 32), name: "mesh", service: "tailscale", project: "mesh", dir: "/srv/mesh", command: []string{"/tailscaled"}, state: "running",
			mounts: [][2]string{{"/volumes/mesh", "/var/lib/tailscale"}}}
		e.boxes = append(e.boxes, b)
		return b
	}
	twin := func(e *fakeEngine, mounts func(own [][2]string) [][2]string) {
		b := *e.box("regrade-host")
		b.id, b.name, b.project, b.dir = strings.Repeat("88", 32), "other-regrade-host", "other", "/srv/other"
		b.mounts = mounts(b.mounts)
		e.boxes = append(e.boxes, &b)
	}
	for name, c := range map[string]struct {
		change  func(e *fakeEngine)
		problem string
	}{
		"a mesh":                          {func(*fakeEngine) {}, ""},
		"a mesh that was made anew since": {func(e *fakeEngine) { e.box("tailscale").id = strings.Repeat("99", 32) }, ""},
		"a mesh that has the socket too": {func(e *fakeEngine) {
			m := e.box("tailscale")
			m.mounts = append(m.mounts, [2]string{e.socket, e.socket})
		}, ""},
		"another project's daemon, its folders elsewhere": {func(e *fakeEngine) {
			twin(e, func(own [][2]string) (out [][2]string) {
				for _, m := range own {
					out = append(out, [2]string{"/srv/other" + m[1] + "/x", m[1]})
				}
				return out
			})
		}, ""},
		"another one that is alike in all": {func(e *fakeEngine) { twin(e, func(own [][2]string) [][2]string { return own }) }, "their mounts are alike"},
		"another one that does not run": {func(e *fakeEngine) {
			twin(e, func(own [][2]string) [][2]string { return own })
			e.boxes[len(e.boxes)-1].state = "exited"
		}, ""},
		"a command of `compose run` beside the daemon": {func(e *fakeEngine) {
			twin(e, func(own [][2]string) [][2]string { return own })
			b := e.boxes[len(e.boxes)-1]
			b.project, b.dir, b.oneOff = "github-runner", "/srv/github-runner", true
		}, ""},
		"a command before there is a daemon": {func(e *fakeEngine) { e.box("regrade-host").oneOff = true }, ""},
		"its own container is not listed yet": {func(e *fakeEngine) {
			e.box("regrade-host").mounts = append(e.box("regrade-host").mounts, [2]string{"/elsewhere", "/elsewhere"})
		}, "does not know"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.plant("/volumes/k3s-node/password", secretPassword)
			e.self(e.box("k3s").mounts)
			m := mesh(e)
			info := mountinfoOf(e.box("regrade-host"), m)
			c.change(e)
			h := e.host(func(o *Options) { o.Self = func() string { return info } })
			f, err := h.Observe(t.Context())
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("%v, want %q", err, c.problem)
				}
				return
			}
			if err != nil || !f.Staged || !f.Server.Conditioned || h.project != "github-runner" {
				t.Errorf("project %q, %+v %v", h.project, f.Server, err)
			}
		})
	}
}

// The engine was replaced under containers that run on (live-restore), by one that no longer
// speaks what the daemon has agreed on with the one before. The break check: leave it to the
// next pass, which asks the same again.
func TestAnEngineOfAnotherVersionEndsTheDaemon(t *testing.T) {
	e, h := member(t)
	look(t, h)
	e.refuses = "client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade your client to a newer version"
	if _, err := h.Observe(t.Context()); !errors.Is(err, platform.ErrAnew) || !strings.Contains(err.Error(), "Minimum supported API version is 1.44") {
		t.Errorf("%v", err)
	}
	// A daemon that no engine has answered yet would only end again.
	if _, err := e.host().Observe(t.Context()); err == nil || errors.Is(err, platform.ErrAnew) || !strings.Contains(err.Error(), "too old") {
		t.Errorf("%v", err)
	}
}

// A daemon of the host itself, under systemd, beside containers that share their memory, one
// of which has the engine's socket. The break check: take each id in the mountinfo.
func TestADaemonOnTheHostIsNoneOfItsContainers(t *testing.T) {
	e, _ := member(t)
	portainer := &box{id: strings.Repeat("66", 32), name: "portainer", project: "portainer", service: "portainer", dir: "/srv/portainer", command: []string{"/portainer"}, state: "running",
		mounts: [][2]string{{e.socket, "/var/run/docker.sock"}, {e.socket, e.socket}}}
	e.boxes = append(e.boxes, portainer)
	info := "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"99 25 0:50 / /var/lib/docker/containers/" + portainer.id + "/mounts/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw\n"
	h := e.host(func(o *Options) { o.Self = func() string { return info } })
	if f := look(t, h); !f.Staged || !f.Server.Conditioned || h.project != DefaultProject {
		t.Errorf("project %q, %+v", h.project, f.Server)
	}
}

// A mountinfo names a path in its file system, an engine one of the host's.
func TestWhatIsMountedWhere(t *testing.T) {
	got := points("36 35 98:0 /@syno/docker\\040x/k3s /etc/rancher/k3s rw - btrfs /dev/md2 rw\nbroken\n")
	if got["/etc/rancher/k3s"] != "/@syno/docker x/k3s" || len(got) != 1 {
		t.Errorf("%q", got)
	}
	for p, want := range map[string]string{"/v/p_k3s-data/_data": "p_k3s-data/_data", "/run": "/run", "/srv/k3s/": "srv/k3s"} {
		if last(p) != want {
			t.Errorf("%s: %q", p, last(p))
		}
	}
}

// The engine has taken its socket away and made another of the same name: what this
// container has mounted answers to nobody, for ever. The break check: leave taken out.
func TestASocketThatWasTakenAwayEndsTheDaemon(t *testing.T) {
	dir, err := os.MkdirTemp("", "engine")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	mounted := fmt.Sprintf("/proc/self/fd/%d", fd) // what a bind mount of the file shows
	e, err := NewEngine(mounted)
	must(t, err)
	must(t, l.Close()) // the file goes with it
	err = e.Ping(t.Context())
	if !errors.Is(err, platform.ErrAnew) || !strings.Contains(err.Error(), "made itself another socket") {
		t.Errorf("%v", err)
	}
	// An engine that is down for a moment, and whose socket is there still.
	l2, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l2.SetUnlinkOnClose(false)
	must(t, l2.Close())
	e, err = NewEngine(path)
	must(t, err)
	if err := e.Ping(t.Context()); errors.Is(err, platform.ErrAnew) || err == nil || !strings.Contains(err.Error(), "no engine answers") {
		t.Errorf("%v", err)
	}
}

// k3s was stopped by a person, and the daemon is started anew in the same boot, in
// which it has started nothing. The break check: leave ranIn out of owed.
func TestWhatAPersonStopsStaysStoppedForTheNextDaemonOfTheBoot(t *testing.T) {
	e, _ := member(t)
	h := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-2", nil } })
	if f := look(t, h); f.Owed != "" || !f.Server.Process {
		t.Fatalf("%+v", f)
	}
	e.mu.Lock()
	e.down(e.box("k3s"))
	e.mu.Unlock()
	next := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-2", nil } })
	for range 2 {
		if f := look(t, next); f.Owed != "" {
			t.Errorf("what a person stopped is owed: %q", f.Owed)
		}
	}
	// The next boot, with and without an emptied /run.
	later := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-3", nil } })
	if f := look(t, later); f.Owed != fleet.RoleServer {
		t.Errorf("after a boot: %q", f.Owed)
	}
	must(t, os.Remove(e.at(fleet.FileRan)))
	emptied := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-2", nil } })
	if f := look(t, emptied); f.Owed != fleet.RoleServer {
		t.Errorf("a boot without an id of its own: %q", f.Owed)
	}
	// It cannot be written down: then this process knows it alone.
	must(t, os.RemoveAll(e.at("/run/regrade")))
	e.plant("/run/regrade", "no folder")
	must(t, emptied.Start(context.WithoutCancel(t.Context()), fleet.RoleServer))
	settle(t, emptied)
	if f := look(t, emptied); !f.Server.Process || f.Owed != "" {
		t.Errorf("%+v", f)
	}
}

func TestAComposeThatMakesContainersAnewIsNamed(t *testing.T) {
	for version, bad := range map[string]bool{"": false, "1.29.2": false, "2.37.0": false, "2.37.1": true, "2.37.3": true, "2.38.0": true, "v2.38.2": true, "2.38.2-desktop.1": true, "2.39.0": false, "5.0.1": false, "dev": false} {
		e, h := member(t)
		e.box("k3s-agent").compose = version
		w := look(t, h).Warnings
		if (len(w) == 1) != bad || bad && (w[0].Code != CodeComposeVersion || !strings.Contains(w[0].Sentence, "k3s-agent was made with Compose "+version)) {
			t.Errorf("%s: %+v", version, w)
		}
	}
}

func TestAnEngineThatBreaksARestartOffIsNamed(t *testing.T) {
	for version, want := range map[string]string{
		"": "", "20.10.24+dfsg1": "", "22.06.0-beta.0": "", "23.0.0": "killed", "23.0.6": "killed", "24.0.2": "killed", "24.0.3": "stays down", "24.0.6": "stays down",
		"24.0.7": "", "25.0.0": "", "24.0.6-ce": "stays down", "library-import": "",
	} {
		e, _ := member(t)
		e.version = version
		w := look(t, e.host()).Warnings
		if (len(w) == 1) != (want != "") || want != "" && (w[0].Code != CodeEngineVersion || !strings.Contains(w[0].Sentence, "the engine is "+version+": ") || strings.Contains(w[0].Sentence, "killed") != (want == "killed")) {
			t.Errorf("%s: %+v", version, w)
		}
	}
	// It is not asked for at each look.
	e, _ := member(t)
	e.version = "24.0.6"
	h := e.host()
	look(t, h)
	e.version = "24.0.7"
	if w := look(t, h).Warnings; len(w) != 1 || len(look(t, e.host()).Warnings) != 0 {
		t.Errorf("%+v", w)
	}
}

// The same folder by two paths is one project: another name would be an empty node.
func TestALinkToTheProjectsFolderIsNoSecondProject(t *testing.T) {
	e, h := member(t)
	folder, link := t.TempDir(), filepath.Join(t.TempDir(), "k3s")
	must(t, os.Symlink(folder, link))
	e.box("k3s").dir, e.box("k3s-agent").dir = folder, link
	if f := look(t, h); !f.Server.Process || !f.Staged {
		t.Errorf("%+v", f)
	}
	e.box("k3s-agent").dir = t.TempDir()
	if _, err := h.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "two Compose projects") || !strings.Contains(err.Error(), "where one is a link to the other") {
		t.Errorf("%v", err)
	}
}

func TestAContainerThatIsGoneIsMadeWithOneCommandInItsFolder(t *testing.T) {
	e, h := member(t)
	e.boxes = []*box{e.box("k3s")}
	if p := look(t, h).AgentProblem; !strings.Contains(p, "`cd /srv/github-runner && docker compose --profile server --profile agent up --no-start --no-recreate`") {
		t.Errorf("%q", p)
	}
}
