package swap

import (
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// promoteBound: k3s drops a learner after its stall time; then the swap has one
// operation to notice (R-E2-18).
func (v *view) promoteBound() time.Duration { return v.p.LearnerStall + v.p.OperationTimeout }

func promoteRows() []Row {
	return []Row{
		{From: Promote, If: "IN's host refuses and IN is no member", Do: Conclude, To: End, Code: CodeRefusedByHost,
			when: func(v *view) bool { return v.phaseIs(v.in, fleet.StepPromote, fleet.PhaseRefused) && v.inGone() },
			act:  conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason { return v.hostReason(v.in, fleet.StepPromote) }),
			say:  func(v *view) string { return v.rec.In + " refused to be promoted; nothing was changed on it" }},
		{From: Promote, If: "IN's host failed", Do: Order, To: Rollback, Code: "PromoteFailed",
			when: func(v *view) bool {
				// A refusal changed nothing: the lists say first whether IN is a member.
				return v.phaseIs(v.in, fleet.StepPromote, fleet.PhaseFailed) ||
					(v.list.known && v.phaseIs(v.in, fleet.StepPromote, fleet.PhaseRefused))
			},
			act:   func(v *view) Action { return v.rollback() },
			waits: func(v *view) []status.Reason { return v.hostReason(v.in, fleet.StepPromote) },
			say:   func(v *view) string { return v.rec.In + " failed to become a server; it is rolled back" }},
		{From: Promote, If: "IN did not vote in time", Do: Order, To: Rollback, Code: "PromoteTimeout",
			// Without lists nobody knows that it does not vote (safety rule 24).
			when: func(v *view) bool { return v.list.known && v.past(Promote, v.promoteBound()) },
			act:  func(v *view) Action { return v.rollback() },
			say: func(v *view) string {
				return fmt.Sprintf("%s did not become a voter within %s; it is rolled back", v.rec.In, v.promoteBound())
			}},
		assertCordons(Promote),
		{From: Promote, If: "IN is listed", Code: "LearnerWait", To: Settle,
			when:  func(v *view) bool { return v.list.known && len(v.inMembers()) > 0 },
			waits: func(v *view) []status.Reason { return v.hostReason(v.in, fleet.StepPromote) },
			say: func(v *view) string {
				m := v.inMembers()[0]
				if !m.Started() {
					return v.rec.In + " was added to etcd and has not started yet"
				}
				return v.rec.In + " is a learner; k3s promotes it on its next tick"
			}},
		{From: Promote, To: Settle, Code: "JoinWait",
			waits: func(v *view) []status.Reason {
				rs := append(slices.Clone(v.list.problems), v.hostReason(v.in, fleet.StepPromote)...)
				return append(rs, v.silence(v.in)...)
			},
			say: func(v *view) string { return v.rec.In + " is joining" }},
	}
}

func (v *view) hostReason(h *Host, s fleet.Step) []status.Reason {
	r := v.report(h, s)
	if r == nil || (r.Message == "" && r.Phase != fleet.PhaseFailed && r.Phase != fleet.PhaseRefused) {
		return nil // a step that goes on has no reason to give
	}
	code := r.Code
	if code == "" {
		code = CodeFailedOnHost
	}
	return []status.Reason{reason(code, h.Name, "%s: %s", h.Name, orNone(r.Message))}
}

func (v *view) rollback() Action {
	return Action{Kind: Order, Node: v.rec.In, Swap: v.rec.ID, Step: fleet.StepRollback}
}

// assertCordons puts our cordons back where somebody took them away (safety
// rule 27): an uncordoned Node would get jobs that the next step cuts.
func assertCordons(from State) Row {
	open := func(v *view) *Host {
		for _, h := range []*Host{v.in, v.out} {
			if h != nil && !h.Node.Unschedulable {
				return h
			}
		}
		return nil
	}
	return Row{
		From: from, If: "somebody uncordoned IN or OUT", Do: Cordon, Code: "CordonAgain:" + string(from),
		when: func(v *view) bool { return open(v) != nil },
		act:  func(v *view) Action { return Action{Kind: Cordon, Node: open(v).Name, Swap: v.rec.ID} },
		say:  func(v *view) string { return open(v).Name + " was uncordoned by somebody and is cordoned again" },
	}
}

// newcomerFailing: IN votes, and its etcd does not answer or its Node is not
// Ready on a later heartbeat (R-E2-17). Once OUT has stepped down the vote alone
// counts, and a newcomer that is no voter any more fails as well.
func (v *view) newcomerFailing() bool {
	_, ok := list(v.in)
	if v.stepIs(v.out, fleet.StepStepDown) {
		return v.list.known && !ok && !v.stepIs(v.in, fleet.StepRollback)
	}
	return v.inVotes() && (!ok || !back(v.in) || len(lasts(v.in)) > 0)
}

