package swap

import (
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// MayRemove judges, right before the effect, whether k3s may now be asked to
// remove the member of node: OUT's in a swap, IN's in a rollback. The executor
// calls it with an observation made after the decision (safety rules 2, 8, 23).
func MayRemove(o Observation, p Policy, node string) []status.Reason {
	v := newView(&o, p)
	switch {
	case v.rec == nil || v.problem != nil:
		return []status.Reason{reason(CodeOtherSwap, node, "no swap on record")}
	case v.state == Frozen:
		return v.frozen()
	case node == v.rec.Out:
		return v.removeOutGates()
	case node == v.rec.In:
		return v.removeInGates()
	}
	return []status.Reason{reason(CodeOtherSwap, node, "%s is not a host of swap %s", node, v.rec.ID)}
}

// removeOutGates: what must hold before OUT's member goes. OUT's own health is
// not asked for (R-228-17); its leadership is (safety rule 8).
func (v *view) removeOutGates() []status.Reason {
	rs := v.afterGates()
	if !v.list.known {
		return rs
	}
	for _, m := range v.outMembers() {
		// IN has answered just now (newcomerGates), the staying voters within three periods.
		if m.ID == v.list.leader || leads(v.in, m) || leads(v.out, m) {
			rs = append(rs, reason(CodeLeads, v.rec.Out, "%s still leads etcd", v.rec.Out))
		}
	}
	if !v.snapshotReady() {
		rs = append(rs, reason(CodeNoSnapshot, "", "the etcd snapshot of this swap is not there"))
	}
	// Worst case: the newcomer fails the moment OUT is gone.
	return append(rs, v.mayRemove(v.outMembers(), v.rec.In)...)
}

// leads says whether the host's own fresh list shows the member as etcd's leader.
func leads(h *Host, m status.Member) bool {
	e, ok := list(h)
	return ok && e.Leader == m.ID
}

// removeInGates: IN is taken back. Every recorded voter but a stepped-down OUT
// must serve; IN's own health does not matter, it may be dead (safety rule 6).
func (v *view) removeInGates() []status.Reason {
	rs := slices.Clone(v.list.problems)
	if !v.list.known {
		return rs
	}
	rs = append(rs, v.alarms()...)
	if v.list.leader == 0 {
		rs = append(rs, reason(CodeNoLeader, "", "the voters do not agree on an etcd leader"))
	}
	for _, r := range v.rec.Voters {
		rs = append(rs, doomed(v.o.Host(r.Node))...) // OUT among them: its Node may be being deleted
	}
	return append(rs, v.mayRemove(v.inMembers(), v.rec.In)...)
}

func (v *view) mayRemove(ms []status.Member, down string) []status.Reason {
	var rs []status.Reason
	for _, m := range ms {
		members := v.quorumMembers()
		// The removal needs a quorum now; what is left is judged with the
		// newcomer down.
		if ref, ok := quorum.May(members, quorum.Change{Kind: quorum.Remove, ID: m.ID}); !ok {
			rs = append(rs, status.Reason{Code: ref.Code, Sentence: ref.Sentence})
			continue
		}
		if after := quorum.Project(v.quorumMembers(down), quorum.Change{Kind: quorum.Remove, ID: m.ID}); !m.Learner && !after.Safe() {
			rs = append(rs, reason(quorum.CodeNoQuorumAfter, "", "the removal would leave %s were %s to fail", after, down))
		}
	}
	return rs
}

// mayRestartOut: OUT restarts etcd-only at target plus one; meanwhile the
// others must make a quorum, the newcomer among them (safety rule 2).
func (v *view) mayRestartOut() []status.Reason {
	m, ok := v.list.byID(v.rec.OutMember)
	if !ok {
		return nil
	}
	if ref, ok := quorum.May(v.quorumMembers(), quorum.Change{Kind: quorum.Restart, ID: m.ID}); !ok {
		return []status.Reason{{Code: ref.Code, Sentence: ref.Sentence}}
	}
	return nil
}

// allRecordedServe: every voter the swap started with serves, OUT included:
// then the newcomer can go without any risk (safety rule 7).
func (v *view) allRecordedServe() bool {
	for _, r := range v.rec.Voters {
		h := v.o.Host(r.Node)
		if _, ok := list(h); !ok || h.Report.MemberID != r.ID {
			return false
		}
	}
	return v.list.known
}

// ourRemoval is the host whose removal this swap has asked k3s for: OUT once it was
// told to step down, IN in a rollback. Any other request is somebody else's.
func (v *view) ourRemoval() *Host {
	switch {
	case v.stepIs(v.out, fleet.StepStepDown) && asked(v.out):
		return v.out
	case v.stepIs(v.in, fleet.StepRollback) && asked(v.in):
		return v.in
	}
	return nil
}

// asked says whether k3s is asked to remove a host's member. It takes the word in any
// case (k3s-facts §5.1).
func asked(h *Host) bool {
	return h != nil && strings.EqualFold(h.Node.Annotations[fleet.AnnotationEtcdRemove], fleet.True)
}

// askedBeside names the voters but OUT that somebody has asked k3s to remove. It would
// take a member of the swap beside each of them: one removal at a time, whoever asks.
func (v *view) askedBeside() []status.Reason {
	var rs []status.Reason
	for _, name := range append(v.staying(), v.rec.In) {
		rs = append(rs, doomed(v.o.Host(name))...)
	}
	return rs
}

// doomed says why k3s will remove a host's member as soon as it comes to it.
func doomed(h *Host) []status.Reason {
	var rs []status.Reason
	if h != nil && h.Node.Deleting {
		rs = append(rs, reason(CodeDeleting, h.Name, "the Node %s is being deleted, which would remove its member", h.Name))
	}
	if asked(h) {
		rs = append(rs, reason(CodeStaleRemove, h.Name, "somebody asked k3s to remove %s from etcd", h.Name))
	}
	return rs
}

// mismatch is what on a Node keeps k3s from finding the member it is asked to
// remove (k3s-facts §5.1): nil when the Node names it rightly.
func mismatch(h *Host, m status.Member) bool {
	_, labelled := h.Node.Labels[fleet.LabelEtcd]
	return !labelled || h.Node.Annotations[fleet.AnnotationEtcdName] != m.Name ||
		h.Node.Annotations[fleet.AnnotationEtcdAddress] != peerHost(m)
}
