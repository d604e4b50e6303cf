package swap

import (
	"fmt"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

func drainOutRows() []Row {
	// A newcomer that stops answering is unsettled again: Settle judges it.
	return []Row{
		{From: DrainOut, If: "no list holds OUT", Do: Order, To: StepDown, Code: "OrderLostAfterRemoval",
			when: func(v *view) bool { return v.departed() },
			act:  func(v *view) Action { return v.stepDown() },
			say: func(v *view) string {
				return v.rec.Out + " is a member no more and its Node has lost the order; it is written again, so that the host finishes"
			}},
		assertCordons(DrainOut),
		{From: DrainOut, If: "jobs on OUT outlast the runner wait", Do: Order, To: Rollback, Code: "OutJobsRolledBack",
			when: func(v *view) bool {
				return !v.dead(v.out) && v.protected(v.out) > 0 && v.past(DrainOut, v.p.RunnerWait) && v.allRecordedServe()
			},
			act:   func(v *view) Action { return v.rollback() },
			waits: func(v *view) []status.Reason { return v.runnerPods(v.out) },
			say: func(v *view) string {
				return fmt.Sprintf("jobs on %s outlast %s; the newcomer is taken back", v.rec.Out, v.p.RunnerWait)
			}},
		{From: DrainOut, If: "OUT's drain stays blocked past the runner wait", Do: Order, To: Rollback, Code: "OutDrainRolledBack",
			when: func(v *view) bool {
				return !v.dead(v.out) && v.evictable(v.out) > 0 && v.past(DrainOut, v.p.RunnerWait) && v.allRecordedServe()
			},
			act:   func(v *view) Action { return v.rollback() },
			waits: func(v *view) []status.Reason { return v.blocked(v.out) },
			say: func(v *view) string {
				return fmt.Sprintf("%s could not be drained within %s; the newcomer is taken back", v.rec.Out, v.p.RunnerWait)
			}},
		{From: DrainOut, If: "a gate is shut at target plus one", Code: "HeldAtPlusOne",
			when:  func(v *view) bool { return len(v.plusOneGates()) > 0 },
			waits: func(v *view) []status.Reason { return v.plusOneGates() },
			say:   say("one voter more than the target, a gate is shut; the outgoing voter is not touched")},
		{From: DrainOut, If: "a job runs on OUT", Code: "OutRunnerWait",
			when:  func(v *view) bool { return !v.dead(v.out) && (v.protected(v.out) > 0 || !v.out.PodsRead) },
			waits: func(v *view) []status.Reason { return v.runnerPods(v.out) },
			say:   func(v *view) string { return "the jobs on " + v.rec.Out + " are waited for" }},
		{From: DrainOut, If: "OUT is not tainted", Do: TaintNode, Code: "TaintOut",
			when: func(v *view) bool { return !v.tainted(v.out) },
			act:  on(TaintNode, outNode),
			say:  func(v *view) string { return v.rec.Out + " is tainted" }},
		{From: DrainOut, If: "a pod on OUT may be evicted", Do: Drain, Code: "DrainOut",
			when: func(v *view) bool { return !v.dead(v.out) && v.canEvict(v.out) },
			act:  on(Drain, outNode),
			say:  func(v *view) string { return v.rec.Out + " is drained" }},
		{From: DrainOut, If: "pods on OUT are going", Code: "DrainOutWait",
			when:  func(v *view) bool { return !v.dead(v.out) && v.evictable(v.out) > 0 },
			waits: func(v *view) []status.Reason { return v.blocked(v.out) },
			say:   func(v *view) string { return "the pods of " + v.rec.Out + " are going" }},
		{From: DrainOut, Do: Order, To: StepDown, Code: "StepDownOrdered",
			act: func(v *view) Action { return v.stepDown() },
			say: func(v *view) string {
				return fmt.Sprintf("%s is told to step down to etcd alone; %s shall lead", v.rec.Out, v.stepDown().LeadTo)
			}},
	}
}

// plusOneGates: the gates with the newcomer voting, and OUT's restart judged
// (safety rule 2). A dead OUT restarts nothing.
func (v *view) plusOneGates() []status.Reason {
	rs := v.afterGates()
	if v.list.known && !v.dead(v.out) {
		rs = append(rs, v.mayRestartOut()...)
	}
	return rs
}

// dead: the Node is NotReady and its host daemon is silent (R-E2-22). Either
// alone proves nothing: an etcd-only server's Node is NotReady by design.
func (v *view) dead(h *Host) bool { return h == nil || (!h.Node.Ready && !h.Fresh && !h.Speaks) }

// stepDown orders OUT to etcd alone, with the voter that shall lead meanwhile
// (safety rule 8).
func (v *view) stepDown() Action {
	return Action{Kind: Order, Node: v.rec.Out, Swap: v.rec.ID, Step: fleet.StepStepDown, LeadTo: v.leadTo(), Level: fleet.LevelEtcdOnly}
}

// outLeads says whether the lists agree that OUT is etcd's leader.
func (v *view) outLeads() bool {
	return v.list.known && slices.ContainsFunc(v.outMembers(), func(m status.Member) bool { return m.ID == v.list.leader })
}

// leadTo is the staying voter that leads already, else the one that has
// applied most. The newcomer is never chosen: it is the least proven.
func (v *view) leadTo() string {
	best, applied := "", uint64(0)
	for _, name := range v.staying() {
		h := v.o.Host(name)
		e, ok := list(h)
		if !ok || !h.Node.Ready {
			continue
		}
		if e.Leader != 0 && e.Leader == h.Report.MemberID {
			return name
		}
		if best == "" || e.AppliedIndex > applied {
			best, applied = name, e.AppliedIndex
		}
	}
	return best
}

func stepDownRows() []Row {
	return []Row{
		{From: StepDown, If: "no list holds OUT", Do: MarkMemberGone, To: Finish, Code: "DepartedAlready",
			when: func(v *view) bool { return v.departed() },
			act:  on(MarkMemberGone, outNode),
			say:  func(v *view) string { return "no staying voter lists " + v.rec.Out + " any more" }},
		newcomerFailed(StepDown),
		assertCordons(StepDown),
		{From: StepDown, If: "OUT's taint is gone", Do: TaintNode, Code: "TaintAgain",
			when: func(v *view) bool { return !v.tainted(v.out) },
			act:  on(TaintNode, outNode),
			say:  func(v *view) string { return v.rec.Out + " is tainted again" }},
		{From: StepDown, If: "OUT's host refused, or failed and OUT serves", Do: Order, To: Rollback, Code: "StepDownFailed",
			when: func(v *view) bool {
				refused := v.phaseIs(v.out, fleet.StepStepDown, fleet.PhaseRefused)
				failed := v.phaseIs(v.out, fleet.StepStepDown, fleet.PhaseFailed)
				return (refused || failed) && v.allRecordedServe()
			},
			act:   func(v *view) Action { return v.rollback() },
			waits: func(v *view) []status.Reason { return v.hostReason(v.out, fleet.StepStepDown) },
			say: func(v *view) string {
				return v.rec.Out + " did not step down and serves on; the newcomer is taken back"
			}},
		{From: StepDown, If: "OUT has not said that it stepped down", Code: "StepDownWait",
			when: func(v *view) bool { return !v.steppedDown() },
			say:  func(v *view) string { return v.rec.Out + " is stepping down" },
			waits: func(v *view) []status.Reason {
				rs := append(slices.Clone(v.list.problems), v.hostReason(v.out, fleet.StepStepDown)...)
				return append(rs, v.silence(v.out)...)
			}},
		{From: StepDown, If: "a gate of the removal is shut", Code: "RemovalHeld",
			when:  func(v *view) bool { return len(v.removeOutGates()) > 0 },
			waits: func(v *view) []status.Reason { return v.removeOutGates() },
			say:   func(v *view) string { return "the removal of " + v.rec.Out + " is held" }},
		{From: StepDown, If: "k3s has just said that OUT is removed", Code: "RemovalTold",
			when: func(v *view) bool { return v.removalTold() },
			say: func(v *view) string {
				return "k3s says that it has removed " + v.rec.Out + "; the voters' lists have to show it"
			}},
		{From: StepDown, If: "OUT's Node keeps the name of a removed member", Do: ClearRemovedName, Code: "RemovedNameOnOut",
			when: func(v *view) bool { return v.out.Node.Annotations[fleet.AnnotationEtcdRemovedName] != "" },
			act:  on(ClearRemovedName, outNode),
			say:  say("the name of an old member goes first: k3s would swallow the request")},
		{From: StepDown, If: "OUT's Node does not name its member", Do: RepairMember, Code: "MemberOnOutRepaired",
			when: func(v *view) bool { return mismatch(v.out, v.outMembers()[0]) },
			act:  func(v *view) Action { return v.repair(v.rec.Out, v.outMembers()[0]) },
			say: func(v *view) string {
				return v.rec.Out + "'s Node is given the name and address that the voters list, so that k3s finds the member"
			}},
		{From: StepDown, If: "a request was dropped or withdrawn before", Do: RequestRemoval, To: Remove, Code: "RemovalAskedAgain",
			when: func(v *view) bool { return v.reached(Remove) },
			act:  on(RequestRemoval, outNode),
			say: func(v *view) string {
				return "the request is gone and " + v.rec.Out + " is still a member; k3s is asked again"
			}},
		{From: StepDown, Do: RequestRemoval, To: Remove, Code: "RemovalAsked",
			act: on(RequestRemoval, outNode),
			say: func(v *view) string { return "k3s is asked to remove " + v.rec.Out + " from etcd" }},
	}
}

// removalTold: k3s has taken the request off and named OUT's member as removed,
// and the reports are not past that moment yet. It proves nothing (safety rule
// 5), so what counts as an answer given now is all the time it is given.
func (v *view) removalTold() bool {
	ms := v.outMembers()
	return len(ms) > 0 && v.reached(Remove) && !v.past(Remove, v.p.JustNow) &&
		v.out.Node.Annotations[fleet.AnnotationEtcdRemovedName] == ms[0].Name
}

// steppedDown: OUT says that it runs etcd alone; or it failed to and serves no
// more; or it is dead and nobody can say anything (R-E2-22, R-228-22).
func (v *view) steppedDown() bool {
	if v.phaseIs(v.out, fleet.StepStepDown, fleet.PhaseDone) {
		return true
	}
	if v.phaseIs(v.out, fleet.StepStepDown, fleet.PhaseFailed) || v.phaseIs(v.out, fleet.StepStepDown, fleet.PhaseRefused) {
		_, serves := list(v.out)
		return !serves
	}
	return v.dead(v.out)
}

func (v *view) silence(h *Host) []status.Reason {
	switch {
	case h == nil || h.Fresh:
		return nil
	case h.ReportProblem != "":
		return []status.Reason{badReport(h)}
	}
	return []status.Reason{reason(CodeSilent, h.Name, "the host daemon of %s is silent", h.Name)}
}

func (v *view) repair(node string, m status.Member) Action {
	return Action{Kind: RepairMember, Node: node, Swap: v.rec.ID, MemberName: m.Name, MemberAddress: peerHost(m)}
}

func removeRows() []Row {
	return []Row{
		{From: Remove, If: "no list holds OUT", Do: MarkMemberGone, To: Finish, Code: "Departed",
			when: func(v *view) bool { return v.departed() },
			act:  on(MarkMemberGone, outNode),
			say:  func(v *view) string { return "every staying voter's list is without " + v.rec.Out }},
		newcomerFailed(Remove),
		{From: Remove, If: "the request names what k3s will not find", Do: WithdrawRemoval, To: StepDown, Code: "RemovalStuck",
			when: func(v *view) bool { return v.list.known && v.removalStuck() },
			act:  on(WithdrawRemoval, outNode),
			say: func(v *view) string {
				return v.rec.Out + "'s Node does not name its member; the request is withdrawn and put right"
			}},
		{From: Remove, If: "a gate has shut since and k3s has had its time", Do: WithdrawRemoval, To: StepDown, Code: "RemovalHeldWithdrawn",
			// k3s carries the request out whenever it comes to it, whoever has fallen by
			// then. Not at once: a request that k3s is just doing is left to it, and a list
			// that is late for a moment is not worth two writes. But it would carry out
			// another's request in the same moment.
			when: func(v *view) bool {
				return len(v.askedBeside()) > 0 || v.heldIn(Remove, v.p.JustNow) && len(v.removeOutGates()) > 0
			},
			act:   on(WithdrawRemoval, outNode),
			waits: func(v *view) []status.Reason { return v.removeOutGates() },
			say: func(v *view) string {
				return "k3s has not removed " + v.rec.Out + " and not every voter is well any more; the request is withdrawn until they are"
			}},
		{From: Remove, If: "a remaining voter is not healthy", Code: "RemovalRetryHeld",
			when:  func(v *view) bool { return len(v.removeOutGates()) > 0 },
			waits: func(v *view) []status.Reason { return v.removeOutGates() },
			say: func(v *view) string {
				return "the removal of " + v.rec.Out + " is asked for and not every voter is well"
			}},
		{From: Remove, To: Finish, Code: "RemovalWait",
			say: func(v *view) string { return "k3s removes " + v.rec.Out }},
	}
}

// removalStuck: k3s does nothing when the removed name equals the member's, and
// calls it a success when the address differs (k3s-facts §5.1). One operation
// timeout is left to it where only the annotations lag.
func (v *view) removalStuck() bool {
	ms := v.outMembers()
	if len(ms) == 0 {
		return false
	}
	if v.out.Node.Annotations[fleet.AnnotationEtcdRemovedName] == ms[0].Name {
		return true
	}
	return mismatch(v.out, ms[0]) && v.past(Remove, v.p.TakeOver)
}

// newcomerLost says that somebody has taken the newcomer's vote away since OUT's was
// removed: the swap ends, and a person has to make another voter.
func (v *view) newcomerLost() []status.Reason {
	if !v.list.known || v.inVotes() {
		return nil
	}
	return []status.Reason{reason(CodeVoterCount, v.rec.In, "%s is removed and %s is a voter no more: the members are %s; somebody took it away, and a person has to make another voter",
		v.rec.Out, v.rec.In, describe(v.list.members))}
}

func finishRows() []Row {
	return []Row{
		{From: Finish, If: "IN is still cordoned by us", Do: Uncordon, Code: "UncordonIn",
			when: func(v *view) bool { return v.departed() && v.cordonMarked(v.in) },
			act:  on(Uncordon, inNode),
			say:  func(v *view) string { return v.rec.Out + "'s removal is proven; " + v.rec.In + " is uncordoned" }},
		{From: Finish, If: "OUT's server has ended and its Node is not clean", Do: CleanNode, Code: "CleanOut",
			when: func(v *view) bool { return v.finished(v.out) && !v.clean(v.out) },
			act:  on(CleanNode, outNode),
			say:  func(v *view) string { return v.rec.Out + " is an agent; its Node is cleaned" }},
		{From: Finish, If: "OUT is back as an agent and still cordoned by us", Do: Uncordon, Code: "UncordonOut",
			when: func(v *view) bool { return v.finished(v.out) && back(v.out) && v.cordonMarked(v.out) },
			act:  on(Uncordon, outNode),
			say:  func(v *view) string { return v.rec.Out + " is back as an agent and is uncordoned" }},
		{From: Finish, If: "OUT is back as an agent", Do: Conclude, To: End, Code: "Completed",
			// IN went forward out of a rollback, perhaps, and its server is not up again: the
			// order stands until it is (safety rule 2).
			when: func(v *view) bool {
				_, serves := list(v.in)
				return v.finished(v.out) && back(v.out) && v.departed() && (serves || !v.inVotes() || v.past(Finish, v.p.FinishTimeout))
			},
			act: conclude(fleet.OutcomeCompleted, (*view).newcomerLost),
			say: func(v *view) string {
				if rs := v.newcomerLost(); len(rs) > 0 {
					return rs[0].Sentence
				}
				return v.rec.In + " votes in place of " + v.rec.Out
			}},
		{From: Finish, If: "OUT is silent past the bound and its Node is not clean", Do: CleanNode, Code: "CleanSilentOut",
			when: func(v *view) bool {
				return v.past(Finish, v.p.FinishTimeout) && !v.past(Finish, 2*v.p.FinishTimeout) && !v.out.Fresh && !v.clean(v.out)
			},
			act: on(CleanNode, outNode),
			say: func(v *view) string { return v.rec.Out + " has not come back; its Node is cleaned" }},
		{From: Finish, If: "OUT is not back past the bound", Do: Conclude, To: End, Code: "CompletedPending",
			when: func(v *view) bool { return v.past(Finish, v.p.FinishTimeout) && v.departed() },
			act: conclude(fleet.OutcomeCompleted, func(v *view) []status.Reason {
				return append(v.newcomerLost(), reason(CodeStepTimeout, v.rec.Out, "%s had not come back as an agent within %s; it is finished when it returns", v.rec.Out, v.p.FinishTimeout))
			}),
			say: func(v *view) string {
				return v.rec.In + " votes; " + v.rec.Out + " is left to return by itself, and its clean-up stays owed"
			}},
		{From: Finish, To: Finish, Code: "FinishWait",
			waits: func(v *view) []status.Reason {
				rs := append(slices.Clone(v.list.problems), v.hostReason(v.out, fleet.StepFinishDemote)...)
				rs = append(rs, v.silence(v.out)...)
				if _, serves := list(v.in); v.inVotes() && !serves {
					rs = append(rs, whyNoList(v.rec.In, v.in))
				}
				return rs
			},
			say: func(v *view) string {
				if v.finished(v.out) && back(v.out) {
					return v.rec.Out + " is an agent again; " + v.rec.In + " has to serve"
				}
				return v.rec.Out + " becomes an agent"
			}},
	}
}