// newcomerFailed: it has been failing for one operation timeout while every
// recorded voter serves, so that taking it back risks nothing (safety rule 7).
func newcomerFailed(from State) Row {
	return Row{
		From: from, If: "the newcomer fails and every voter of before serves", Do: Order, To: Rollback, Code: "NewcomerFailed:" + string(from),
		when: func(v *view) bool {
			since := v.failingSince()
			return !since.IsZero() && v.o.Now.Sub(since) > v.p.OperationTimeout && v.allRecordedServe() && !v.departed() && !v.unheard(v.in)
		},
		act: func(v *view) Action { return v.rollback() },
		waits: func(v *view) []status.Reason {
			since := v.failingSince().UTC().Format("15:04:05")
			if rs := lasts(v.in); len(rs) > 0 {
				return rs
			}
			if _, ok := list(v.in); ok {
				return []status.Reason{reason(CodeNewcomerFailing, v.rec.In, "the Node of %s has not been Ready on a heartbeat later than its start since %s", v.rec.In, since)}
			}
			return []status.Reason{reason(CodeNewcomerFailing, v.rec.In, "the etcd of %s has not answered since %s", v.rec.In, since)}
		},
		say: func(v *view) string {
			return v.rec.In + " fails as a voter while all voters of before serve; it is taken back"
		},
	}
}

// unheard: the host daemon goes on, and what it says is not there or cannot be
// read, such as after somebody deleted the reports. It is written anew: until then
// nobody knows how its etcd is, and that is no failure (safety rule 24).
func (v *view) unheard(h *Host) bool { return h != nil && h.Speaks && h.Report == nil }

// failingSince is carried from pass to pass in the status; a missing status
// starts it anew, which only makes the swap more patient. Lists that are missing
// for a moment prove neither that it failed nor that it recovered.
func (v *view) failingSince() time.Time {
	_, answers := list(v.in)
	blind := !v.list.known && !answers && v.swapStatus() != nil
	if !v.newcomerFailing() && !blind {
		return time.Time{}
	}
	if blind {
		return v.swapStatus().FailingSince
	}
	if sw := v.swapStatus(); sw != nil && !sw.FailingSince.IsZero() {
		return sw.FailingSince
	}
	return v.o.Now
}

// withInMember is the record with the id that the lists give IN.
func withInMember(node func(*view) string) func(*view) Action {
	return func(v *view) Action {
		rec := *v.rec
		for _, m := range v.inMembers() {
			if !m.Learner {
				rec.InMember = m.ID
			}
		}
		return Action{Kind: WriteRecord, Node: node(v), Swap: rec.ID, Record: &rec}
	}
}

func settleRows() []Row {
	return []Row{
		newcomerFailed(Settle),
		assertCordons(Settle),
		{From: Settle, If: "the record of IN lacks its member id", Do: WriteRecord, Code: "MemberOnIn",
			when: func(v *view) bool { return !v.recordHas(v.in) },
			act:  withInMember(inNode),
			say:  func(v *view) string { return v.rec.In + " votes; its member id is recorded" }},
		{From: Settle, If: "the record of OUT lacks IN's member id", Do: WriteRecord, Code: "MemberOnOut",
			when: func(v *view) bool { return !v.recordHas(v.out) },
			act:  withInMember(outNode),
			say:  func(v *view) string { return v.rec.In + " votes; its member id is recorded" }},
		{From: Settle, If: "IN's Node keeps the name of a removed member", Do: ClearRemovedName, Code: "RemovedNameOnIn",
			when: func(v *view) bool {
				return v.inServes() && v.in.Node.Annotations[fleet.AnnotationEtcdRemovedName] != ""
			},
			act: on(ClearRemovedName, inNode),
			say: func(v *view) string {
				return v.rec.In + " votes again; the name of its old member goes, or k3s would swallow the next removal"
			}},
		{From: Settle, To: DrainOut, Code: "SettleWait",
			waits: func(v *view) []status.Reason {
				var rs []status.Reason
				if _, ok := list(v.in); !ok {
					rs = append(rs, whyNoList(v.rec.In, v.in))
				}
				if !back(v.in) {
					rs = append(rs, reason(CodeNotReady, v.rec.In, "%s is not Ready on a heartbeat later than its start", v.rec.In))
				}
				return append(rs, lasts(v.in)...)
			},
			say: func(v *view) string {
				return v.rec.In + " votes; its etcd and its Node have to prove themselves"
			}},
	}
}

// recordHas: a host's record holds an id that the lists give IN.
func (v *view) recordHas(h *Host) bool {
	rec, err := status.ParseRecord(h.Node.Annotations[v.p.Keys.Record()])
	if err != nil {
		return false
	}
	for _, m := range v.inMembers() {
		if m.ID == rec.InMember && !m.Learner {
			return true
		}
	}
	return false
}
