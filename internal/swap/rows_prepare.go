package swap

import (
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

func prepareRows() []Row {
	return []Row{
		{From: Prepare, If: "OUT is no member and IN votes: OUT's order was lost", Do: Order, To: StepDown, Code: "StepDownLost",
			when: func(v *view) bool { return v.departed() && v.inVotes() },
			act:  func(v *view) Action { return v.stepDown() },
			say:  say("the marks of a swap that was nearly done were lost; it goes on from there")},
		{From: Prepare, If: "OUT is no member", Do: Conclude, To: End, Code: "OutRemovedByOther",
			when: func(v *view) bool { return v.departed() },
			act: conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason {
				return []status.Reason{reason(CodeNotAVoter, v.rec.Out, "%s was removed from etcd by somebody else", v.rec.Out)}
			}),
			say: func(v *view) string { return v.rec.Out + " was removed from etcd by somebody else" }},
		{From: Prepare, If: "IN was taken back: its order was lost", Do: Order, To: Rollback, Code: "RollbackLost",
			when: func(v *view) bool { return v.changed() && v.reached(Rollback) },
			act:  func(v *view) Action { return v.rollback() },
			say:  func(v *view) string { return "the order that takes " + v.rec.In + " back was lost; it is given again" }},
		{From: Prepare, If: "IN is a member, or was told to be one: its order was lost", Do: Order, To: Promote, Code: "PromoteLost",
			when: func(v *view) bool { return v.changed() },
			act:  func(v *view) Action { return v.promote() },
			say:  func(v *view) string { return "the order that promotes " + v.rec.In + " was lost; it is given again" }},
		{From: Prepare, If: "an old remove request stands on IN or OUT", Do: WithdrawRemoval, Code: "StaleRemoval",
			when: func(v *view) bool { return v.leftover() != nil },
			act:  func(v *view) Action { return Action{Kind: WithdrawRemoval, Node: v.leftover().Name, Swap: v.rec.ID} },
			say: func(v *view) string {
				return "an old request to remove " + v.leftover().Name + " is deleted before it can be carried out on a new member"
			}},
		{From: Prepare, If: "OUT leads etcd and was not told who shall", Do: HandOver, Code: "LeadElsewhere",
			// Before anything else is written: OUT is often the slow one, and while it
			// leads each write waits for it. Nothing waits for this; OUT looks again
			// right before it steps down.
			when: func(v *view) bool {
				return v.outLeads() && v.out.Node.Annotations[v.p.Keys.LeadTo()] == "" && v.leadTo() != ""
			},
			act: func(v *view) Action {
				return Action{Kind: HandOver, Node: v.rec.Out, Swap: v.rec.ID, LeadTo: v.leadTo()}
			},
			say: func(v *view) string {
				return fmt.Sprintf("%s leads etcd and is told to hand that over to %s", v.rec.Out, v.leadTo())
			}},
		{From: Prepare, If: "IN is not cordoned", Do: Cordon, Code: "CordonIn",
			when: func(v *view) bool { return !v.in.Node.Unschedulable },
			act:  on(Cordon, inNode),
			say:  func(v *view) string { return v.rec.In + " is cordoned" }},
		{From: Prepare, Do: Cordon, To: Wait, Code: "CordonOut",
			act: on(Cordon, outNode),
			say: func(v *view) string { return v.rec.Out + " is cordoned" }},
	}
}

func waitRows() []Row {
	return []Row{
		{From: Wait, If: "the runner wait is over", Do: Conclude, To: End, Code: CodeRunnerWaitOver,
			when: func(v *view) bool { return v.past(Wait, v.p.RunnerWait) },
			act:  conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason { return v.runnerPods(v.in, v.out) }),
			say: func(v *view) string {
				return fmt.Sprintf("jobs still run after %s; the swap is abandoned with nothing changed", v.p.RunnerWait)
			}},
		{From: Wait, To: DrainIn, Code: "RunnerWait",
			waits: func(v *view) []status.Reason { return v.runnerPods(v.in, v.out) },
			say:   say("running jobs are waited for; none is ever cut")},
	}
}

