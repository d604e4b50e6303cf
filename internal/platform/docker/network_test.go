package docker

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// inAMesh is a voter whose three containers are in the network of another one.
func inAMesh(t *testing.T) (*fakeEngine, *box, func(name, address string) *Host) {
	t.Helper()
	e, _ := member(t)
	at := time.Now().Add(-time.Hour)
	mesh := &box{id: strings.Repeat("77", 32), name: "mesh", service: "tailscale", project: "mesh", command: []string{"/tailscaled"}, state: "running", started: at, address: "172.17.0.2"}
	e.boxes = append(e.boxes, mesh)
	e.self(e.box("k3s").mounts)
	for i, service := range []string{"k3s", "k3s-agent", "regrade-host"} {
		e.box(service).network, e.box(service).started = mesh.id, at.Add(time.Duration(i+1)*time.Minute)
	}
	return e, mesh, func(name, address string) *Host {
		return e.host(func(o *Options) {
			o.Self = func() string { return mountinfoOf(e.box("regrade-host"), mesh) }
			o.Network = func() (string, []netip.Addr) {
				own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.42.0.1")} // k3s's bridge stays
				if address != "" {
					own = append(own, netip.MustParseAddr(address))
				}
				return name, own
			}
		})
	}
}

// The break checks: leave cutOff out of Observe; let the time alone decide.
func TestADaemonWhoseNetworkIsGoneEndsItself(t *testing.T) {
	e, mesh, daemon := inAMesh(t)
	alone, among := daemon("net:[1]", ""), daemon("net:[1]", "172.17.0.2")
	for _, h := range []*Host{alone, among} {
		if f := look(t, h); f.Owed != "" {
			t.Errorf("%q", f.Owed)
		}
	}
	mesh.started = e.box("regrade-host").started.Add(time.Minute)
	if _, err := alone.Observe(t.Context()); !errors.Is(err, platform.ErrAnew) || !strings.Contains(err.Error(), "mesh was started anew") {
		t.Errorf("%v", err)
	}
	look(t, among) // a clock that was set back: its network is there
	mesh.address = ""
	look(t, alone) // in the host's network there is nothing to lose
	mesh.address = "172.17.0.2"
	mesh.state = "exited"
	look(t, alone) // the engine could not start it again

	// One that was made anew has another id, under which the engine looks for it in vain.
	mesh.id = strings.Repeat("88", 32)
	if _, err := alone.Observe(t.Context()); err == nil || errors.Is(err, platform.ErrAnew) || !strings.Contains(err.Error(), "make all three containers anew") {
		t.Errorf("%v", err)
	}
}

// The daemon was started anew in the network that is there now; k3s was not. The break
// checks: leave severed out of Observe, and out of start; do not ask the container.
func TestK3sInANetworkThatIsGoneIsStartedAnew(t *testing.T) {
	e, mesh, daemon := inAMesh(t)
	mesh.started = e.box("k3s").started.Add(time.Minute)
	e.box("regrade-host").started = mesh.started.Add(time.Minute)
	e.text = "net:[1]\n"
	h := daemon("net:[2]", "172.17.0.2")
	if f := look(t, h); f.Owed != fleet.RoleServer || !f.Server.Process {
		t.Fatalf("%q %+v", f.Owed, f.Server)
	}
	e.reset()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	var got []string
	for _, call := range e.effects() {
		if !strings.HasPrefix(call, "exec") {
			got = append(got, call)
		}
	}
	if strings.Join(got, ", ") != "stop k3s, start k3s" {
		t.Errorf("%v", got)
	}
	e.text = "net:[2]\n"
	if f := look(t, h); f.Owed != "" || !f.Server.Process {
		t.Errorf("%q %+v", f.Owed, f.Server)
	}
}

// A voter that works is not restarted on a suspicion (safety rule 2).
func TestK3sInANetworkThatIsThereIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		says   string
		change func(e *fakeEngine, mesh *box)
		own    string
		with   string
	}{
		"the same network, a clock that was set back": {"net:[2]\n", func(*fakeEngine, *box) {}, "net:[2]", "172.17.0.2"},
		"an older entrypoint, which says nothing":     {"", func(e *fakeEngine, _ *box) { e.code = 2 }, "net:[2]", "172.17.0.2"},
		"something else is said":                      {"k3s version v1\n", func(*fakeEngine, *box) {}, "net:[2]", "172.17.0.2"},
		"the daemon's own cannot be told":             {"net:[1]\n", func(*fakeEngine, *box) {}, "", "172.17.0.2"},
		"the daemon's own is the one that is gone":    {"net:[1]\n", func(*fakeEngine, *box) {}, "net:[2]", ""},
		"the other container is not older than it":    {"net:[1]\n", func(e *fakeEngine, mesh *box) { mesh.started = e.box("k3s").started }, "net:[2]", "172.17.0.2"},
		"k3s has the host's network":                  {"net:[1]\n", func(e *fakeEngine, _ *box) { e.box("k3s").network = "" }, "net:[2]", "172.17.0.2"},
		"its role may not start":                      {"net:[1]\n", func(e *fakeEngine, _ *box) { e.plant(fleet.FileRole, "agent\n") }, "net:[2]", "172.17.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			e, mesh, daemon := inAMesh(t)
			mesh.started = e.box("k3s").started.Add(time.Minute)
			e.box("regrade-host").started = mesh.started.Add(time.Minute)
			e.text = c.says
			c.change(e, mesh)
			h := daemon(c.own, c.with)
			for range 2 {
				if f, err := h.Observe(t.Context()); err == nil && f.Owed != "" {
					t.Errorf("%q", f.Owed)
				}
			}
			e.reset()
			must(t, h.Start(t.Context(), fleet.RoleServer))
			settle(t, h)
			for _, call := range e.effects() {
				if call == "stop k3s" {
					t.Error("it was stopped")
				}
			}
		})
	}
}
