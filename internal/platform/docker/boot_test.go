package docker

import (
	"os"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// design §4.1, "agent again": the agent was stopped for a promotion and the host was
// restarted. The engine brings the daemon back and leaves the agent down.
func TestABootOwesTheRoleThatWasStoppedBeforeIt(t *testing.T) {
	e, h := standby(t)
	must(t, h.SetJoining(t.Context(), rolefile.Joining{Swap: "20261129T120000Z-a-d", BootID: "boot-1"}))
	e.plant(fleet.FileJoinURL, "https://10.0.0.1:6443\n")
	stop(t, h, fleet.RoleAgent)
	if f := look(t, h); f.Owed != "" {
		t.Errorf("in the middle of a step: %q", f.Owed)
	}
	if f := look(t, e.host()); f.Owed != "" {
		t.Errorf("for a new daemon in the middle of a step: %q", f.Owed)
	}
	must(t, os.Remove(e.at(fleet.FileJoining))) // /run is empty after a boot
	again := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-2", nil } })
	for range 2 {
		if f := look(t, again); f.Owed != fleet.RoleAgent {
			t.Errorf("%q", f.Owed)
		}
	}
	must(t, again.Start(t.Context(), fleet.RoleAgent))
	settle(t, again)
	if f := look(t, again); f.Owed != "" || !f.Agent.Process {
		t.Errorf("%q %+v", f.Owed, f.Agent)
	}
	// What a person stops stays stopped, also for the next daemon.
	e.mu.Lock()
	e.down(e.box("k3s-agent"))
	e.mu.Unlock()
	if f := look(t, again); f.Owed != "" {
		t.Errorf("%q", f.Owed)
	}
	next := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-2", nil } })
	if f := look(t, next); f.Owed != "" {
		t.Errorf("%q", f.Owed)
	}
}

func TestWhatTheEngineBringsBackIsNotOwed(t *testing.T) {
	e, _ := member(t)
	h := e.host(func(o *Options) { o.BootID = func() (string, error) { return "boot-2", nil } })
	if f := look(t, h); f.Owed != "" {
		t.Errorf("%q", f.Owed)
	}
	e.mu.Lock()
	e.down(e.box("k3s"))
	e.mu.Unlock()
	if f := look(t, h); f.Owed != "" {
		t.Errorf("stopped by hand: %q", f.Owed)
	}
	// A host without a role file is none of ours.
	bare := newEngine(t)
	if f := look(t, bare.host()); f.Owed != "" {
		t.Errorf("%q", f.Owed)
	}
}
