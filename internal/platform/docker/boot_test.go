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

// Engines from 23.0.0 to 24.0.6 take the end of the daemon that waits for a restart for a
// cancel: the server is stopped and not started. The next daemon starts it. The break
// check: leave cutShort out of owed; and let it be true whenever the server is at rest.
func TestARestartThatTheEngineBrokeOffIsEndedByTheNextDaemon(t *testing.T) { // safety rule 10
	e, h := member(t)
	breakOff(t, e, h)
	next := e.host()
	f := look(t, next)
	if f.Server.Process || f.Owed != fleet.RoleServer {
		t.Fatalf("%q %+v", f.Owed, f.Server)
	}
	must(t, next.Start(t.Context(), fleet.RoleServer))
	settle(t, next)
	if f := look(t, next); !f.Server.Process || f.Owed != "" {
		t.Errorf("%q %+v", f.Owed, f.Server)
	}
	// What a person stops then stays stopped.
	byHand := func() {
		e.mu.Lock()
		e.down(e.box("k3s"))
		e.mu.Unlock()
	}
	byHand()
	if f := look(t, e.host()); f.Owed != "" {
		t.Errorf("stopped by hand: %q", f.Owed)
	}
}

// breakOff has the engine stop the server for a restart, and no more.
func breakOff(t *testing.T, e *fakeEngine, h *Host) {
	t.Helper()
	e.breaksOff = true
	e.box("k3s").started = time.Now().Add(-time.Hour) // the engine of this test is ahead of the clock
	if err := h.Restart(t.Context()); err == nil {
		t.Fatal("it was carried out")
	}
	settle(t, h)
}

func TestAServerThatIsStoppedAfterItsRestartIsNotOwed(t *testing.T) {
	for name, after := range map[string]func(e *fakeEngine, h *Host){
		"stopped by a person, the restart done": func(e *fakeEngine, _ *Host) {
			e.mu.Lock()
			e.down(e.box("k3s"))
			e.mu.Unlock()
		},
		"stopped by a person, the restart done when its daemon was dead": func(e *fakeEngine, h *Host) {
			must(t, h.note(func(r *record) { r.Restarting = r.Start }))
			e.mu.Lock()
			e.down(e.box("k3s"))
			e.mu.Unlock()
		},
		"stopped by a step, the restart done": func(_ *fakeEngine, h *Host) { stop(t, h, fleet.RoleServer) },
		"stopped by a step, the restart broken off": func(e *fakeEngine, h *Host) {
			breakOff(t, e, h)
			stop(t, h, fleet.RoleServer)
		},
		"broken off, and the role is another by now": func(e *fakeEngine, h *Host) {
			breakOff(t, e, h)
			e.plant(fleet.FileRole, "agent\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, h := member(t)
			must(t, h.Restart(t.Context()))
			settle(t, h)
			after(e, h)
			if f := look(t, e.host()); f.Owed != "" || f.Server.Process {
				t.Errorf("%q %+v", f.Owed, f.Server)
			}
		})
	}
}