func drainInRows() []Row {
	return []Row{
		{From: DrainIn, If: "the drain's bound is over", Do: Conclude, To: End, Code: "DrainInTimeout",
			when: func(v *view) bool { return v.past(DrainIn, v.p.DrainTimeout) },
			act: conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason {
				return append(v.blocked(v.in), reason(CodeStepTimeout, v.rec.In, "%s was not drained within %s", v.rec.In, v.p.DrainTimeout))
			}),
			say: func(v *view) string { return v.rec.In + " could not be drained; the swap is abandoned" }},
		{From: DrainIn, If: "a pod may be evicted", Do: Drain, Code: "DrainIn",
			when: func(v *view) bool { return v.canEvict(v.in) },
			act:  on(Drain, inNode),
			say:  func(v *view) string { return v.rec.In + " is drained" }},
		{From: DrainIn, To: TakeSnapshot, Code: "DrainInWait",
			waits: func(v *view) []status.Reason { return v.blocked(v.in) },
			say:   func(v *view) string { return "the pods of " + v.rec.In + " are going" }},
	}
}

// canEvict: some pod is neither protected, staying, on its way nor blocked.
func (v *view) canEvict(h *Host) bool {
	for _, p := range h.Pods {
		if !p.Protected && !p.Stays && !p.Terminating && p.Owned && p.Blocked == "" {
			return true
		}
	}
	return false
}

func snapshotRows() []Row {
	return []Row{
		{From: TakeSnapshot, If: "the voter failed to take it", Do: Conclude, To: End, Code: "SnapshotFailed",
			when: func(v *view) bool { return len(v.snapshotFailure()) > 0 },
			act:  conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason { return v.snapshotFailure() }),
			say:  say("the etcd snapshot failed; the swap is abandoned with nothing changed")},
		{From: TakeSnapshot, If: "the snapshot's bound is over", Do: Conclude, To: End, Code: "SnapshotTimeout",
			when: func(v *view) bool { return v.past(TakeSnapshot, v.p.SnapshotTimeout) },
			act: conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason {
				late := reason(CodeNoSnapshot, v.snapshotHost(), "no etcd snapshot of this swap was ready within %s", v.p.SnapshotTimeout)
				return append([]status.Reason{late}, v.snapshotWaits()...)
			}),
			say: func(v *view) string {
				return fmt.Sprintf("no etcd snapshot within %s; the swap is abandoned with nothing changed", v.p.SnapshotTimeout)
			}},
		{From: TakeSnapshot, If: "none is asked for", Do: RequestSnapshot, Code: "SnapshotAsked",
			when: func(v *view) bool { return v.snapshotHost() == "" && v.snapshotVoter() != "" },
			act:  on(RequestSnapshot, func(v *view) string { return v.snapshotVoter() }),
			say:  func(v *view) string { return v.snapshotVoter() + " is asked for an etcd snapshot" }},
		{From: TakeSnapshot, To: Recheck, Code: "SnapshotWait",
			waits: func(v *view) []status.Reason {
				if v.snapshotHost() != "" {
					return v.snapshotWaits()
				}
				return v.list.problems
			},
			say: func(v *view) string {
				if h := v.snapshotHost(); h != "" {
					return "the etcd snapshot on " + h + " is waited for"
				}
				return "no staying voter can take an etcd snapshot now"
			}},
	}
}

// snapshotHost is the staying voter that carries this swap's request.
func (v *view) snapshotHost() string {
	for _, name := range v.staying() {
		if h := v.o.Host(name); h != nil && h.Node.Annotations[v.p.Keys.SnapshotRequest()] == string(v.rec.ID) {
			return name
		}
	}
	return ""
}

// snapshotVoter is the voter to ask: one that stays, never OUT (R-228-16).
func (v *view) snapshotVoter() string {
	for _, name := range v.staying() {
		if h := v.o.Host(name); h != nil && h.Node.Ready {
			if _, ok := list(h); ok {
				return name
			}
		}
	}
	return ""
}

func (v *view) snapshotFailure() []status.Reason {
	h := v.o.Host(v.snapshotHost())
	r := v.report(h, fleet.StepSnapshot)
	if r == nil || (r.Phase != fleet.PhaseFailed && r.Phase != fleet.PhaseRefused) {
		return nil
	}
	return []status.Reason{reason(CodeNoSnapshot, h.Name, "%s could not take an etcd snapshot: %s", h.Name, orNone(r.Message))}
}

