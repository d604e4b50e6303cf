package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// hang makes the engine stop answering calls that begin with a word, until the
// returned function is called.
func (e *fakeEngine) hang(word string) (letGo func()) {
	gate := make(chan struct{})
	e.mu.Lock()
	e.before = func(call string) error {
		if strings.HasPrefix(call, word) {
			<-gate
		}
		return nil
	}
	e.mu.Unlock()
	letGo = func() {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
	e.t.Cleanup(letGo)
	return letGo
}

func TestAnEngineThatHangsHoldsNoLook(t *testing.T) {
	for _, call := range []string{"list", "inspect", "top"} {
		e, h := member(t)
		e.hang(call)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := h.Observe(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), e.socket) || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %v after %s", call, err, time.Since(began))
		}
	}
}

// An engine that hangs in the middle of a stop: the pass goes on, the stop is seen to
// be under way, and the host is not taken for stopped.
func TestAStopThatTakesLongHoldsNoPass(t *testing.T) {
	e, h := member(t)
	letGo := e.hang("stop")
	began := time.Now()
	must(t, h.Stop(t.Context(), fleet.RoleServer))
	if d := time.Since(began); d > 20*time.Second { // the engine would hold it for ever
		t.Errorf("the pass was held for %s", d)
	}
	u := look(t, h).Server
	if u.Job != platform.JobStop || u.Gone() || !u.Process {
		t.Errorf("%+v", u)
	}
	must(t, h.Stop(t.Context(), fleet.RoleServer)) // the same order
	if n := len(slices.DeleteFunc(e.effects(), func(c string) bool { return c != "stop k3s" })); n != 1 {
		t.Errorf("asked %d times", n)
	}
	letGo()
	settle(t, h)
	if u := look(t, h).Server; !u.Gone() {
		t.Errorf("%+v", u)
	}
}

func TestARestartIsOneJobAndAStopEndsIt(t *testing.T) {
	e, h := member(t)
	letGo := e.hang("restart")
	must(t, h.Restart(t.Context()))
	if u := look(t, h).Server; u.Job != platform.JobOther {
		t.Errorf("%+v", u)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		letGo()
	}()
	must(t, h.Stop(t.Context(), fleet.RoleServer))
	settle(t, h)
	if got := e.effects(); len(got) == 0 || got[len(got)-1] != "stop k3s" {
		t.Errorf("%v", got)
	}
}

// What goes wrong after the pass has gone on is said by the next effect, once.
func TestALateErrorIsNotLost(t *testing.T) {
	e, h := member(t)
	gone := make(chan struct{})
	e.before = func(call string) error {
		if call == "stop k3s" {
			<-gone
			return errors.New("cannot kill it")
		}
		return nil
	}
	must(t, h.Stop(t.Context(), fleet.RoleServer))
	close(gone)
	settle(t, h)
	if err := h.Stop(t.Context(), fleet.RoleServer); err == nil || !strings.Contains(err.Error(), "cannot kill it") {
		t.Errorf("%v", err)
	}
	e.before = nil
	stop(t, h, fleet.RoleServer)
	if u := look(t, h).Server; !u.Gone() {
		t.Errorf("%+v", u)
	}
}

// Nothing is asked of a container once the time of the effect is up: what it was
// decided on is too old. The break check: take the second question from start.
func TestAStartThatComesTooLateIsNotMade(t *testing.T) {
	e, h := standby(t)
	e.up(e.box("k3s")) // idles, and is slow to stop
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	ctx, cancel := context.WithTimeout(t.Context(), 2*startWait)
	defer cancel()
	e.before = func(call string) error {
		if call == "stop k3s" {
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	}
	must(t, h.Start(ctx, fleet.RoleServer))
	settle(t, h)
	if slices.Contains(e.effects(), "start k3s") {
		t.Errorf("%v", e.effects())
	}
	if err := h.Start(t.Context(), fleet.RoleServer); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody is told: %v", err)
	}
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if !look(t, h).Server.Process {
		t.Error("not started when asked anew")
	}
	old, end := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer end()
	e.reset()
	for _, err := range []error{h.Stop(old, fleet.RoleServer), h.Restart(old), h.Start(old, fleet.RoleAgent)} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	if got := e.effects(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestWhatKeepsTheEngineOutOfReachIsSaid(t *testing.T) {
	nobody := filepath.Join(t.TempDir(), "no.sock")
	h, err := New(Options{Root: t.TempDir(), Socket: nobody, Self: func() string { return "" }})
	must(t, err)
	if _, err := h.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "no engine answers at "+nobody) {
		t.Errorf("%v", err)
	}
	m := &moby{socket: "/var/run/docker.sock"}
	err = m.call(t.Context(), time.Second, "list containers", func(context.Context) error { return os.NewSyscallError("connect", syscall.EACCES) })
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "no right to use the socket /var/run/docker.sock") {
		t.Errorf("%v", err)
	}
}

func TestTheDaemonsOwnContainerMustBeOfThisEngine(t *testing.T) {
	e, _ := member(t)
	b := &box{id: strings.Repeat("ee", 32), mounts: [][2]string{{"/run/docker.sock", e.socket}}}
	h := e.host(func(o *Options) { o.Self = func() string { return mountinfoOf(b, b) } })
	if _, err := h.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "does not know (eeeeeeeeeeee)") {
		t.Errorf("%v", err)
	}
}

func TestASnapshotIsTakenInTheServersContainer(t *testing.T) { // R-D1-28
	e, h := member(t)
	e.text, e.code = "FATA[0000] see server log for details: disk full\n", 1
	must(t, h.SaveSnapshot(t.Context(), "fleet-role-x"))
	deadline := time.Now().Add(5 * time.Second)
	for look(t, h).Snapshot.Running && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if s := look(t, h).Snapshot; s.Base != "fleet-role-x" || !strings.Contains(s.Error, "disk full") {
		t.Errorf("%+v", s)
	}
	stop(t, h, fleet.RoleServer)
	if err := h.SaveSnapshot(t.Context(), "fleet-role-y"); err == nil {
		t.Error("of a server that does not run")
	}
}
