package swap

import (
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// rollbackBound: an operation, k3s's eviction of an unstarted learner and two
// ticks (design §4.1).
func (v *view) rollbackBound() time.Duration {
	return v.p.OperationTimeout + v.p.LearnerStall + 30*time.Second
}

func rollbackRows() []Row {
	return []Row{
		{From: Rollback, If: "OUT was removed meanwhile and a request to remove IN stands", Do: WithdrawRemoval, Code: "InRemovalWithdrawn",
			// Before anything else: k3s would take the second voter as well.
			when: func(v *view) bool {
				return v.tooLate() && v.in.Node.Annotations[fleet.AnnotationEtcdRemove] != ""
			},
			act: on(WithdrawRemoval, inNode),
			say: func(v *view) string {
				return v.rec.Out + " was removed after all; the request to remove " + v.rec.In + " as well is withdrawn"
			}},
		{From: Rollback, If: "OUT was removed meanwhile", Do: Order, To: StepDown, Code: "TooLateToRollBack",
			when: func(v *view) bool { return v.tooLate() },
			act:  func(v *view) Action { return v.promote() },
			say: func(v *view) string {
				return v.rec.Out + " was removed after all; taking " + v.rec.In + " back as well would cost a voter, so the swap goes on"
			}},
		{From: Rollback, If: "a request to remove OUT stands", Do: WithdrawRemoval, Code: "OutRemovalWithdrawn",
			when: func(v *view) bool { _, ok := v.out.Node.Annotations[fleet.AnnotationEtcdRemove]; return ok },
			act:  on(WithdrawRemoval, outNode),
			say:  func(v *view) string { return "the request to remove " + v.rec.Out + " is withdrawn: it stays a voter" }},
		{From: Rollback, If: "the lists are not there", Code: "RollbackBlind",
			when:  func(v *view) bool { return !v.list.known },
			waits: func(v *view) []status.Reason { return v.list.problems },
			say:   say("what the members are cannot be read; the rollback waits")},
		{From: Rollback, If: "IN's host lives and has not stopped its server", Code: "RollbackStopWait",
			when: func(v *view) bool {
				return !v.stopped() && !v.dead(v.in) && (!v.past(Rollback, v.p.OperationTimeout) || v.inGone())
			},
			waits: func(v *view) []status.Reason {
				return append(v.hostReason(v.in, fleet.StepRollback), v.silence(v.in)...)
			},
			say: func(v *view) string { return v.rec.In + " stops its server first" }},
		{From: Rollback, If: "no list holds IN, and a list may be older than the end of its server", Code: "RollbackListsOld",
			when:  func(v *view) bool { return v.inGone() && len(v.oldLists()) > 0 },
			waits: func(v *view) []status.Reason { return v.oldLists() },
			say: func(v *view) string {
				return "no voter lists " + v.rec.In + "; the lists are read once more, for its server may have joined after they were read"
			}},
		{From: Rollback, If: "no list holds IN", Do: MarkMemberGone, To: Restore, Code: "InGone",
			when: func(v *view) bool { return v.inGone() },
			act:  on(MarkMemberGone, inNode),
			say:  func(v *view) string { return "no voter lists " + v.rec.In }},
		{From: Rollback, If: "IN was added and never started", Code: "EvictionWait",
			when: func(v *view) bool { return !v.inMembers()[0].Started() },
			say: func(v *view) string {
				return v.rec.In + " was added to etcd and never started; it has no name to remove it by, k3s evicts it after its stall time"
			}},
		{From: Rollback, If: "a removal of IN is asked for and can be done", Code: "InRemovalWait",
			when: func(v *view) bool {
				return asked(v.in) && !v.inRemovalStuck()
			},
			say: func(v *view) string { return "k3s removes " + v.rec.In }},
		{From: Rollback, If: "the request names what k3s will not find", Do: WithdrawRemoval, Code: "InRemovalStuck",
			when: func(v *view) bool { return asked(v.in) },
			act:  on(WithdrawRemoval, inNode),
			say:  func(v *view) string { return "the request to remove " + v.rec.In + " is withdrawn and put right" }},
		{From: Rollback, If: "a gate of the removal is shut", Code: "InRemovalHeld",
			when:  func(v *view) bool { return len(v.removeInGates()) > 0 },
			waits: func(v *view) []status.Reason { return v.removeInGates() },
			say:   func(v *view) string { return "the removal of " + v.rec.In + " is held" }},
		{From: Rollback, If: "IN's Node keeps the name of a removed member", Do: ClearRemovedName, Code: "RemovedNameBack",
			when: func(v *view) bool { return v.in.Node.Annotations[fleet.AnnotationEtcdRemovedName] != "" },
			act:  on(ClearRemovedName, inNode),
			say:  say("the name of an old member goes first: k3s would swallow the request")},
		{From: Rollback, If: "IN's Node does not name its member", Do: RepairMember, Code: "MemberOnInRepaired",
			when: func(v *view) bool { return mismatch(v.in, v.inMembers()[0]) },
			act:  func(v *view) Action { return v.repair(v.rec.In, v.inMembers()[0]) },
			say: func(v *view) string {
				return v.rec.In + "'s Node is given the name and address that the voters list: k3s never wrote them"
			}},
		{From: Rollback, Do: RequestRemoval, Code: "InRemovalAsked",
			act: on(RequestRemoval, inNode),
			say: func(v *view) string { return "k3s is asked to remove " + v.rec.In + " from etcd" }},
	}
}

// tooLate: OUT is no member any more and IN votes: to take IN back as well would cost
// a second vote. Whether OUT had stepped down does not matter: nobody who was removed
// comes back, whoever did it.
func (v *view) tooLate() bool { return v.departed() && v.inVotes() }

// inRemovalStuck is removalStuck for IN.
func (v *view) inRemovalStuck() bool {
	m := v.inMembers()[0]
	return v.in.Node.Annotations[fleet.AnnotationEtcdRemovedName] != "" || mismatch(v.in, m)
}

// stopped: IN's host says that its server process is gone (safety rule 6).
func (v *view) stopped() bool {
	r := v.report(v.in, fleet.StepRollback)
	return r != nil && (r.Stopped || r.Phase == fleet.PhaseDone)
}

// oldLists are the staying voters whose list may have been read before IN's
// server ended. Until then IN could still be added: a list from before that
// which lacks it proves nothing (safety rule 6). A host that died counts from
// the last word of it, a deleted Node from the beginning of the rollback.
func (v *view) oldLists() []status.Reason {
	since := v.o.Now.Sub(v.first(Rollback))
	switch {
	case v.stopped() && v.in.StoppedAge > 0:
		since = v.in.StoppedAge
	case v.stopped():
		since = 0
	case v.in != nil && v.in.Report != nil:
		since = v.in.ReportAge
	}
	var rs []status.Reason
	for _, name := range v.staying() {
		if h := v.o.Host(name); h == nil || h.ReadWithin == 0 || h.ReadWithin >= since {
			rs = append(rs, reason(CodeOldList, name, "%s has not read the member list again since the server of %s ended", name, v.rec.In))
		}
	}
	return rs
}

// exact: the lists hold exactly the voters the swap started with.
func (v *view) exact() bool {
	if !v.list.known || len(v.list.members) != len(v.rec.Voters) {
		return false
	}
	return !slices.ContainsFunc(v.list.members, func(m status.Member) bool { return m.Learner || !v.recorded(m.ID) })
}

func restoreRows() []Row {
	return []Row{
		{From: Restore, If: "OUT was stepped down", Do: Order, Code: "StepUpOrdered",
			when: func(v *view) bool { return v.outTouched() },
			act: func(v *view) Action {
				return Action{Kind: Order, Node: v.rec.Out, Swap: v.rec.ID, Step: fleet.StepStepUp, Level: fleet.LevelFull}
			},
			say: func(v *view) string { return v.rec.Out + " is told to be a full server again" }},
		{From: Restore, If: "IN's server has ended and its Node is not clean", Do: CleanNode, Code: "CleanIn",
			when: func(v *view) bool { return v.finished(v.in) && !v.clean(v.in) },
			act:  on(CleanNode, inNode),
			say:  func(v *view) string { return v.rec.In + " is an agent again; its Node is cleaned" }},
		{From: Restore, If: "both hosts are what they were", Do: Conclude, To: End, Code: "RolledBack",
			when: func(v *view) bool { return v.exact() && v.finished(v.in) && back(v.in) && v.outRestored() },
			act:  conclude(fleet.OutcomeRolledBack, func(v *view) []status.Reason { return v.rollbackReasons() }),
			say:  say("the voters are exactly those of before")},
		{From: Restore, If: "IN is silent past the bound and its Node is not clean", Do: CleanNode, Code: "CleanSilentIn",
			when: func(v *view) bool {
				return v.past(Restore, v.p.FinishTimeout) && !v.past(Restore, 2*v.p.FinishTimeout) && !v.in.Fresh && !v.clean(v.in)
			},
			act: on(CleanNode, inNode),
			say: func(v *view) string { return v.rec.In + " has not come back; its Node is cleaned" }},
		{From: Restore, If: "the voters are those of before and IN is not back past the bound", Do: Conclude, To: End, Code: "RolledBackPending",
			when: func(v *view) bool { return v.past(Restore, v.p.FinishTimeout) && v.exact() && v.outRestored() },
			act:  conclude(fleet.OutcomeRolledBack, func(v *view) []status.Reason { return v.rollbackReasons() }),
			say: func(v *view) string {
				return fmt.Sprintf("the voters are exactly those of before; %s is left to return by itself", v.rec.In)
			}},
		{From: Restore, Code: "RestoreWait",
			waits: func(v *view) []status.Reason {
				return v.restoreWaits()
			},
			say: say("both hosts go back to what they were")},
	}
}

// restoreWaits name what keeps the swap from ending as rolled back.
func (v *view) restoreWaits() []status.Reason {
	rs := append(v.hostReason(v.in, fleet.StepRollback), v.silence(v.in)...)
	rs = append(rs, v.hostReason(v.out, fleet.StepStepUp)...)
	if !v.list.known {
		return append(rs, v.list.problems...)
	}
	switch {
	case v.exact():
	case v.departed():
		rs = append(rs, reason(CodeVoterCount, v.rec.Out, "the members are %s, not those the swap started with: somebody removed %s, and no member comes back; a person has to make another voter",
			describe(v.list.members), v.rec.Out))
	default:
		rs = append(rs, reason(CodeVoterCount, "", "the members are %s, not those the swap started with", describe(v.list.members)))
	}
	if !v.outRestored() {
		if _, ok := list(v.out); !ok {
			rs = append(rs, whyNoList(v.rec.Out, v.out))
		} else if !back(v.out) {
			rs = append(rs, reason(CodeNotReady, v.rec.Out, "%s is not Ready on a heartbeat later than its start", v.rec.Out))
		}
	}
	return rs
}

// outTouched: OUT was told to step down and not yet to step up again; or its
// Node has lost the order and its host says that it did (safety rule 27).
func (v *view) outTouched() bool {
	switch {
	case v.stepIs(v.out, fleet.StepStepDown):
		return true
	case v.stepIs(v.out, fleet.StepStepUp) || !v.reached(StepDown) || v.out.Report == nil:
		return false
	}
	r := v.out.Report
	return r.Leaving || r.Role != fleet.RoleServer || (r.Level != "" && r.Level != fleet.LevelFull)
}

// outRestored: OUT was never touched, or it is a full, Ready server again.
func (v *view) outRestored() bool {
	if v.outTouched() {
		return false
	}
	if !v.stepIs(v.out, fleet.StepStepUp) {
		return true
	}
	if _, serves := list(v.out); !serves || !back(v.out) {
		return false
	}
	return v.phaseIs(v.out, fleet.StepStepUp, fleet.PhaseDone) || v.outUntouched()
}

// outUntouched: OUT's host refused the step-down, or has not begun the step-up, and
// its files are those of a full server that is not leaving: there is nothing to take
// back, whatever keeps the host from saying that it did.
func (v *view) outUntouched() bool {
	r := v.out.Report
	if r == nil || r.Swap != v.rec.ID || r.Leaving || r.Level != fleet.LevelFull {
		return false
	}
	unbegun := r.Step == fleet.StepStepUp && (r.Phase == "" || r.Phase == fleet.PhaseRefused)
	return unbegun || r.Step == fleet.StepStepDown && r.Phase == fleet.PhaseRefused
}

// rollbackReasons are what the status says led to the rollback.
func (v *view) rollbackReasons() []status.Reason {
	if sw := v.swapStatus(); sw != nil && len(sw.Cause) > 0 {
		return sw.Cause
	}
	return []status.Reason{reason(CodeFailedOnHost, v.rec.In, "%s was taken back", v.rec.In)}
}

// endRows: the outcome stands in the status. Marks go from IN, then OUT, then
// the Lease (design §4.1), so that a crash in between is seen as an end.
func endRows() []Row {
	hosts := func(v *view) []*Host { return []*Host{v.in, v.out} }
	tainted := func(v *view) *Host {
		return firstHost(hosts(v), func(h *Host) bool { return v.tainted(h) && !v.pending(h) })
	}
	cordoned := func(v *view) *Host {
		return firstHost(hosts(v), func(h *Host) bool { return v.cordonMarked(h) && !v.pending(h) })
	}
	unclean := func(v *view) *Host {
		return firstHost(hosts(v), func(h *Host) bool { return v.carries(h) && v.returned(h) && !v.clean(h) })
	}
	removal := func(v *view) *Host {
		return firstHost(hosts(v), func(h *Host) bool { return v.carries(h) && h.Node.Annotations[fleet.AnnotationEtcdRemove] != "" })
	}
	return []Row{
		{From: End, If: "the outcome stands on the Lease and not in the status", Do: Conclude, Code: "OutcomeAgain",
			when: func(v *view) bool { return v.unpublished() },
			act: func(v *view) Action {
				return Action{Kind: Conclude, Swap: v.rec.ID, Last: v.onLease()}
			},
			say: say("how the swap ended stands on its Lease; it is published")},
		{From: End, If: "a removal is still asked for", Do: WithdrawRemoval, Code: "EndWithdraw",
			when: func(v *view) bool { return removal(v) != nil },
			act:  func(v *view) Action { return Action{Kind: WithdrawRemoval, Node: removal(v).Name, Swap: v.rec.ID} },
			say:  say("a request to remove a member does not outlive its swap")},
		{From: End, If: "an agent still looks like a server", Do: CleanNode, Code: "EndClean",
			when: func(v *view) bool { return unclean(v) != nil },
			act:  func(v *view) Action { return Action{Kind: CleanNode, Node: unclean(v).Name, Swap: v.rec.ID} },
			say:  func(v *view) string { return unclean(v).Name + " is an agent; its Node is cleaned" }},
		{From: End, If: "a taint of ours stands", Do: Untaint, Code: "EndUntaint",
			when: func(v *view) bool { return tainted(v) != nil },
			act:  func(v *view) Action { return Action{Kind: Untaint, Node: tainted(v).Name, Swap: v.rec.ID} },
			say:  func(v *view) string { return "the taint of " + tainted(v).Name + " goes" }},
		{From: End, If: "a cordon of ours stands", Do: Uncordon, Code: "EndUncordon",
			when: func(v *view) bool { return cordoned(v) != nil },
			act:  func(v *view) Action { return Action{Kind: Uncordon, Node: cordoned(v).Name, Swap: v.rec.ID} },
			say:  func(v *view) string { return cordoned(v).Name + " is uncordoned" }},
		{From: End, If: "a snapshot request stands", Do: ClearSnapshotRequest, Code: "EndSnapshotRequest",
			when: func(v *view) bool { return v.snapshotHost() != "" },
			act:  on(ClearSnapshotRequest, func(v *view) string { return v.snapshotHost() }),
			say:  say("the snapshot request goes")},
		{From: End, If: "IN carries the record", Do: ClearSwap, Code: "EndClearIn",
			when: func(v *view) bool { return v.carries(v.in) },
			act: func(v *view) Action {
				return Action{Kind: ClearSwap, Node: v.rec.In, Swap: v.rec.ID, Desired: v.leaves(fleet.RoleServer, fleet.RoleAgent)}
			},
			say: func(v *view) string { return "the marks of the swap go from " + v.rec.In }},
		{From: End, If: "OUT carries the record", Do: ClearSwap, Code: "EndClearOut",
			when: func(v *view) bool { return v.carries(v.out) },
			act: func(v *view) Action {
				return Action{Kind: ClearSwap, Node: v.rec.Out, Swap: v.rec.ID, Desired: v.leaves(fleet.RoleAgent, fleet.RoleServer)}
			},
			say: func(v *view) string { return "the marks of the swap go from " + v.rec.Out }},
		{From: End, Do: ReleaseLease, To: Idle, Code: "Released",
			act: func(v *view) Action { return Action{Kind: ReleaseLease, Swap: v.rec.ID} },
			say: func(v *view) string { return "the swap has ended; the Lease is released" }},
	}
}

func firstHost(hs []*Host, is func(*Host) bool) *Host {
	for _, h := range hs {
		if h != nil && is(h) {
			return h
		}
	}
	return nil
}

// pending: the host has not come back; its cordon stays as the mark of what is
// still owed to it (safety rule 16).
func (v *view) pending(h *Host) bool {
	last := v.outcome()
	return (h.Name == last.Out && last.OutgoingPending) || (h.Name == last.In && last.IncomingPending)
}

// leaves is the desired-role label a host is left with.
func (v *view) leaves(completed, otherwise fleet.Role) fleet.Role {
	if v.outcome().Outcome == fleet.OutcomeCompleted {
		return completed
	}
	return otherwise
}
