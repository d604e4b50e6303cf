package hostd

import (
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// stepDown makes the outgoing voter an etcd-only server that is leaving
// (R-D1-25, R-N-12, safety rules 8 and 11): leaving first, leadership handed
// over, level, restart, etcd answers, pod shims gone, role agent last. When its
// etcd does not come back in time it fails with the role file still naming the
// server (R-216-07).
func stepDown(f Facts, o order) Decision {
	h := f.Host
	if !f.Journal.Running(o.swap, fleet.StepStepDown) {
		return beginStepDown(f, o)
	}
	if h.Files.Leaving != o.swap {
		return effect(Effect{Kind: Leave, Swap: o.swap})
	}
	if late(f, f.Policy.OperationTimeout) {
		return notInTime(f)
	}
	if !f.runsAt(fleet.LevelEtcdOnly) {
		return restartEtcdOnly(f, o)
	}
	if !f.Etcd.Voter() {
		if !h.Server.Rising() {
			return startServer(f)
		}
		return soon(CodeEtcdDown, "%s", etcdStage(f))
	}
	if h.Shims > 0 {
		return effect(Effect{Kind: KillShims})
	}
	if h.Files.Role != fleet.RoleAgent {
		return writeRole(fleet.RoleAgent)
	}
	return settle(f, fleet.PhaseDone, f.unnoted())
}

// notInTime says why a step-down has not come to its end: a server that was never
// restarted, because the others are no quorum without it, is not one whose etcd
// does not come back.
func notInTime(f Facts) Decision {
	if f.stopDue() {
		if d, ok := spared(f); !ok {
			return failed(f, d.Code, "not restarted within %s: %s", f.Policy.OperationTimeout, d.Sentence)
		}
		if f.restarted() {
			p := f.wrongLevel(fleet.LevelEtcdOnly)
			return failed(f, p.Code, "after %s: %s", f.Policy.OperationTimeout, p.Sentence)
		}
	}
	return failed(f, CodeEtcdNotBack, "after %s: %s", f.Policy.OperationTimeout, etcdStage(f))
}

func beginStepDown(f Facts, o order) Decision {
	h := f.Host
	if d, ok := admit(f, o); !ok {
		return d
	}
	leaving := h.Files.Leaving == o.swap
	switch {
	case !h.Files.WAL || h.Files.Tombstone || h.Files.Role != fleet.RoleServer && !leaving:
		return refuse(f, o, problem(CodeNotServer, "the role file says %q, a datastore is there: %t: this host is no member that could step down", h.Files.Role, h.Files.WAL))
	case len(conditionProblems(f)) > 0:
		return refuse(f, o, folded(conditionProblems(f)))
	case len(backProblems(f)) > 0 && !leaving:
		// The controller was told beforehand; it may have changed since.
		return refuse(f, o, folded(backProblems(f)))
	case f.leads():
		if _, p := named(f, o); p.is() {
			return refuse(f, o, p)
		}
	}
	return begin(f, o)
}

// restartEtcdOnly hands leadership over, checks in a later pass that it has
// arrived, and restarts the server into etcd-only. Leadership is looked at
// right before the restart, in the same pass (safety rule 8).
func restartEtcdOnly(f Facts, o order) Decision {
	h := f.Host
	if d, ok := settledUnit(h.Server); !ok {
		return d
	}
	if d, ok := applying(f); ok {
		return d
	}
	if h.Server.Gone() {
		// It fell between: the level first, then up again.
		if h.Level != fleet.LevelEtcdOnly {
			return setLevel(f, fleet.LevelEtcdOnly)
		}
		return startServer(f)
	}
	if !f.Etcd.Voter() {
		return soon(CodeEtcdDown, "%s", etcdStage(f))
	}
	if f.leads() {
		return handOver(f, o)
	}
	if f.Etcd.View.Leader == 0 {
		return soon(CodeHandingOver, "etcd has no leader at the moment")
	}
	if h.Level != fleet.LevelEtcdOnly {
		if d, ok := spared(f); h.LevelRun.Applies && !ok {
			return d
		}
		return setLevel(f, fleet.LevelEtcdOnly)
	}
	return restart(f, fleet.LevelEtcdOnly)
}

// spared says whether the others are a quorum without the own member, seen in
// this pass: the controller judged that on reports that may be seconds old
// (safety rule 2).
func spared(f Facts) (Decision, bool) {
	voters := f.otherVoters()
	need := (len(voters)+1)/2 + 1
	if len(f.Others) >= need {
		return Decision{}, true
	}
	var silent []string
	for _, m := range voters {
		if !slices.Contains(f.Others, m.ID) {
			silent = append(silent, m.Name)
		}
	}
	return soon(CodeNoQuorumWithout, "to stop this server now would leave %d answering voters of %d, %d are a quorum; silent: %s",
		len(f.Others), len(voters)+1, need, strings.Join(silent, ", ")), false
}

// otherVoters are the voters beside the own member.
func (f Facts) otherVoters() []status.Member {
	var out []status.Member
	for _, m := range f.list().Members {
		if !f.own(m) && !m.Learner {
			out = append(out, m)
		}
	}
	return out
}

// list is the member list by which this host judges what its own vote is needed
// for: its own, or another voter's while its own etcd is too slow to give one.
func (f Facts) list() hostapi.Answer {
	if f.Etcd.Voter() || f.Answer == nil {
		return hostapi.Answer{ClusterID: f.Etcd.View.ClusterID, Leader: f.Etcd.View.Leader, Members: f.Etcd.View.Members}
	}
	return *f.Answer
}

// own says whether a listed member is this host's.
func (f Facts) own(m status.Member) bool {
	switch {
	case f.Etcd.Answers && f.Etcd.ID != 0:
		return m.ID == f.Etcd.ID
	case f.Host.Files.Identity.MemberID != 0:
		return m.ID == f.Host.Files.Identity.MemberID
	}
	node, ok := fleet.MemberNodeName(m.Name)
	return ok && node == f.Node
}

// votes says whether the own member is seen to vote: by its own word, or by another
// voter's while it has none. Over the bad link that a host is taken out for, its etcd
// votes and answers no linearizable read in time.
func (f Facts) votes() bool {
	return f.Etcd.Voter() || f.Host.Files.WAL && f.Host.Server.Process && f.Answer != nil && !f.Etcd.Learner &&
		slices.ContainsFunc(f.Answer.Members, func(m status.Member) bool { return f.own(m) && !m.Learner })
}

// mayVote says whether the own member votes or may at any moment: k3s promotes a
// learner without asking anybody, one whose server has just ended as well
// (k3s-facts §4.1).
func (f Facts) mayVote() bool {
	return f.votes() || f.Host.Files.WAL && f.Host.Server.Process && f.mayBeListed()
}

// blind says whether the server is to be stopped or restarted and its own etcd does
// not say whether it votes, nor whether it is about to.
func (f Facts) blind() bool {
	j := f.Journal
	return j.Phase == fleet.PhaseRunning && (j.Step == fleet.StepRollback || j.Step == fleet.StepStepUp) &&
		f.Host.Files.WAL && f.Host.Server.Process && runs(f.Host.Server) && !f.Etcd.Voter()
}

// stopDue says whether the server, which votes or may in a moment, is to be stopped,
// or restarted into another level.
func (f Facts) stopDue() bool {
	if f.Journal.Phase != fleet.PhaseRunning {
		return false
	}
	switch f.Journal.Step {
	case fleet.StepStepDown:
		return f.votes() && !f.runsAt(fleet.LevelEtcdOnly)
	case fleet.StepStepUp:
		return f.votes() && !f.runsAt(fleet.LevelFull)
	case fleet.StepRollback:
		return f.mayVote() && runs(f.Host.Server)
	}
	return false
}

// settledUnit says whether no stop, and no start that has yet to make a
// process, is under way. A start job of a process that is not READY stays for as
// long as it likes (k3s-facts §3.7).
func settledUnit(u platform.Unit) (Decision, bool) {
	switch {
	case u.State == platform.StateDeactivating, u.Job == platform.JobStop, u.Job == platform.JobOther, u.Job == platform.JobStart && !u.Process:
		return soon(CodeRestarting, "the server restarts"), false
	}
	return Decision{}, true
}

func startServer(Facts) Decision { return effect(Effect{Kind: Start, Role: fleet.RoleServer}) }

// etcdStage says in words where the own etcd stands.
func etcdStage(f Facts) string {
	switch {
	case f.Etcd.Voter():
		return "etcd answers, the step is not finished"
	case !f.Etcd.Answers:
		return "etcd does not answer: " + orUnit(f)
	}
	return "etcd does not answer a linearizable read as a voter: " + orUnit(f)
}

func orUnit(f Facts) string {
	if f.Etcd.View.Error != "" {
		return f.Etcd.View.Error
	}
	return "the server unit is " + string(f.Host.Server.State)
}

// beginStepUp waits for what is in the way. A member that is gone
// steps up no more: that ends the step, and the evidence finishes the host.
func beginStepUp(f Facts, o order) Decision {
	files := f.Host.Files
	if _, gone := removed(f); gone {
		return begin(f, o)
	}
	if d, ok := admit(f, o); !ok {
		return d
	}
	switch {
	case files.RoleProblem != "" && files.Leaving == "":
		return refuse(f, o, problem(CodeBadRoleFile, "%s: what this host is has to be written there before it steps up", files.RoleProblem))
	case !files.WAL || files.Role != fleet.RoleServer && files.Leaving == "":
		return refuse(f, o, problem(CodeNotServer, "the role file says %q, a datastore is there: %t: nothing could step up", files.Role, files.WAL))
	}
	return begin(f, o)
}

// stepUp is the way back (safety rule 7): role server, level full, restart, etcd
// answers and the unit is ready, leaving last. It has no bound and is not refused:
// nothing is left to go back to, and a swap whose step-up has settled as failed or
// refused never ends.
func stepUp(f Facts, o order) Decision {
	h := f.Host
	if !f.Journal.Running(o.swap, fleet.StepStepUp) {
		return beginStepUp(f, o)
	}
	if why, gone := removed(f); gone {
		return failed(f, CodeMemberRemoved, "%s", why)
	}
	if h.Files.Role != fleet.RoleServer {
		return writeRole(fleet.RoleServer)
	}
	if d, ok := applying(f); ok {
		return d
	}
	if h.Level != fleet.LevelFull {
		if d, ok := spared(f); h.LevelRun.Applies && f.votes() && !ok {
			return d
		}
		return setLevel(f, fleet.LevelFull)
	}
	if d, ok := settledUnit(h.Server); !ok {
		return d
	}
	if h.Server.Gone() {
		return startServer(f)
	}
	if !f.runsAt(fleet.LevelFull) {
		return restart(f, fleet.LevelFull)
	}
	if !f.Etcd.Voter() || h.Server.State != platform.StateActive {
		return soon(CodeStarting, "the server is %s; %s", h.Server.State, etcdStage(f))
	}
	if h.Files.Leaving != "" {
		return effect(Effect{Kind: Leave})
	}
	if f.Journal.StartedAt.IsZero() {
		j := f.Journal
		j.StartedAt = h.Server.Since.UTC()
		return note(j)
	}
	return settle(f, fleet.PhaseDone, f.unnoted())
}
