package command_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/command"
	"github.com/exadev/regrade/internal/platform/platformtest"
)

// owner is a folder with the three programs of a host's owner.
type owner struct {
	t   *testing.T
	dir string
	c   command.Commands
}

func newOwner(t *testing.T) *owner {
	o := &owner{t: t, dir: t.TempDir()}
	o.write("at", "full\n")
	o.program("levels", "echo full control-plane etcd-only")
	o.program("current", "cat "+o.path("at"))
	o.program("apply", "echo switching to $1; echo $1 > "+o.path("at"))
	o.c = command.Commands{Levels: []string{o.path("levels")}, Current: []string{o.path("current")}, Apply: []string{o.path("apply")}, ApplyTimeout: 5 * time.Second, Lock: o.path("run/lock")}
	return o
}

func (o *owner) path(name string) string { return filepath.Join(o.dir, name) }

func (o *owner) write(name, text string) {
	o.t.Helper()
	if err := os.WriteFile(o.path(name), []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) program(name, script string) {
	o.t.Helper()
	if err := os.WriteFile(o.path(name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		o.t.Fatal(err)
	}
}

// patient waits until a level is applied, as the passes of a daemon do.
type patient struct{ *command.Host }

func (p patient) SetLevel(ctx context.Context, level fleet.Level) error {
	if err := p.Host.SetLevel(ctx, level); err != nil {
		return err
	}
	_, err := applied(ctx, p.Host)
	return err
}

func applied(ctx context.Context, h *command.Host) (platform.Facts, error) {
	for range 1000 {
		f, err := h.Observe(ctx)
		if err != nil || !f.LevelRun.Running {
			return f, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return platform.Facts{}, fmt.Errorf("never applied")
}

func TestConformance(t *testing.T) { // R-112-05
	platformtest.Run(t, func(t *testing.T) platformtest.Subject {
		fake := platformtest.NewFake("boot-1")
		return platformtest.Subject{
			Applies: true,
			Host:    patient{command.New(fake, newOwner(t).c)},
			Datastore: func() {
				fake.Change(func(f *platform.Facts) { f.Datastore, f.Files.WAL, f.MemberName = true, true, "a-0000" })
			},
			Settle: func() {
				for range 4 {
					fake.Advance()
				}
			},
		}
	})
}

func TestALevelIsAppliedBesideThePassesAndItsOutputKept(t *testing.T) { // R-112-05, issue 6
	o := newOwner(t)
	o.program("apply", "while [ ! -e "+o.path("go")+" ]; do sleep 0.01; done; head -c 100000 /dev/zero | tr '\\0' x; echo $1 > "+o.path("at"))
	fake := platformtest.NewFake("boot-1")
	fake.Change(func(f *platform.Facts) { f.Server.Process = true })
	h := command.New(fake, o.c)
	ctx := t.Context()
	if err := h.SetLevel(ctx, fleet.LevelEtcdOnly); err != nil {
		t.Fatal(err)
	}
	f, err := h.Observe(ctx)
	if err != nil || !f.LevelRun.Running || !f.LevelRun.Applies || f.Level != fleet.LevelFull || f.Server.Level != "" {
		t.Errorf("%+v, server at %q, %v", f.LevelRun, f.Server.Level, err)
	}
	if err := h.SetLevel(ctx, fleet.LevelEtcdOnly); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := h.SetLevel(ctx, fleet.LevelFull); err == nil {
		t.Error("a second one is applied beside the first")
	}
	if err := h.Restart(ctx); err != nil || len(fake.Calls) > 0 {
		t.Errorf("k3s is restarted beside the program: %v, %v", fake.Calls, err)
	}
	o.write("go", "")
	f, err = applied(ctx, h)
	if err != nil || f.Level != fleet.LevelEtcdOnly || f.Server.Level != fleet.LevelEtcdOnly || f.LevelRun.Error != "" {
		t.Errorf("%s, server %s, %v, %v", f.Level, f.Server.Level, f.LevelRun.Error, err)
	}
	if n := len(f.LevelRun.Output); n == 0 || n > 4<<10 {
		t.Errorf("%d bytes of output are kept", n)
	}
}

// Who sets a level by hand may break off while the program is at work: the daemon, which
// goes on with the step, waits for it. The break check: look at the own runs alone.
func TestARunOfAnotherProcessIsWaitedFor(t *testing.T) { // R-112-05
	o := newOwner(t)
	o.program("apply", "sleep 20 & while [ ! -e "+o.path("go")+" ]; do sleep 0.01; done; echo $1 > "+o.path("at"))
	fake := platformtest.NewFake("boot-1")
	fake.Change(func(f *platform.Facts) { f.Server.Process = true })
	byHand, daemon := command.New(fake, o.c), command.New(fake, o.c)
	ctx := t.Context()
	if f, err := daemon.Observe(ctx); err != nil || f.LevelRun.Running {
		t.Fatalf("%+v, %v", f.LevelRun, err)
	}
	if err := byHand.SetLevel(ctx, fleet.LevelEtcdOnly); err != nil {
		t.Fatal(err)
	}
	o.write("at", "half way\n")
	f, err := daemon.Observe(ctx)
	if err != nil || !f.LevelRun.Running || f.LevelRun.Level != fleet.LevelEtcdOnly || f.Server.Level != "" {
		t.Errorf("%+v, server at %q, %v", f.LevelRun, f.Server.Level, err)
	}
	says(t, "a second one beside the first", daemon.SetLevel(ctx, fleet.LevelEtcdOnly), "another process")
	// Of what has had its time only what it left behind still has the lock.
	daemon.Now = func() time.Time { return time.Now().Add(o.c.ApplyTimeout + 2*time.Minute) }
	o.write("at", "full\n")
	if f, err := daemon.Observe(ctx); err != nil || f.LevelRun.Running {
		t.Errorf("%+v, %v", f.LevelRun, err)
	}
	daemon.Now = time.Now
	o.write("go", "")
	if f, err := applied(ctx, daemon); err != nil || f.Level != fleet.LevelEtcdOnly {
		t.Errorf("%+v, %v", f.LevelRun, err)
	}
	if err := daemon.SetLevel(ctx, fleet.LevelFull); err != nil {
		t.Errorf("after it: %v", err)
	}
	if _, err := applied(ctx, daemon); err != nil {
		t.Error(err)
	}
}

// The break check: keep what the last run came to.
func TestWhatARunCameToIsToldUntilTheNextNote(t *testing.T) { // R-112-05
	o := newOwner(t)
	o.program("apply", "echo no room >&2; exit 1")
	h := command.New(platformtest.NewFake("boot-1"), o.c)
	if err := h.SetLevel(t.Context(), fleet.LevelEtcdOnly); err != nil {
		t.Fatal(err)
	}
	if f, err := applied(t.Context(), h); err != nil || !strings.Contains(f.LevelRun.Error, "no room") {
		t.Fatalf("%+v, %v", f.LevelRun, err)
	}
	if err := h.SetLevelJournal(t.Context(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if f, err := h.Observe(t.Context()); err != nil || f.LevelRun.Error != "" || !f.LevelRun.Applies {
		t.Errorf("%+v, %v", f.LevelRun, err)
	}
}

func TestProgramsThatFailAreNamed(t *testing.T) { // safety rules 24 and 28
	for name, tt := range map[string]struct {
		program, script string
		look, set, run  string
	}{
		"current_level that fails":              {"current", "echo no specialisation >&2; exit 3", "current_level: exit status 3: no specialisation", "", ""},
		"current_level that says nothing":       {"current", "true", "current_level: it printed no level", "", ""},
		"current_level that names none of ours": {"current", "echo half", `current_level: level "half"`, "", ""},
		"levels without the one that is asked":  {"levels", "echo full", "", `no level "etcd-only", it has full`, ""},
		"levels that fail":                      {"levels", "exit 1", "", "levels: exit status 1", ""},
		"apply_level that fails":                {"apply", "echo out of space >&2; exit 1", "", "", "apply_level etcd-only: exit status 1: out of space"},
		"apply_level that never ends":           {"apply", "sleep 100 & sleep 100", "", "", "not done within"},
		"a program that is not there":           {"apply", "", "", "", "apply_level etcd-only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwner(t)
			o.program(tt.program, tt.script)
			o.c.ApplyTimeout = 300 * time.Millisecond
			if strings.HasPrefix(name, "a program") {
				o.c.Apply = []string{o.path("nowhere")}
			}
			h := command.New(platformtest.NewFake("boot-1"), o.c)
			says(t, "observe", second(h.Observe(t.Context())), tt.look)
			if tt.look != "" {
				return
			}
			says(t, "set", h.SetLevel(t.Context(), fleet.LevelEtcdOnly), tt.set)
			if tt.set != "" {
				return
			}
			began := time.Now()
			f, err := applied(t.Context(), h)
			if err != nil || !strings.Contains(f.LevelRun.Error, tt.run) || f.Level != fleet.LevelFull || time.Since(began) > 8*time.Second {
				t.Errorf("%+v, %v after %s", f.LevelRun, err, time.Since(began))
			}
		})
	}
}

func second(_ platform.Facts, err error) error { return err }

func says(t *testing.T, what string, err error, part string) {
	t.Helper()
	if (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v, want %q", what, err, part)
	}
}