// snapshotWaits is what the voter that was asked waits for, or that it is silent.
func (v *view) snapshotWaits() []status.Reason {
	h := v.o.Host(v.snapshotHost())
	return append(v.hostReason(h, fleet.StepSnapshot), v.silence(h)...)
}

// snapshotReady: the cluster publishes a snapshot of this swap, taken on a
// voter that stays, as ready to use (R-N-04, safety rule 30); or the record says
// that it did. The object may go while the swap goes on: k3s deletes those of a
// Node that lost its label, and people prune.
func (v *view) snapshotReady() bool { return v.snapshotName() != "" }

func (v *view) snapshotName() string {
	for _, s := range v.o.Snapshots {
		if s.Ready && s.Node != v.rec.Out && v.ownSnapshot(s.Name) {
			return s.Name
		}
	}
	if v.ownSnapshot(v.rec.Snapshot) {
		return v.rec.Snapshot
	}
	return ""
}

func (v *view) ownSnapshot(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), strings.ToLower(fleet.SnapshotPrefix+string(v.rec.ID)+"-"))
}

// recordSnapshot writes its name into the record on a Node that lacks it.
func recordSnapshot(code string, h func(*view) *Host) Row {
	return Row{
		From: Recheck, If: "the record of " + strings.TrimPrefix(code, "SnapshotOn") + " lacks the snapshot", Do: WriteRecord, Code: code,
		when: func(v *view) bool {
			rec, err := status.ParseRecord(h(v).Node.Annotations[v.p.Keys.Record()])
			return err == nil && !v.ownSnapshot(rec.Snapshot)
		},
		act: func(v *view) Action {
			rec := *v.rec
			rec.Snapshot = v.snapshotName()
			return Action{Kind: WriteRecord, Node: h(v).Name, Swap: rec.ID, Record: &rec}
		},
		say: func(v *view) string {
			return "the etcd snapshot " + v.snapshotName() + " is ready; its name is recorded"
		},
	}
}

func recheckRows() []Row {
	return []Row{
		recordSnapshot("SnapshotOnIN", func(v *view) *Host { return v.in }),
		recordSnapshot("SnapshotOnOUT", func(v *view) *Host { return v.out }),
		{From: Recheck, If: "a snapshot request still stands", Do: ClearSnapshotRequest, Code: "SnapshotTaken",
			when: func(v *view) bool { return v.snapshotHost() != "" },
			act:  on(ClearSnapshotRequest, func(v *view) string { return v.snapshotHost() }),
			say:  func(v *view) string { return "the etcd snapshot " + v.snapshotName() + " is ready" }},
		{From: Recheck, If: "a gate stayed shut past the operation timeout", Do: Conclude, To: End, Code: "GateShutAbandoned",
			when: func(v *view) bool {
				return v.past(Recheck, v.p.OperationTimeout) && len(v.beforeGates(v.out, v.in)) > 0
			},
			act: conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason { return v.beforeGates(v.out, v.in) }),
			say: say("a gate stayed shut; the swap is abandoned with nothing changed")},
		{From: Recheck, If: "a gate is shut", Code: "GateShut",
			when:  func(v *view) bool { return len(v.beforeGates(v.out, v.in)) > 0 },
			waits: func(v *view) []status.Reason { return v.beforeGates(v.out, v.in) },
			say:   say("every gate is judged again before the first change on a host; one is shut")},
		{From: Recheck, Do: Order, To: Promote, Code: "PromoteOrdered",
			act: func(v *view) Action { return v.promote() },
			say: func(v *view) string {
				return fmt.Sprintf("%s is told to join through %s", v.rec.In, v.promote().JoinNode)
			}},
	}
}

// promote orders IN to join through a voter that stays and serves.
func (v *view) promote() Action {
	return Action{Kind: Order, Node: v.rec.In, Swap: v.rec.ID, Step: fleet.StepPromote, JoinNode: v.joinNode()}
}

// joinNode prefers etcd's leader among the staying voters: it is up for sure.
func (v *view) joinNode() string {
	first := ""
	for _, name := range v.staying() {
		h := v.o.Host(name)
		e, ok := list(h)
		if !ok || !h.Node.Ready {
			continue
		}
		if first == "" {
			first = name
		}
		if e.Leader != 0 && e.Leader == h.Report.MemberID {
			return name
		}
	}
	if first == "" && len(v.staying()) > 0 {
		return v.staying()[0]
	}
	return first
}
