package hostd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// noting makes every start of the server noted as this level, whatever it runs at.
func (r *rig) noting(level fleet.Level) {
	r.host.OnAdvance = func(f *platform.Facts) {
		r.k3s(f)
		if f.Server.Process {
			f.Server.Level = level
		}
	}
}

func (r *rig) restarts() int {
	return strings.Count(strings.Join(r.host.Calls, "\n"), "restart server")
}

// Found by a breaker: with /run full the start of a server could not be noted, and a
// voter was restarted 18 times a minute. The break checks: an unknown level is another
// one; the process that is to go is not kept.
func TestAServerWhoseStartIsNotNotedIsRestartedOnce(t *testing.T) { // safety rules 2 and 11
	for name, put := range map[string]time.Duration{"": 0, ", with the clock put back meanwhile": -time.Hour} {
		t.Run("there and back"+name, func(t *testing.T) {
			r := newRig(t, "a")
			r.noting("")
			noted := r.host.OnAdvance
			r.host.OnAdvance = func(f *platform.Facts) {
				if noted(f); f.Server.Process && f.Server.Since.Year() == 2026 && put != 0 {
					f.Server.Since = f.Server.Since.AddDate(-1, 0, 0)
				}
			}
			r.order(fleet.StepStepDown)
			r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
			r.pass()
			if rep := r.report(); r.restarts() != 1 || rep.Code != "LevelUnnoted" || rep.Message == "" {
				t.Errorf("%d restarts; the report says %s %q", r.restarts(), rep.Code, rep.Message)
			}
			if r.order(fleet.StepStepUp); put != 0 {
				noted = r.k3s // there is room again
			}
			r.until("stepped up", r.settled(fleet.StepStepUp, fleet.PhaseDone))
			for range 20 {
				r.pass()
			}
			if want := map[bool]string{true: "LevelUnnoted"}[put == 0]; r.restarts() != 2 || r.report().Code != want {
				t.Errorf("%d restarts there and back; the report says %s", r.restarts(), r.report().Code)
			}
		})
	}
}

// A note that says another level is believed, and the server not restarted again and
// again for it. The break check: restart whatever the journal keeps.
func TestAServerThatComesBackAtTheWrongLevelIsNamed(t *testing.T) { // safety rules 2 and 28
	r := newRig(t, "a")
	r.noting(fleet.LevelFull)
	r.order(fleet.StepStepDown)
	r.until("failed", r.settled(fleet.StepStepDown, fleet.PhaseFailed))
	if j := r.journal(); j.Code != "WrongLevel" || r.restarts() != 1 {
		t.Errorf("%d restarts; it failed with %s %q", r.restarts(), j.Code, j.Message)
	}
	if f := r.host.Facts().Files; f.Role != fleet.RoleServer {
		t.Errorf("the role is %q", f.Role)
	}

	// It has no bound on the way back: the wait is named until a person has restarted it.
	r.noting(fleet.LevelEtcdOnly)
	r.host.Change(func(f *platform.Facts) { f.Server.Level = fleet.LevelEtcdOnly })
	r.order(fleet.StepStepUp)
	for end := r.now.Add(20 * time.Minute); r.now.Before(end); {
		r.pass()
	}
	if rep := r.report(); rep.Step != fleet.StepStepUp || rep.Phase != fleet.PhaseRunning || rep.Code != "WrongLevel" || r.restarts() != 2 {
		t.Errorf("%d restarts; the report says %s %s %s", r.restarts(), rep.Step, rep.Phase, rep.Code)
	}
	r.host.OnAdvance = r.k3s
	if err := r.host.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("stepped up", r.settled(fleet.StepStepUp, fleet.PhaseDone))
}

// The break check: take the note of the process that is to go for the restart itself.
func TestADaemonThatFallsBeforeItsRestartRestarts(t *testing.T) {
	r := newRig(t, "a")
	r.order(fleet.StepStepDown)
	r.until("noted", func() bool { return !r.journal().Replaces.IsZero() })
	if r.restarts() != 0 {
		t.Fatal("restarted before it was noted")
	}
	r.restart()
	r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
	if r.restarts() != 1 {
		t.Errorf("%d restarts", r.restarts())
	}
}
