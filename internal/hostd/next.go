package hostd

import (
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Next decides the one effect of a pass. It is pure and total: the same facts
// give the same decision, and a daemon that was killed anywhere goes on from
// what the facts show.
//
// First comes what evidence demands (finish), then what is ordered, then
// upkeep. A rule that waits does not hold up the rules behind it: their effects
// never touch what a step depends on.
func Next(f Facts) Decision {
	if f.JournalProblem != "" {
		return hold(CodeBadJournal, "%s: nothing is done before a person has looked", f.JournalProblem)
	}
	o := f.order()
	var waits Decision
	rules := []func(Facts, order) Decision{finish, ordered, alone, orphaned, boot, snapshot, adopt, joinEnded, identify, prune, peerPort}
	switch {
	case f.Command != nil && f.Command.levels():
		rules = nil
	case f.Command != nil:
		// Upkeep is the daemon's; a command holds no port of its own.
		rules = []func(Facts, order) Decision{finish, ordered, snapshot, demoteLocal}
	}
	for _, rule := range rules {
		d := rule(f, o)
		if d.Acts() {
			return d
		}
		if waits.Code == "" {
			waits.Code, waits.Sentence = d.Code, d.Sentence
		}
		waits.Soon = waits.Soon || d.Soon
	}
	if f.Levels == nil || f.Command != nil && !f.Command.levels() {
		return waits
	}
	d := regrade(f, o)
	if d.Acts() {
		return d
	}
	waits.Level, waits.Soon = Said{d.Code, d.Sentence}, waits.Soon || d.Soon
	return waits
}

// ordered takes the step that is asked for.
func ordered(f Facts, o order) Decision {
	switch {
	case o.problem.is():
		return Decision{Code: o.problem.Code, Sentence: o.problem.Sentence}
	case f.Journal.Is(o.swap, fleet.StepStepDown) && o.step == fleet.StepStepDown && f.Journal.Phase == fleet.PhaseDone:
		return follow(f, o)
	case o.step == "":
		return lead(f, o)
	case !f.due(o):
		return Decision{}
	}
	switch o.step {
	case fleet.StepPromote:
		return promote(f, o)
	case fleet.StepStepDown:
		return stepDown(f, o)
	case fleet.StepStepUp:
		return stepUp(f, o)
	case fleet.StepRollback:
		return rollback(f, o)
	}
	return Decision{}
}

// due says whether the step that is asked for is still to be begun or gone on with.
func (f Facts) due(o order) bool {
	switch {
	case o.step == "" || f.Command != nil && f.Command.Step == fleet.StepFinishDemote:
		return false // that command takes no order, it looks for evidence
	case f.Journal.Is(o.swap, o.step) && f.Journal.Ended():
		return false // R-216-09, R-216-10
	case o.step == fleet.StepStepDown && f.Journal.Is(o.swap, fleet.StepFinishDemote):
		return false // finishing is how a step-down ends: the order stands on the Node until the swap does
	case f.Journal.Step == fleet.StepFinishDemote && f.Journal.Phase == fleet.PhaseRunning:
		return false // the finish rule waits; nothing else may touch the units
	}
	return true
}

// Shorthand for decisions.

func hold(code, format string, args ...any) Decision {
	return Decision{Code: code, Sentence: fmt.Sprintf(format, args...)}
}

func soon(code, format string, args ...any) Decision {
	d := hold(code, format, args...)
	d.Soon = true
	return d
}

func effect(e Effect) Decision { return Decision{Effect: e} }

func note(j Journal) Decision { return effect(Effect{Kind: Note, Journal: &j}) }

func writeRole(r fleet.Role) Decision { return effect(Effect{Kind: WriteRole, Role: r}) }

// begin notes that a step has begun, before its first effect.
func begin(f Facts, o order) Decision {
	j := Journal{
		Swap: o.swap, Step: o.step, Phase: fleet.PhaseRunning, BootID: f.Host.Files.BootID,
		Snapshot: f.Journal.keptSnapshot(o.swap), Local: o.local,
	}
	if f.View != nil {
		j.Began = f.View.Date
	}
	switch {
	case o.record != nil:
		j.ClusterID = o.record.ClusterID
	case f.Journal.Swap == o.swap:
		j.ClusterID = f.Journal.ClusterID
	}
	return note(j)
}

func (j Journal) keptSnapshot(id fleet.SwapID) string {
	if j.Swap == id {
		return j.Snapshot
	}
	return ""
}

// settle ends the step.
func settle(f Facts, phase fleet.Phase, p Problem) Decision {
	j := f.Journal
	j.Phase, j.Code, j.Message = phase, p.Code, p.Sentence
	return note(j)
}

func done(f Facts) Decision { return settle(f, fleet.PhaseDone, Problem{}) }

func failed(f Facts, code, format string, args ...any) Decision {
	return settle(f, fleet.PhaseFailed, problem(code, format, args...))
}

// refuse settles a step that has not begun: nothing was changed. A way back waits in
// place of that: nothing is left to go back to from it, and a person may put right what
// is in its way, a file or a label (safety rules 6 and 7).
func refuse(f Facts, o order, p Problem) Decision {
	if wayBack(o.step) {
		return hold(p.Code, "%s", p.Sentence)
	}
	j := Journal{
		Swap: o.swap, Step: o.step, Phase: fleet.PhaseRefused, Code: p.Code, Message: p.Sentence,
		BootID: f.Host.Files.BootID, Snapshot: f.Journal.keptSnapshot(o.swap), Local: o.local,
	}
	return note(j)
}

// late says whether the step has run for longer than bound, by the API server's
// Date at both ends (safety rule 22).
func late(f Facts, bound time.Duration) bool {
	return f.View != nil && !f.Journal.Began.IsZero() && f.View.Date.Sub(f.Journal.Began) > bound
}

// stopped stops a unit and says when it is gone: the process is looked for, not
// assumed (safety rule 10).
func stopped(u platform.Unit, role fleet.Role) (Decision, bool) {
	switch {
	case u.Gone():
		return Decision{}, true
	case u.Job == platform.JobStop || u.State == platform.StateDeactivating && u.Job == platform.JobNone:
		return soon(CodeStopping, "the %s is stopping", role), false
	case u.Process && u.Job == platform.JobNone && (u.State == platform.StateInactive || u.State == platform.StateFailed):
		return soon(CodeProcessLives, "the %s unit is %s and a k3s %s process still lives", role, u.State, role), false
	}
	return effect(Effect{Kind: Stop, Role: role}), false
}

// boot starts what a boot starts, where the platform does not: a candidate whose
// agent was stopped and whose host was then restarted is an agent again (design
// §4.1), also with no controller there to take the promotion back.
func boot(f Facts, _ order) Decision {
	if f.Host.Owed == "" {
		return Decision{}
	}
	return effect(Effect{Kind: Start, Role: f.Host.Owed})
}

// adopt writes a role file where there is none, once what runs is plain: from
// then on the start conditions guard the host (design §4.1). A member that no
// order made, by allow-join or by a promote-local that was killed, is a server
// from its datastore on: the next reboot must not make an agent of it (safety
// rule 18).
func adopt(f Facts, _ order) Decision {
	files := f.Host.Files
	if files.RoleProblem != "" {
		return hold(CodeBadRoleFile, "%s", files.RoleProblem)
	}
	back := f.Journal.Phase == fleet.PhaseRunning && (f.Journal.Step == fleet.StepRollback || f.Journal.Step == fleet.StepFinishDemote)
	if files.Role == fleet.RoleAgent && files.Leaving == "" && files.WAL && !files.Tombstone && !back &&
		f.Etcd.Answers && f.Etcd.ID != 0 && f.Host.Agent.Gone() {
		return writeRole(fleet.RoleServer)
	}
	if files.Role != "" {
		return Decision{}
	}
	switch {
	case f.Etcd.Voter() && f.Host.Agent.Gone():
		return writeRole(fleet.RoleServer)
	case f.Host.Agent.State == platform.StateActive && f.Host.Server.Gone() && !files.WAL && !files.AllowJoin:
		return writeRole(fleet.RoleAgent)
	}
	return Decision{}
}

// identify keeps cluster-id, member-id and voters while the host is a member. A
// cluster id once written is never replaced: another one is another cluster.
func identify(f Facts, _ order) Decision {
	if p := f.Host.Files.IdentityProblem; p != "" {
		return hold(CodeBadIdentity, "%s", p)
	}
	have := f.Host.Files.Identity
	m := f.Etcd
	if !m.Answers || m.View.ClusterID == 0 || m.ID == 0 {
		return Decision{}
	}
	if have.ClusterID != 0 && have.ClusterID != m.View.ClusterID {
		return hold(CodeForeignCluster, "etcd says cluster %s, this host belongs to cluster %s", m.View.ClusterID, have.ClusterID)
	}
	want := rolefile.Identity{ClusterID: m.View.ClusterID, MemberID: m.ID, Voters: have.Voters, Password: have.Password}
	// Of a new member it is the one that it had as an agent, or founded the cluster with.
	// A later one would be k3s's own make, in the place of one that was lost.
	if have.MemberID != m.ID || have.Password == "" {
		want.Password = f.Host.Password
	}
	if m.View.Linearizable {
		want.Voters = otherVoters(m)
	}
	if want.Equal(have) {
		return Decision{}
	}
	return effect(Effect{Kind: Identify, Identity: want})
}

// prune keeps the newest of regrade's own etcd snapshots (safety rule 14), and
// all while a swap is under way, or may be: whatever the clocks have done to their
// order, the one of that swap is among them.
func prune(f Facts, _ order) Decision {
	if f.View == nil || f.swapping() || f.Host.Snapshot.Running || len(f.Host.Snapshots) <= f.Policy.KeepSnapshots {
		return Decision{}
	}
	return effect(Effect{Kind: Prune, Keep: f.Policy.KeepSnapshots})
}

// peerPort holds etcd's peer port while the host is a standby (safety rule 17).
func peerPort(f Facts, _ order) Decision {
	h := f.Host
	want := h.Files.Role == fleet.RoleAgent && h.Files.Leaving == "" && !h.Files.JoiningNow() &&
		!h.Files.WAL && h.Server.Gone() && h.Staged && !h.Files.AllowJoin &&
		!(f.Journal.Step == fleet.StepPromote && f.Journal.Phase == fleet.PhaseRunning)
	if want == h.PeerPort {
		return Decision{}
	}
	return effect(Effect{Kind: PeerPort, Hold: want})
}

// admit asks what a step that changes the membership needs before it begins:
// the label that goes with it (R-216-12) and the Lease of its swap (R-D1-19).
// Without an API server it waits; anything else is a refusal.
func admit(f Facts, o order) (Decision, bool) {
	if p, ok := f.labelled(o); !ok {
		return refuse(f, o, p), false
	}
	if p, ok := f.held(o); !ok {
		if p.Code == CodeNoAPI {
			return hold(p.Code, "%s", p.Sentence), false
		}
		return refuse(f, o, p), false
	}
	return Decision{}, true
}
