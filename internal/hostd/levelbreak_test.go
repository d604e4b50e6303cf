package hostd_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/platform"
)

// oneAtATime is a host lock that a command has, or the daemon.
type oneAtATime struct{ taken *bool }

func (l oneAtATime) TryLock() (bool, error) { return !*l.taken, nil }
func (oneAtATime) Unlock() error            { return nil }

// The daemon's own clock dates the steps that it settled itself, and no other. The break
// check: take its own time for any step's.
func TestAStepByHandHasItsCooldownAlsoForADaemonThatTookOneBefore(t *testing.T) { // R-112-04
	g := newGraded(t)
	commanded := false
	g.lock = oneAtATime{&commanded}
	g.restart()
	g.reading = short
	g.until("control-plane", g.at(fleet.LevelControlPlane))
	g.reading = plenty
	g.until("full", g.at(fleet.LevelFull))
	g.runFor(time.Hour)

	daemon := g.daemon
	commanded, g.lock, g.command = true, nil, &hostd.Command{Level: fleet.LevelControlPlane}
	g.restart()
	for range 50 {
		if g.at(fleet.LevelControlPlane)() {
			break
		}
		g.pass()
		if _, err := daemon.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	commanded, g.command, g.daemon = false, nil, daemon
	ended := g.levelJournal().Ended
	if j := g.levelJournal(); j.By != hostd.ByHand || j.Phase != fleet.PhaseDone {
		t.Fatalf("the case is none: %+v", j)
	}
	g.until("full again", g.at(fleet.LevelFull))
	if d := g.levelJournal().Began.Sub(ended); d < 10*time.Minute {
		t.Errorf("the next step began %s after the one by hand, the cooldown is 10m", d)
	}
}

// A step that was refused changes nothing, nor when the last one ended. The break check:
// begin its note without that.
func TestARefusedStepTakesNoCooldownAway(t *testing.T) { // R-112-04
	g := newGraded(t)
	g.reading = short
	g.until("control-plane", g.at(fleet.LevelControlPlane))
	ended := g.levelJournal().Ended
	g.runFor(time.Minute)
	struck := false
	g.after = func(what string) {
		if j := g.levelJournal(); what == "report" && !struck && j.Running() && g.lease.Holder == "" {
			struck = true
			g.taken("b", g.now)
		}
	}
	g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
	g.restart()
	for range 20 {
		if g.levelJournal().Phase == fleet.PhaseRefused {
			break
		}
		if _, err := g.daemon.Pass(t.Context()); err != nil && !errors.Is(err, execute.ErrConflict) {
			t.Fatal(err)
		}
	}
	if j := g.levelJournal(); j.Phase != fleet.PhaseRefused {
		t.Fatalf("the case is none: %+v", j)
	}
	g.lease, g.command, g.after = lease.Lease{Exists: true}, nil, nil
	g.again()
	g.until("etcd-only", g.at(fleet.LevelEtcdOnly))
	if d := g.levelJournal().Began.Sub(ended); d < 10*time.Minute {
		t.Errorf("the next step began %s after the last that changed something, the cooldown is 10m", d)
	}
}

// A level file that says what nobody restarted into would make the next restart, by whom
// and whenever, a step without Lease and gates. The break check: leave the file.
func TestALevelFileThatNobodyRestartedIntoIsTakenBack(t *testing.T) { // safety rules 1 and 2, R-112-06
	for name, strike := range map[string]func(*graded){
		"the role file cannot be read for a moment": func(g *graded) { g.host.Change(func(f *platform.Facts) { f.Files.RoleProblem = "role: no such role" }) },
		"a swap comes and goes":                     func(g *graded) { g.order("") },
		"the datastore is not seen for a moment":    func(g *graded) { g.host.Change(func(f *platform.Facts) { f.Files.WAL = false }) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraded(t)
			g.bring(fleet.LevelControlPlane)
			g.leader = idB
			g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
			g.restart()
			g.until("the file is written", func() bool { return g.host.Facts().Level == fleet.LevelEtcdOnly })
			strike(g)
			g.pass()
			g.pass()
			if g.restarts() > 0 {
				t.Fatal("the case is none: it was restarted")
			}
			g.host.Change(func(f *platform.Facts) { f.Files.RoleProblem, f.Files.WAL = "", true })
			g.self.Annotations, g.lease = map[string]string{keys().LevelCordoned(): "x"}, lease.Lease{Exists: true}
			g.rig.silent = []fleet.MemberID{idC} // no step is taken any more
			g.command = nil
			g.again()
			g.runFor(time.Hour)
			f := g.host.Facts()
			if g.restarts() > 0 || f.Level != fleet.LevelControlPlane || g.self.Labels[keys().Level()] != "control-plane" || g.lease.Holder != "" {
				t.Errorf("%d restarts; the file says %s, the Node %q, the server runs at %s; Lease of %q; %+v", g.restarts(), f.Level, g.self.Labels[keys().Level()], f.Server.Level, g.lease.Holder, g.levelJournal())
			}
		})
	}
}

