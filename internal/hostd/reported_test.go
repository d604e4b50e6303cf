package hostd_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
)

// A swap never waits without saying for what: an effect that fails each time, as
// on a full disk, was in the log of its host alone, the more so when it was the
// first of its step.
func TestAnEffectThatFailsIsReported(t *testing.T) { // safety rule 28
	for _, first := range []bool{true, false} {
		r := newRig(t, "a")
		broken := false
		r.host.Fail = func(call string) error {
			if broken && (first && call == "journal" || !first && strings.HasPrefix(call, "level")) {
				return errors.New("no space left on device")
			}
			return nil
		}
		broken = first
		r.order(fleet.StepStepDown)
		passes := func(n int) {
			for range n {
				if wake, _ := r.daemon.Pass(t.Context()); !wake.Again {
					r.now = r.now.Add(wake.After)
					r.host.Advance()
				}
			}
		}
		if !first {
			r.until("under way", func() bool { return r.host.Facts().Files.Leaving != "" })
			broken = true
		}
		passes(10)
		rep := r.report()
		if rep.Swap != id || rep.Step != fleet.StepStepDown || rep.Code != "EffectFailed" || !strings.Contains(rep.Message, "no space left") {
			t.Errorf("first effect %t: the report says %s %s %s %s %q", first, rep.Swap, rep.Step, rep.Phase, rep.Code, rep.Message)
		}
		n := len(r.reports)
		if passes(10); len(r.reports) != n {
			t.Errorf("first effect %t: %d reports of the same", first, len(r.reports)-n)
		}
		broken = false
		r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
		passes(1)
		if rep := r.report(); rep.Code != "" || rep.Phase != fleet.PhaseDone {
			t.Errorf("afterwards: %s %s", rep.Phase, rep.Code)
		}
	}
}

// The same of an order that cannot even begin while the journal is of an earlier swap.
func TestAnOrderThatCannotBeginIsReported(t *testing.T) { // safety rule 28
	r := newRig(t, "a")
	r.host.Change(func(f *platform.Facts) {
		f.Journal = []byte(`{"swap":"20260101T000000Z-b-a","step":"promote","phase":"done"}`)
	})
	r.lock = &lockOf{taken: true}
	r.restart()
	r.order(fleet.StepStepDown)
	r.pass()
	if rep := r.report(); rep.Swap != id || rep.Step != fleet.StepStepDown || rep.Phase != "" || rep.Code != "HostLocked" {
		t.Errorf("the report says %s %s %s %s", rep.Swap, rep.Step, rep.Phase, rep.Code)
	}
}

// And of the second step of one swap: what had become of the first was all that the
// controller saw.
func TestASecondStepThatCannotBeginIsReported(t *testing.T) { // safety rule 28
	cases := []struct {
		name    string
		node    string
		journal string
		given   func(r *rig)
		order   fleet.Step
		step    fleet.Step
		code    string
	}{
		{"a step-up whose note fails, after a step-down that is done", "a", `"step":"step-down","phase":"done"`, nil, fleet.StepStepUp, fleet.StepStepUp, "EffectFailed"},
		{"a step-up whose note fails, in a step-down that runs", "a", `"step":"step-down","phase":"running"`, nil, fleet.StepStepUp, fleet.StepStepUp, "EffectFailed"},
		{"a rollback whose note fails, after a promotion that failed", "d", `"step":"promote","phase":"failed","code":"Rebooted","message":"old"`, nil, fleet.StepRollback, fleet.StepRollback, "EffectFailed"},
		{"a finish whose note fails, after a step-down that is done", "a", `"step":"step-down","phase":"done","snapshot":"kept"`, func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Files.Tombstone, f.Files.Leaving = true, id })
		}, fleet.StepStepDown, fleet.StepFinishDemote, "EffectFailed"},
		{"a step-up without the Lease, after a step-down that is done", "a", `"step":"step-down","phase":"done"`, func(r *rig) { r.lease = lease.Lease{} }, fleet.StepStepUp, fleet.StepStepUp, "LeaseNotHeld"},
		{"a rollback beside another process, after a promotion that is done", "d", `"step":"promote","phase":"done"`, func(r *rig) {
			r.lock = &lockOf{taken: true}
			r.restart()
		}, fleet.StepRollback, fleet.StepRollback, "HostLocked"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.node)
			r.host.Change(func(f *platform.Facts) {
				f.Journal = fmt.Appendf(nil, `{"swap":%q,"stopped":true,%s}`, id, c.journal)
			})
			r.order(c.order)
			if c.given != nil {
				c.given(r)
			}
			r.host.Fail = func(call string) error {
				if call == "journal" {
					return errors.New("no space left on device")
				}
				return nil
			}
			for range 3 {
				r.daemon.Pass(t.Context()) //nolint:errcheck // it fails, that is the case
			}
			rep := r.report()
			if rep.Swap != id || rep.Step != c.step || rep.Phase != "" || rep.Code != c.code || rep.Message == "" || rep.Stopped {
				t.Errorf("the report says %s %s %q %s %q, stopped %t", rep.Swap, rep.Step, rep.Phase, rep.Code, rep.Message, rep.Stopped)
			}
		})
	}
}

// What has become of a step is said for as long as no other one is due. That the daemon
// does nothing more for its host is said beside it. The break check: a settled step
// alone.
func TestASettledStepIsReportedUntilAnotherIsDue(t *testing.T) {
	r := newRig(t, "d")
	r.host.Change(func(f *platform.Facts) {
		f.Journal = fmt.Appendf(nil, `{"swap":%q,"step":"finish-demote","phase":"done"}`, id)
		f.Files.IdentityProblem = "member-id: permission denied"
	})
	r.order(fleet.StepStepDown) // it stands until the swap ends
	r.pass()
	r.pass()
	if rep := r.report(); rep.Step != fleet.StepFinishDemote || rep.Phase != fleet.PhaseDone || rep.Code != "BadIdentity" || rep.Message == "" {
		t.Errorf("the report says %s %q %s %q", rep.Step, rep.Phase, rep.Code, rep.Message)
	}
}

// Found by a breaker: a host whose role file was garbage said nothing of it after its
// first swap. While the swap is under way, the controller asks why the step ended. The
// break checks: the code of the step always, or never.
func TestAHostThatDoesNothingMoreSaysSoAfterAStep(t *testing.T) { // safety rules 24 and 28
	r := newRig(t, "a")
	r.host.Change(func(f *platform.Facts) {
		f.Journal = fmt.Appendf(nil, `{"swap":%q,"step":"step-down","phase":"refused","code":"NotServer","message":"no member"}`, id)
		f.Files.Role, f.Files.RoleProblem = "", `role "serv"`
	})
	r.order(fleet.StepStepDown)
	for range 3 {
		r.pass()
	}
	if rep := r.report(); rep.Phase != fleet.PhaseRefused || rep.Code != "NotServer" {
		t.Errorf("in the swap it says %s %s %q", rep.Step, rep.Code, rep.Message)
	}
	r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
	for range 3 {
		r.pass()
	}
	if rep := r.report(); rep.Phase != fleet.PhaseRefused || rep.Code != "BadRoleFile" || rep.Message == "" {
		t.Errorf("after the swap it says %s %s %q", rep.Step, rep.Code, rep.Message)
	}
	n := len(r.reports)
	for range 8 {
		r.pass()
	}
	if len(r.reports) != n {
		t.Errorf("%d reports of the same", len(r.reports)-n)
	}
}
