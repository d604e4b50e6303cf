package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// standby is a host whose agent has run, with an identity in the agent's volumes and
// an old one in the server's.
func standby(t *testing.T) (*fakeEngine, *Host) {
	e := newEngine(t)
	e.separate()
	e.plant("/volumes/k3s-agent-node/password", secretPassword+"\n")
	e.plant("/volumes/k3s-agent-tailscale-data/tailscaled.state", secretKey)
	e.plant("/volumes/k3s-agent-tailscale-data/certs/n1.crt", "cert")
	e.plant(fleet.FileRole, "agent\n")
	h := e.host()
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	if f := look(t, h); !f.Agent.Process {
		t.Fatalf("no agent: %+v", f.Agent)
	}
	e.plant("/volumes/k3s-node/password", "of an earlier life")
	e.plant("/volumes/k3s-tailscale-data/tailscaled.state", "of an earlier life")
	e.plant("/volumes/k3s-tailscale-data/derp.json", "of an earlier life")
	e.reset()
	return e, h
}

// promoted is what the files say once the agent shall become a server.
func (e *fakeEngine) promoted() {
	e.plant(fleet.FileRole, "server\n")
	e.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
}

func stop(t *testing.T, h *Host, role fleet.Role) {
	t.Helper()
	must(t, h.Stop(t.Context(), role))
	settle(t, h)
}