// So it is where the restart did not take: k3s runs with what somebody else has written.
func TestALevelThatARestartDidNotTakeIsNoLongerSaid(t *testing.T) { // safety rules 2 and 28
	g := newGraded(t)
	g.levels(level.DefaultPolicy())
	g.bring(fleet.LevelControlPlane)
	g.noting(fleet.LevelFull)
	g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
	g.restart()
	g.until("failed", func() bool { return g.levelJournal().Phase == fleet.PhaseFailed })
	g.command = nil
	g.again()
	g.runFor(time.Hour)
	f := g.host.Facts()
	if j := g.levelJournal(); g.restarts() != 1 || j.Code != hostd.CodeWrongLevel || f.Level != fleet.LevelControlPlane || g.self.Labels[keys().Level()] != "control-plane" {
		t.Errorf("%d restarts; the file says %s, the Node %q: %+v", g.restarts(), f.Level, g.self.Labels[keys().Level()], j)
	}
}

// What an earlier run of the owner's program came to says nothing of this step. The break
// check: keep it.
func TestAFailedRunFailsNoLaterStep(t *testing.T) { // R-112-05
	for _, to := range []fleet.Level{fleet.LevelControlPlane, fleet.LevelEtcdOnly} {
		t.Run(string(to), func(t *testing.T) {
			g := newGraded(t)
			g.host.Change(func(f *platform.Facts) { f.LevelRun.Applies = true })
			if to == fleet.LevelEtcdOnly {
				g.bring(fleet.LevelControlPlane)
			}
			g.host.ApplyFails = "apply_level: exit status 1: no room"
			g.command = &hostd.Command{Level: to}
			g.restart()
			g.until("failed", func() bool { return g.levelJournal().Phase == fleet.PhaseFailed })
			g.host.ApplyFails = ""
			g.host.Calls = nil
			g.bring2(to)
			if !slices.ContainsFunc(g.host.Calls, func(c string) bool { return strings.HasPrefix(c, "level ") }) {
				t.Errorf("%v", g.host.Calls)
			}
		})
	}
}

// The break check: keep all that others say.
func TestANoteOfAStepCanAlwaysBeReadBack(t *testing.T) { // safety rule 25
	g := newGraded(t)
	g.reading = short
	struck := false
	g.after = func(what string) {
		if j := g.levelJournal(); what == "report" && !struck && j.Running() && g.lease.Holder == "" {
			struck = true
			g.taken(strings.Repeat("\x01", 100<<10), g.now)
		}
	}
	for range 60 {
		wake, err := g.daemon.Pass(t.Context())
		if err != nil && !errors.Is(err, execute.ErrConflict) {
			t.Fatal(err)
		}
		if !wake.Again {
			g.now = g.now.Add(wake.After)
			g.host.Advance()
		}
	}
	if j, err := hostd.ParseLevelJournal(g.host.Facts().LevelJournal); err != nil || !struck || j.Phase != fleet.PhaseRefused {
		t.Errorf("%v: %s, %.80q", err, j.Phase, j.Message)
	}
}
