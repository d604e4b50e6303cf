package docker

import (
	"os"
	"testing"
	"time"

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

// The server's container was started for a promotion, and the host was restarted
// before k3s had a datastore. The engine brings the container back, which asks while
// the joining file is gone, and idles. The break check: leave the boot out of covers.
// So it is where the host is a container and a boot has no id of its own: leave
// confirmedSince out.
func TestAServerThatABootBroughtBackTooEarlyIsStartedAgain(t *testing.T) { // safety rules 10 and 18
	for _, boot := range []string{"boot-2", "boot-1"} {
		t.Run(boot, func(t *testing.T) { broughtBack(t, boot) })
	}
}

func broughtBack(t *testing.T, boot string) {
	t.Helper()
	e, h := standby(t)
	stop(t, h, fleet.RoleAgent)
	confirm := func(h *Host, boot string) {
		must(t, h.SetJoining(t.Context(), rolefile.Joining{Swap: "20261129T120000Z-a-d", BootID: boot}))
	}
	e.plant(fleet.FileJoinURL, "https://10.0.0.1:6443\n")
	confirm(h, "boot-1")
	e.waits = true // for the join host
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if u := look(t, h).Server; !u.Rising() {
		t.Fatalf("%+v", u)
	}
	must(t, os.Remove(e.at(fleet.FileJoining))) // /run is empty after a boot
	e.waits = false
	e.mu.Lock()
	e.down(e.box("k3s"))
	e.mu.Unlock()
	e.boot = boot
	e.up(e.box("k3s"))
	again := e.host()
	confirm(again, boot)
	// The engine of this test is ahead of the clock.
	later := e.box("k3s").started.Add(time.Second)
	must(t, os.Chtimes(e.at(fleet.FileJoining), later, later))
	if u := look(t, again).Server; u.Rising() || !u.Gone() {
		t.Errorf("an idle container is taken for one that waits: %+v", u)
	}
	must(t, again.Start(t.Context(), fleet.RoleServer))
	settle(t, again)
	if u := look(t, again).Server; !u.Process {
		t.Errorf("%+v", u)
	}
}
