package hostd_test

import (
	"fmt"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
)

// Found by a breaker: OUT's role file was garbage, its step-up was refused for good, and
// the swap waited for ever, also after the file had been put right. The break check:
// settle it as refused.
func TestAWayBackIsTakenOnceWhatIsInItsWayIsPutRight(t *testing.T) { // safety rules 6, 7 and 25
	garbage := func(r *rig) {
		r.host.Change(func(f *platform.Facts) {
			f.Files.Role, f.Files.RoleProblem = "", `/etc/github-runner/role: role "serv"`
		})
	}
	label := func(r *rig) { r.self.Labels[keys().DesiredRole()] = "" }
	stale := func(r *rig) { r.lease.Annotations[fleet.LeaseSwapID] = "20260101T000000Z-a-d" }
	for name, c := range map[string]struct {
		node string
		step fleet.Step
		bad  func(r *rig)
		code string
	}{
		"step-up with a role file that is garbage": {"a", fleet.StepStepUp, garbage, "BadRoleFile"},
		"step-up with a role file that is wrong": {"a", fleet.StepStepUp, func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.Files.Role = fleet.RoleAgent })
		}, "NotServer"},
		"step-up with another label":  {"a", fleet.StepStepUp, label, "RoleMismatch"},
		"step-up with a stale id":     {"a", fleet.StepStepUp, stale, "StaleSwap"},
		"step-up without the Lease":   {"a", fleet.StepStepUp, func(r *rig) { r.lease = lease.Lease{} }, "LeaseNotHeld"},
		"rollback with another label": {"d", fleet.StepRollback, label, "RoleMismatch"},
		"rollback with a stale id":    {"d", fleet.StepRollback, stale, "StaleSwap"},
		"rollback without the Lease":  {"d", fleet.StepRollback, func(r *rig) { r.lease = lease.Lease{} }, "LeaseNotHeld"},
	} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, an older daemon had refused: %t", name, old), func(t *testing.T) {
				r := newRig(t, c.node)
				if old {
					r.host.Change(func(f *platform.Facts) {
						f.Journal = fmt.Appendf(nil, `{"swap":%q,"step":%q,"phase":"refused","code":"NotServer","message":"old"}`, id, c.step)
					})
				}
				r.order(c.step)
				c.bad(r)
				if name == "step-up with a role file that is wrong" {
					r.etcdDown = true // an agent's file beside a running voter is adopted as a server's
				}
				for range 10 {
					r.pass()
				}
				if rep := r.report(); rep.Swap != id || rep.Step != c.step || rep.Phase != "" || rep.Code != c.code || rep.Message == "" {
					t.Errorf("the report says %s %s %q %s %q", rep.Swap, rep.Step, rep.Phase, rep.Code, rep.Message)
				}
				if got := r.calls(); len(got) > 0 {
					t.Errorf("something was changed: %v", got)
				}
				r.host.Change(func(f *platform.Facts) {
					if c.node == "a" {
						f.Files.Role, f.Files.RoleProblem = fleet.RoleServer, ""
					}
				})
				r.etcdDown = false
				r.order(c.step)
				r.until("taken", r.settled(c.step, fleet.PhaseDone))
			})
		}
	}
}

// An agent has nothing to step up: it says so for as long as it is asked.
func TestAnAgentThatIsToStepUpSaysSo(t *testing.T) {
	r := newRig(t, "d")
	r.order(fleet.StepStepUp)
	for range 10 {
		r.pass()
	}
	if rep := r.report(); rep.Step != fleet.StepStepUp || rep.Phase != "" || rep.Code != "NotServer" || len(r.calls()) > 0 {
		t.Errorf("the report says %s %q %s; %v", rep.Step, rep.Phase, rep.Code, r.calls())
	}
}

// A member that is gone while its step-up waits is finished on the evidence. The break
// check: wait for the role file first.
func TestAStepUpThatWaitsDoesNotKeepARemovedMemberFromItsFinish(t *testing.T) { // safety rule 12
	r := newRig(t, "a")
	r.host.Change(func(f *platform.Facts) { f.Files.Role, f.Files.RoleProblem = "", `role "serv"` })
	r.order(fleet.StepStepUp)
	for range 5 {
		r.pass()
	}
	r.remove(idA)
	r.host.Change(func(f *platform.Facts) { f.Files.Tombstone = true })
	r.until("finished", r.settled(fleet.StepFinishDemote, fleet.PhaseDone))
	if f := r.host.Facts(); f.Files.Role != fleet.RoleAgent || !f.Agent.Process {
		t.Errorf("%+v", f)
	}
}