func TestTheIdentityGoesWithTheRoleBothWays(t *testing.T) { // R-N-09, R-D2-04, R-D2-05, R-D2-07
	e, h := standby(t)
	agentState := e.at("/volumes/k3s-agent-tailscale-data/tailscaled.state")
	then := time.Now().Add(-time.Hour).Truncate(time.Second)
	must(t, os.Chmod(agentState, 0o640))
	if os.Geteuid() == 0 {
		must(t, os.Chown(agentState, 65532, 65533))
	}
	must(t, os.Chtimes(agentState, then, then))
	must(t, os.Symlink("tailscaled.state", e.at("/volumes/k3s-agent-tailscale-data/current")))

	stop(t, h, fleet.RoleAgent)
	e.promoted()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if f := look(t, h); !f.Server.Process || f.Agent.Process {
		t.Fatalf("%+v %+v", f.Server, f.Agent)
	}
	for path, want := range map[string]string{
		"/volumes/k3s-node/password":                   secretPassword + "\n",
		"/volumes/k3s-tailscale-data/tailscaled.state": secretKey,
		"/volumes/k3s-tailscale-data/current":          secretKey,
		"/volumes/k3s-tailscale-data/certs/n1.crt":     "cert",
		"/volumes/k3s-tailscale-data/derp.json":        "",
	} {
		if got := e.read(path); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	info, err := os.Stat(e.at("/volumes/k3s-tailscale-data/tailscaled.state"))
	must(t, err)
	s := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm() != 0o640 || !info.ModTime().Equal(then) || os.Geteuid() == 0 && (s.Uid != 65532 || s.Gid != 65533) {
		t.Errorf("mode %s, time %s, owner %d:%d", info.Mode(), info.ModTime(), s.Uid, s.Gid)
	}
	if to, err := os.Readlink(e.at("/volumes/k3s-tailscale-data/current")); err != nil || to != "tailscaled.state" {
		t.Errorf("a link was followed: %q %v", to, err)
	}

	// As a server it gets a new mesh key; that one goes back.
	e.plant("/volumes/k3s-tailscale-data/tailscaled.state", "a newer key")
	stop(t, h, fleet.RoleServer)
	e.plant(fleet.FileRole, "agent\n")
	must(t, os.RemoveAll(e.at(fleet.DefaultDataDir+"/server")))
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	if got := e.read("/volumes/k3s-agent-tailscale-data/tailscaled.state"); got != "a newer key" {
		t.Errorf("the agent has %q", got)
	}
}

func TestARoleThatStartsAgainKeepsItsOwnIdentity(t *testing.T) {
	e, h := standby(t)
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	e.plant("/volumes/k3s-tailscale-data/tailscaled.state", "a newer key")
	stop(t, h, fleet.RoleServer)
	h = e.host() // another process: what it knows is on disk
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if got := e.read("/volumes/k3s-tailscale-data/tailscaled.state"); got != "a newer key" {
		t.Errorf("written over with the agent's older one: %q", got)
	}
}

func TestNothingIsCopiedBetweenSharedVolumes(t *testing.T) {
	e := newEngine(t)
	e.plant("/volumes/k3s-node/password", secretPassword)
	e.plant(fleet.FileRole, "agent\n")
	h := e.host(func(o *Options) {
		o.copier.step = func(what string) error { t.Errorf("a copy: %s", what); return nil }
	})
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	look(t, h)
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if f := look(t, h); !f.Server.Process || f.AgentProblem != "" {
		t.Errorf("%+v %q", f.Server, f.AgentProblem)
	}
}

// The break check: take the question whether both are at rest out of carry.
func TestNothingIsCopiedUnderARunningContainer(t *testing.T) { // R-N-09
	e, h := standby(t)
	h.o.copier.step = func(what string) error {
		for _, b := range e.boxes {
			if b.state != "exited" && b.state != "created" {
				t.Errorf("%s while %s is %s", what, b.service, b.state)
			}
		}
		return nil
	}
	// k3s of the other role: never both, and nothing is touched.
	e.promoted()
	if err := h.Start(t.Context(), fleet.RoleServer); err == nil || !strings.Contains(err.Error(), "never both") {
		t.Errorf("%v", err)
	}
	settle(t, h)
	if got := e.effects(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	// Idle containers of both roles are stopped first.
	stop(t, h, fleet.RoleAgent)
	e.up(e.box("k3s-agent")) // it idles: the role file says server
	e.plant(fleet.FileRole, "agent\n")
	must(t, os.RemoveAll(e.at(fleet.DefaultDataDir+"/server")))
	e.up(e.box("k3s")) // and the other one
	e.promoted()
	e.reset()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if got, want := e.effects(), []string{"stop k3s-agent", "stop k3s", "start k3s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// One that somebody starts in between stops the copy.
	stop(t, h, fleet.RoleServer)
	e.plant(fleet.FileRole, "agent\n")
	must(t, os.RemoveAll(e.at(fleet.DefaultDataDir+"/server")))
	n := 0
	e.before = func(call string) error {
		if call == "inspect k3s" {
			if n++; n == 3 { // of the pair that carry looks at
				e.mu.Lock()
				e.up(e.box("k3s"))
				e.mu.Unlock()
			}
		}
		return nil
	}
	if err := h.Start(t.Context(), fleet.RoleAgent); err == nil || !strings.Contains(err.Error(), "nothing is copied under it") {
		t.Errorf("%v, %d looks: %v", err, n, e.calls)
	}
}

// A copy that ends anywhere leaves the source as it was and is made whole by the
// next start; the role is not started before. The break check: note the owner before
// the copy.
func TestACopyIsKilledAtEveryPoint(t *testing.T) {
	for point := 1; ; point++ {
		e, h := standby(t)
		stop(t, h, fleet.RoleAgent)
		e.promoted()
		n, where := 0, ""
		h.o.copier.step = func(what string) error {
			if n++; n == point {
				where = what
				return errors.New("killed")
			}
			return nil
		}
		err := h.Start(t.Context(), fleet.RoleServer)
		settle(t, h)
		if where == "" {
			must(t, err)
			if point < 15 {
				t.Fatalf("only %d points", point)
			}
			break
		}
		t.Run(fmt.Sprintf("%d %s", point, where), func(t *testing.T) {
			if err == nil || slices.Contains(e.effects(), "start k3s") {
				t.Fatalf("started on a half copy: %v %v", err, e.effects())
			}
			if e.read("/volumes/k3s-agent-tailscale-data/tailscaled.state") != secretKey {
				t.Error("the source was changed")
			}
			again := e.host()
			must(t, again.Start(t.Context(), fleet.RoleServer))
			settle(t, again)
			if got := e.read("/volumes/k3s-node/password") + e.read("/volumes/k3s-tailscale-data/tailscaled.state") + e.read("/volumes/k3s-tailscale-data/certs/n1.crt") + e.read("/volumes/k3s-tailscale-data/derp.json"); got != secretPassword+"\n"+secretKey+"cert" {
				t.Errorf("%q", got)
			}
			for _, v := range []string{"k3s-node", "k3s-tailscale-data"} {
				if _, err := os.Stat(e.at("/volumes/" + v + "/" + partCopy)); err == nil {
					t.Errorf("%s has a part left", v)
				}
			}
			// Killed and taken back: the agent's own is untouched.
			if f := look(t, again); !f.Server.Process {
				t.Errorf("%+v", f.Server)
			}
		})
	}
}

// small is a volume of that many bytes.
func small(t *testing.T, dir string, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: a small file system cannot be mounted")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func TestAFullVolumeKeepsWhatItHoldsAndTheHostGoesBack(t *testing.T) {
	e, h := standby(t)
	full := e.at("/volumes/k3s-tailscale-data")
	small(t, full, "64k")
	e.plant("/volumes/k3s-tailscale-data/tailscaled.state", "of an earlier life")
	e.plant("/volumes/k3s-agent-tailscale-data/big", strings.Repeat(secretKey, 8000))
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	err := h.Start(t.Context(), fleet.RoleServer)
	if err == nil || !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), secretKey) {
		t.Fatalf("%v", err)
	}
	settle(t, h)
	if got := e.read("/volumes/k3s-tailscale-data/tailscaled.state"); got != "of an earlier life" {
		t.Errorf("the old one is %q", got)
	}
	if left, err := os.ReadDir(filepath.Join(full, partCopy)); err != nil || len(left) > 0 {
		t.Errorf("a part that takes the room, or no mark that the copy is not whole: %v %v", left, err)
	}
	e.plant(fleet.FileRole, "agent\n")
	must(t, os.RemoveAll(e.at(fleet.DefaultDataDir+"/server")))
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	if f := look(t, h); !f.Agent.Process || f.Server.Process {
		t.Errorf("no way back: %+v %+v", f.Agent, f.Server)
	}
	if e.read("/volumes/k3s-agent-tailscale-data/tailscaled.state") != secretKey {
		t.Error("the agent has another key")
	}
}

func TestALostIdentityIsNamedBeforeAnythingIsChanged(t *testing.T) {
	e, h := standby(t)
	must(t, os.Remove(e.at("/volumes/k3s-agent-node/password")))
	s, err := h.Staging(t.Context())
	must(t, err)
	if !s.Passwordless || !strings.Contains(s.IdentityProblem, "k3s-agent") {
		t.Errorf("%+v", s)
	}
	if f := look(t, h); !strings.Contains(f.AgentProblem, "missing or empty") {
		t.Errorf("%q", f.AgentProblem)
	}
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	e.reset()
	if err := h.Start(t.Context(), fleet.RoleServer); err == nil || !strings.Contains(err.Error(), "nothing is copied") {
		t.Errorf("%v", err)
	}
	if got := e.effects(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if e.read("/volumes/k3s-node/password") != "of an earlier life" {
		t.Error("written over with nothing")
	}
}

func TestTwoIdentitiesAndNobodySeenRunningAreLeftToAPerson(t *testing.T) {
	e := newEngine(t)
	e.separate()
	e.plant("/volumes/k3s-node/password", "one")
	e.plant("/volumes/k3s-agent-node/password", "another")
	e.plant(fleet.FileRole, "agent\n")
	h := e.host()
	if f := look(t, h); !strings.Contains(f.AgentProblem, "they differ") {
		t.Errorf("%q", f.AgentProblem)
	}
	if err := h.Start(t.Context(), fleet.RoleAgent); !errors.Is(err, errTwoIdentities) {
		t.Errorf("%v", err)
	}
	// The one that is there, where the other has none.
	must(t, os.Remove(e.at("/volumes/k3s-agent-node/password")))
	h = e.host()
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	if got := e.read("/volumes/k3s-agent-node/password"); got != "one" {
		t.Errorf("%q", got)
	}
}

func TestVolumesThatAreOutOfReachAreAProblem(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(e *fakeEngine)
		want  string
	}{
		"the agent keeps the password in its container": {func(e *fakeEngine) {
			b := e.box("k3s-agent")
			b.mounts = slices.DeleteFunc(b.mounts, func(m [2]string) bool { return m[1] == container.Identity()[0] })
		}, "/etc/rancher/node is in no volume of the service k3s-agent"},
		"only the server has a mesh": {func(e *fakeEngine) {
			b := e.box("k3s-agent")
			b.mounts = slices.DeleteFunc(b.mounts, func(m [2]string) bool { return m[1] == container.Identity()[1] })
		}, "/var/lib/tailscale is in no volume of the service k3s-agent"},
		"neither has a mesh": {func(e *fakeEngine) {
			for _, b := range e.boxes {
				b.mounts = slices.DeleteFunc(b.mounts, func(m [2]string) bool { return m[1] == container.Identity()[1] })
			}
		}, ""},
		"the daemon's container lacks one": {func(e *fakeEngine) {
			e.self(e.box("k3s").mounts[:4])
		}, "is not mounted in this daemon's container"},
		"the daemon's container may only read": {func(e *fakeEngine) {
			e.self(append(slices.Clone(e.box("k3s").mounts), e.box("k3s-agent").mounts[3:]...))
			e.box("regrade-host").readOnly = true
		}, "is mounted read-only in this daemon's container"},
		"the daemon's container has all of them": {func(e *fakeEngine) {
			e.self(append(slices.Clone(e.box("k3s").mounts), e.box("k3s-agent").mounts[3:]...))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.separate()
			slices.SortFunc(e.box("k3s").mounts[3:], func(a, b [2]string) int { return strings.Compare(a[1], b[1]) })
			e.plant("/volumes/k3s-agent-node/password", secretPassword)
			c.spoil(e)
			h := e.host(func(o *Options) {
				o.Self = func() string {
					for _, b := range e.boxes {
						if b.service == "regrade-host" {
							return mountinfoOf(b, b)
						}
					}
					return ""
				}
			})
			f := look(t, h)
			if c.want == "" && f.AgentProblem != "" || !strings.Contains(f.AgentProblem, c.want) {
				t.Errorf("%q, want %q", f.AgentProblem, c.want)
			}
			if c.want != "" && len(h.o.Identity) == 2 {
				if s, err := h.Staging(context.Background()); err != nil || !strings.Contains(s.IdentityProblem, c.want) {
					t.Errorf("%+v %v", s, err)
				}
			}
		})
	}
}

// self adds this process's own container. It sees everything where it is, so that
// the paths of the test stay right.
func (e *fakeEngine) self(mounts [][2]string) {
	var own [][2]string
	for _, m := range mounts {
		own = append(own, [2]string{m[0], m[0]})
	}
	own = append(own, [2]string{e.socket, e.socket})
	e.boxes = append(e.boxes, &box{id: strings.Repeat("ab", 32), name: "github-runner-regrade-host", project: "github-runner", service: "regrade-host", dir: "/srv/github-runner",
		command: []string{"/regrade", "host"}, state: "running", main: []string{"/regrade", "host"}, mounts: own})
}

func TestNothingSaysASecret(t *testing.T) { // safety rule 31
	e, h := standby(t)
	var said []string
	hear := func(v any) { said = append(said, fmt.Sprintf("%v %+v %#v", v, v, v)) }
	p, err := h.pair(t.Context())
	must(t, err)
	hear(p)
	hear(look(t, h))
	s, err := h.Staging(t.Context())
	must(t, err)
	hear(s)
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	must(t, os.Chmod(e.at("/volumes/k3s-tailscale-data"), 0o700))
	h.o.copier.step = func(what string) error { hear(what); return nil }
	must(t, os.RemoveAll(e.at("/volumes/k3s-node")))
	must(t, os.WriteFile(e.at("/volumes/k3s-node"), nil, 0o600)) // no folder: each step fails
	hear(h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	hear(e.read(fileRecord))
	for _, text := range said {
		for _, secret := range []string{secretToken, secretPassword, secretKey} {
			if strings.Contains(text, secret) {
				t.Errorf("%q says a secret", text)
			}
		}
	}
}

func TestAStartThatTheFilesForbidCopiesNothing(t *testing.T) {
	e, h := standby(t)
	stop(t, h, fleet.RoleAgent)
	e.reset()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if got := e.effects(); len(got) != 0 || e.read("/volumes/k3s-node/password") != "of an earlier life" {
		t.Errorf("%v", got)
	}
	if a := rolefile.MayStart(look(t, h).Files, fleet.RoleServer); a.May {
		t.Error(a.Why)
	}
}

// The volume of the node password was lost: k3s made itself another, which the
// cluster does not know. The break check: leave PasswordProblem out of Observe.
func TestANodePasswordThatIsNotTheMembersIsNamed(t *testing.T) { // safety rule 15
	for _, separate := range []bool{false, true} {
		e := newEngine(t)
		if separate {
			e.separate()
		}
		e.plant("/volumes/k3s-node/password", secretPassword+"\n")
		e.plant(fleet.FileRole, "server\n")
		e.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
		h := e.host()
		must(t, h.Start(t.Context(), fleet.RoleServer))
		settle(t, h)
		f := look(t, h)
		if f.Password == "" || strings.Contains(f.Password, secretPassword) || strings.Contains(f.AgentProblem, "password") {
			t.Fatalf("%q %q", f.Password, f.AgentProblem)
		}
		must(t, h.SetIdentity(t.Context(), rolefile.Identity{ClusterID: 1, MemberID: 2, Password: f.Password}))
		if f := look(t, h); strings.Contains(f.AgentProblem, "password") {
			t.Errorf("%q", f.AgentProblem)
		}
		e.plant("/volumes/k3s-node/password", "of k3s's own make")
		if f := look(t, h); !strings.Contains(f.AgentProblem, fleet.FilePassword) {
			t.Errorf("%q", f.AgentProblem)
		}
	}
}

// What would stop the copy is named while nothing is changed yet, on the host that shall
// become a server and on the one that shall become an agent. The break check: leave
// copyProblem out of identityProblem.
func TestAnIdentityThatCouldNotBeCopiedIsNamedBeforeAnythingIsChanged(t *testing.T) { // safety rules 15 and 17
	e, h := standby(t)
	names := func(want string) {
		t.Helper()
		s, err := h.Staging(t.Context())
		must(t, err)
		f := look(t, h)
		for _, got := range []string{s.IdentityProblem, f.AgentProblem} {
			if want == "" && strings.Contains(got, "tailscale") || !strings.Contains(got, want) || strings.Contains(got, secretKey) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if s.Passwordless {
			t.Error("it has a password")
		}
	}
	names("")

	// Root reads what its mode forbids; what no mode forbids it and cannot be read is a
	// process's memory at an address that is not mapped.
	odd := e.at("/volumes/k3s-agent-tailscale-data/odd")
	must(t, os.Symlink("/proc/self/mem", odd))
	names("") // a link is copied as a link
	must(t, os.Remove(odd))
	if os.Geteuid() == 0 {
		must(t, os.WriteFile(odd, nil, 0o600))
		must(t, syscall.Mount("/proc/self/mem", odd, "", syscall.MS_BIND, ""))
		t.Cleanup(func() { _ = syscall.Unmount(odd, syscall.MNT_DETACH) })
		names("/var/lib/tailscale of the service k3s-agent cannot be read")
		must(t, syscall.Unmount(odd, syscall.MNT_DETACH))
	} else {
		must(t, os.WriteFile(odd, nil, 0))
		names("/var/lib/tailscale of the service k3s-agent cannot be read")
	}
	must(t, os.Remove(odd))
	names("")

	small(t, e.at("/volumes/k3s-tailscale-data"), "64k")
	names("")
	big := "/volumes/k3s-agent-tailscale-data/big"
	e.plant(big, strings.Repeat("x", 80<<10))
	names("has no room where it is copied to: 64 KiB are free")
	e.plant(big, "small")
	names("")
	if got := e.effects(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
