package hostd_test

import (
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// promotesByHand is an installer's promote-local on the standby, up to a moment; then
// the host loses its power, and its daemon is alone with what is left.
func promotesByHand(t *testing.T, neverWAL bool, upTo func(platform.Facts) bool) *rig {
	t.Helper()
	r := newRig(t, "d")
	r.neverWAL = neverWAL
	r.host.Change(func(f *platform.Facts) { f.Staged = true })
	r.command = &hostd.Command{Swap: id, Step: fleet.StepPromote, Join: "b", Local: true}
	r.restart()
	r.until("that moment", func() bool { return upTo(r.host.Facts()) })
	r.command = nil
	r.reboot()
	return r
}

func joinGone(r *rig) func() bool {
	return func() bool { return r.host.Facts().Files.Joining == (rolefile.Joining{}) }
}

// What is left of the join would start its server when a person says agent.
func TestAJoinThatNobodyEndedGoesOnceItsHostVotes(t *testing.T) { // safety rule 18
	r := promotesByHand(t, false, func(f platform.Facts) bool { return f.Files.WAL })
	r.until("the join is ended", joinGone(r))
	if f := r.host.Facts(); f.Files.Role != fleet.RoleServer || !f.Server.Process {
		t.Errorf("role %q, server %t", f.Files.Role, f.Server.Process)
	}
}

// Its host could neither be swapped in again nor be set up anew: a reboot ended that before.
func TestAPromotionByHandThatARebootInterruptedLeavesAStandby(t *testing.T) { // safety rules 17 and 18
	r := promotesByHand(t, true, func(f platform.Facts) bool { return f.Files.JoiningNow() && f.Server.Process })
	r.until("the join is ended", joinGone(r))
	r.until("a standby", func() bool { f := r.host.Facts(); return f.PeerPort && f.Agent.Process })
	if j := r.journal(); j.Phase != fleet.PhaseFailed || j.Code != "Rebooted" {
		t.Errorf("journal %+v", j)
	}
}

// The controller may add the member of a candidate that is down: a rollback that has
// nothing to go by would say that there is none (safety rule 6).
func TestAJoinIsKeptForTheRollbackThatIsDue(t *testing.T) {
	r := newRig(t, "d")
	r.neverWAL = true
	r.order(fleet.StepPromote)
	r.until("joining", func() bool { f := r.host.Facts(); return f.Files.JoiningNow() && f.Server.Process })
	r.host.Change(func(f *platform.Facts) { f.EtcdCerts = true })
	m := member("d", idD, 4)
	m.Name, m.Learner = "", true
	r.members = append(r.members, m)
	r.reboot()
	r.until("failed", r.settled(fleet.StepPromote, fleet.PhaseFailed))
	// The swap is ended without it: nobody orders the rollback, and no step stands on the Node.
	r.self.Annotations, r.lease = map[string]string{}, lease.Lease{}
	for range 20 {
		r.pass()
	}
	if r.settled(fleet.StepRollback, fleet.PhaseDone)() {
		t.Fatal("rolled back, with its member in the lists")
	}
	r.remove(idD)
	r.until("rolled back", r.settled(fleet.StepRollback, fleet.PhaseDone))
	if f := r.host.Facts(); f.Files.Joining.Swap != "" {
		t.Errorf("joining %+v", f.Files.Joining)
	}
}

// A joining file that holds no swap lets no agent start: a voter that had one ended in no role when it was swapped out.
func TestAJoiningFileThatHoldsNoSwapGoes(t *testing.T) { // safety rules 10 and 15
	foreign := func(f *platform.Facts) {
		f.Files.ForeignJoin, f.Files.JoiningProblem = true, "joining: it holds no swap id"
	}
	for name, c := range map[string]struct {
		node string
		role fleet.Role
		out  bool
	}{
		"of a voter":                 {node: "a", role: fleet.RoleServer},
		"of a standby":               {node: "d", role: fleet.RoleAgent},
		"of a server on its way out": {node: "a", role: fleet.RoleAgent, out: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.node)
			if c.out { // in the middle of its swap, past the look at its way back
				r.order(fleet.StepStepDown)
				r.until("stepped down", r.settled(fleet.StepStepDown, fleet.PhaseDone))
				r.remove(idA)
				r.gone()
			}
			r.host.Change(foreign)
			r.until("it is gone, and the host has its role", func() bool {
				f := r.host.Facts()
				u := map[fleet.Role]platform.Unit{fleet.RoleServer: f.Server, fleet.RoleAgent: f.Agent}[c.role]
				return !f.Files.ForeignJoin && f.Files.Role == c.role && u.Process && f.Files.Leaving == ""
			})
		})
	}
}

// One that cannot be read is not taken away: what it holds is not known.
func TestAVoterWhoseJoiningFileCannotBeReadDoesNotGoOut(t *testing.T) { // safety rule 15
	r := newRig(t, "a")
	r.host.Change(func(f *platform.Facts) { f.Files.JoiningProblem = "joining: is a directory" })
	r.pass()
	if p := r.report().AsAgent; p == nil || p.OK || len(p.Problems) != 1 || p.Problems[0].Code != "AgentNotStaged" {
		t.Errorf("%+v", p)
	}
	if r.host.Facts().Files.JoiningProblem == "" {
		t.Error("taken away")
	}
}
