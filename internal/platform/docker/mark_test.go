package docker

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
)

// steppedDown is a server with identity volumes of its own, which its daemon has stopped
// to make it an agent; the agent's volumes have those of an earlier life.
func steppedDown(t *testing.T) (*fakeEngine, *Host) {
	t.Helper()
	e := newEngine(t)
	e.separate()
	e.plant("/volumes/k3s-node/password", secretPassword)
	e.plant("/volumes/k3s-tailscale-data/tailscaled.state", secretKey)
	e.plant("/volumes/k3s-agent-tailscale-data/tailscaled.state", "of an earlier life")
	e.promoted()
	h := e.host()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	look(t, h)
	stop(t, h, fleet.RoleServer)
	must(t, os.RemoveAll(e.at(fleet.DefaultDataDir+"/server")))
	return e, h
}

func (e *fakeEngine) wantAgent(h *Host) {
	e.t.Helper()
	settle(e.t, h)
	if u := look(e.t, h).Agent; !u.Process {
		e.t.Errorf("%+v", u)
	}
	for path, want := range map[string]string{
		"/volumes/k3s-node/password": secretPassword, "/volumes/k3s-agent-node/password": secretPassword,
		"/volumes/k3s-agent-tailscale-data/tailscaled.state": secretKey,
	} {
		if got := e.read(path); got != want {
			e.t.Errorf("%s holds %q", path, got)
		}
	}
	for _, v := range []string{"k3s-node", "k3s-agent-node", "k3s-tailscale-data", "k3s-agent-tailscale-data"} {
		if exists(e.at("/volumes/" + v + "/" + partCopy)) {
			e.t.Errorf("%s is marked", v)
		}
	}
}

// Between the role file and the copy somebody starts the agent's container: a person, or an
// engine that comes back, with a policy of always. k3s would make itself another node
// password, be turned away for good, and pass for the host's identity from then on. The
// break check: mark nothing.
func TestARoleWithoutTheHostsIdentityIsStartedByNobodyElse(t *testing.T) { // R-N-09
	for name, again := range map[string]func(e *fakeEngine, h *Host) *Host{
		"the same daemon": func(_ *fakeEngine, h *Host) *Host { return h },
		"the next one":    func(e *fakeEngine, _ *Host) *Host { return e.host() },
		"the next one, which has lost its record": func(e *fakeEngine, _ *Host) *Host {
			must(e.t, os.Remove(e.at(fileRecord)))
			return e.host()
		},
		"its record and the agent's another password": func(e *fakeEngine, _ *Host) *Host {
			must(e.t, os.Remove(e.at(fileRecord)))
			e.plant("/volumes/k3s-agent-node/password", "of an earlier life")
			return e.host()
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, h := steppedDown(t)
			must(t, h.SetRole(t.Context(), fleet.RoleAgent))
			e.up(e.box("k3s-agent"))
			if u := look(t, h).Agent; u.Process {
				t.Errorf("k3s runs without the host's identity: %+v", u)
			}
			h = again(e, h)
			e.reset()
			must(t, h.Start(t.Context(), fleet.RoleAgent))
			settle(t, h)
			if got, want := e.effects(), []string{"stop k3s-agent", "start k3s-agent"}; !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			e.wantAgent(h)
		})
	}
}

// `docker container prune` takes the container that has just been stopped, whose volumes
// have the identity. The break check: start the agent all the same.
func TestAnIdentityWhoseContainerWasTakenAwayIsNotForgotten(t *testing.T) { // R-N-09
	e, h := steppedDown(t)
	must(t, h.SetRole(t.Context(), fleet.RoleAgent))
	all := e.boxes
	e.boxes = slices.DeleteFunc(slices.Clone(all), func(b *box) bool { return b.service == "k3s" })
	e.reset()
	err := h.Start(t.Context(), fleet.RoleAgent)
	settle(t, h)
	if err == nil || !strings.Contains(err.Error(), "identity: it is in the volumes of the service k3s") || !strings.Contains(err.Error(), "up --no-start --no-recreate") {
		t.Errorf("%v", err)
	}
	if got := e.effects(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	e.boxes = all
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	e.wantAgent(h)
}

// An entrypoint of before knew of no marks: what runs has the identity.
func TestAMarkOfARoleThatRunsIsTakenAway(t *testing.T) {
	e, h := steppedDown(t)
	must(t, h.SetRole(t.Context(), fleet.RoleAgent))
	e.plant("/volumes/k3s-agent-node/password", "k3s's own")
	e.up(e.box("k3s-agent"))
	e.box("k3s-agent").main = []string{"/bin/k3s", "agent"}
	look(t, h)
	stop(t, h, fleet.RoleAgent)
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	if u := look(t, h).Agent; !u.Process {
		t.Errorf("%+v", u)
	}
}
