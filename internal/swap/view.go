package swap

import (
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// view is an observation with what every rule asks of it worked out once.
type view struct {
	o *Observation
	p Policy

	// marked are the Nodes that carry a role-swap annotation, by name.
	marked []string
	// problem is set when the marks cannot be understood: the swap is held.
	problem *status.Reason

	rec *status.Record // nil: no swap on record
	in  *Host          // nil: no Node, or no swap
	out *Host

	list  membership
	state State
}

func newView(o *Observation, p Policy) *view {
	v := &view{o: o, p: p}
	v.readMarks()
	if v.problem == nil && len(v.marked) == 0 && v.leaseState() != lease.Held && !v.reached(Promote) {
		// A Lease that ran out before the first Node was written, or after the last
		// was cleared, names no swap any more (R-228-18).
		v.rec = nil
	}
	if v.problem == nil && v.outlived() {
		// A Lease that was put back is held by nobody who would renew it; marks on
		// Nodes do not go by themselves.
		r := reason(CodeOtherSwap, "", "the Lease is held for swap %s, which ended before the last one did: it was put back, and runs out by itself", v.rec.ID)
		if len(v.marked) > 0 {
			r = reason(CodeOtherSwap, v.marked[0], "%s carries the marks of swap %s, which ended before the last one did: they were put back, and a person has to take them off", strings.Join(v.marked, ", "), v.rec.ID)
		}
		v.rec, v.problem = nil, &r
	}
	if v.rec != nil {
		v.in, v.out = o.Host(v.rec.In), o.Host(v.rec.Out)
		v.list = readLists(o, v.staying())
	} else {
		v.list = readLists(o, v.serving())
	}
	v.state = v.classify()
	return v
}

// readMarks finds the swap on record. The record on a Node comes first, then
// the Lease's, which alone stands between taking the Lease and the first Node.
func (v *view) readMarks() {
	k := v.p.Keys
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		for key := range h.Node.Annotations {
			if k.ForeignSwapKey(key) {
				r := reason(CodeOtherSwap, h.Name, "%s carries a swap under another label prefix (%s): is another regrade at work, or was the prefix changed in the middle of a swap?", h.Name, key)
				v.problem = &r
				return
			}
		}
		raw, ok := h.Node.Annotations[k.Swap()]
		if !ok {
			continue
		}
		v.marked = append(v.marked, h.Name)
		rec, err := status.ParseRecord(h.Node.Annotations[k.Record()])
		switch {
		case err != nil:
			r := reason(CodeOtherSwap, h.Name, "%s carries swap %q and its record cannot be read: %v", h.Name, raw, err)
			v.problem = &r
			return
		case string(rec.ID) != raw || rec.Prefix != k.Prefix() || (rec.In != h.Name && rec.Out != h.Name):
			r := reason(CodeOtherSwap, h.Name, "%s carries swap %q, which its record contradicts", h.Name, raw)
			v.problem = &r
			return
		case v.rec != nil && v.rec.ID != rec.ID:
			r := reason(CodeOtherSwap, h.Name, "%s carries swap %s and %s carries %s: two at once", v.marked[0], v.rec.ID, h.Name, rec.ID)
			v.problem = &r
			return
		case v.rec == nil:
			v.rec = &rec
		default:
			// What became known later stands on one Node before it stands on the other.
			if v.rec.InMember == 0 {
				v.rec.InMember = rec.InMember
			}
			if v.rec.Snapshot == "" {
				v.rec.Snapshot = rec.Snapshot
			}
		}
		if _, err := v.step(h); err != nil {
			r := reason(CodeOtherSwap, h.Name, "%s: %v", h.Name, err)
			v.problem = &r
			return
		}
	}
	id := v.o.Lease.SwapID()
	if id == "" {
		return
	}
	if v.rec != nil {
		// One that ran out holds nothing, whatever it names: a Lease put back from a
		// backup must not hold the swap on the Nodes for ever.
		if v.rec.ID != id && v.leaseState() == lease.Held {
			r := reason(CodeOtherSwap, v.marked[0], "the Lease is held for swap %s and %s carries %s", id, v.marked[0], v.rec.ID)
			v.problem = &r
		}
		return
	}
	if rec, err := status.ParseRecord(v.o.Lease.Annotations[fleet.LeaseRecord]); err == nil && rec.ID == id && rec.Prefix == k.Prefix() {
		v.rec = &rec
	}
}

// step is the role-step annotation of a host, empty when there is none.
func (v *view) step(h *Host) (fleet.Step, error) {
	if h == nil {
		return "", nil
	}
	raw := h.Node.Annotations[v.p.Keys.Step()]
	if raw == "" {
		return "", nil
	}
	return fleet.ParseStep(raw)
}

func (v *view) stepIs(h *Host, s fleet.Step) bool {
	got, err := v.step(h)
	return err == nil && got == s
}

func (v *view) carries(h *Host) bool {
	return h != nil && v.rec != nil && h.Node.Annotations[v.p.Keys.Swap()] == string(v.rec.ID)
}

// staying are the recorded voters but OUT, by name. Their lists decide.
func (v *view) staying() []string {
	var names []string
	for _, r := range v.rec.Voters {
		if r.Node != v.rec.Out {
			names = append(names, r.Node)
		}
	}
	slices.Sort(names)
	return names
}

// serving are the hosts whose own list may be believed, and every voter those
// lists name: a voter that is silent is judged as well, and found silent.
func (v *view) serving() []string {
	var names []string
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		e, ok := list(h)
		if !ok {
			continue
		}
		names = append(names, h.Name)
		for _, m := range e.Members {
			if node := nodeOf(v.o, m); node != "" && !m.Learner {
				names = append(names, node)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ended says that the outcome of the swap on record stands.
func (v *view) ended() bool { return v.outcome() != nil }

// outcome is how the swap on record ended, nil while it goes on: as published, or
// as it stands on the Lease, which says so first. A status that was lost, or put
// back, never begins a swap again that has ended (safety rule 25).
func (v *view) outcome() *status.LastSwap {
	if v.rec == nil {
		return nil
	}
	if s := v.o.Status; s != nil && s.LastSwap != nil && s.LastSwap.ID == v.rec.ID {
		return s.LastSwap
	}
	return v.onLease()
}

// onLease is the outcome that the Lease carries for the swap on record.
func (v *view) onLease() *status.LastSwap {
	if v.o.Lease.SwapID() != v.rec.ID {
		return nil
	}
	last, err := status.ParseOutcome(v.o.Lease.Annotations[fleet.LeaseOutcome])
	if err != nil || last.ID != v.rec.ID {
		return nil
	}
	return &last
}

// unpublished: the outcome stands on the Lease and not in the status.
func (v *view) unpublished() bool {
	s := v.o.Status
	return v.onLease() != nil && (s == nil || s.LastSwap == nil || s.LastSwap.ID != v.rec.ID)
}

// outlived says that the swap on record ended before the last one did.
func (v *view) outlived() bool {
	return v.rec != nil && v.o.Status != nil && !v.ended() &&
		slices.ContainsFunc(v.o.Status.History, func(h status.PastSwap) bool { return h.ID == v.rec.ID })
}

// membersOf are the members that belong to a host: the one recorded, and any
// other by name or address, since a removed server that k3s restarts comes back
// as a new member (safety rule 13).
func (v *view) membersOf(node string, recorded fleet.MemberID) []status.Member {
	var out []status.Member
	for _, m := range v.list.members {
		if (recorded != 0 && m.ID == recorded) || (!v.recorded(m.ID) && nodeOf(v.o, m) == node) {
			out = append(out, m)
		}
	}
	return out
}

func (v *view) recorded(id fleet.MemberID) bool {
	for _, r := range v.rec.Voters {
		if r.ID == id {
			return true
		}
	}
	return false
}

func (v *view) inMembers() []status.Member  { return v.membersOf(v.rec.In, v.rec.InMember) }
func (v *view) outMembers() []status.Member { return v.membersOf(v.rec.Out, v.rec.OutMember) }

// departed: fresh, agreeing lists of every staying voter hold no member of OUT.
// Nothing else proves a removal (safety rule 5).
func (v *view) departed() bool { return v.list.known && len(v.outMembers()) == 0 }

// inGone is the same for IN.
func (v *view) inGone() bool { return v.list.known && len(v.inMembers()) == 0 }

// inVotes: the staying voters list IN as a voter.
func (v *view) inVotes() bool {
	return v.list.known && slices.ContainsFunc(v.inMembers(), func(m status.Member) bool { return !m.Learner && m.Started() })
}

// frozen names what happened to the membership that is not the swap's
// business: a staying voter changed, or a member nobody knows (safety rule 4).
func (v *view) frozen() []status.Reason {
	if !v.list.known {
		return v.lost()
	}
	var rs []status.Reason
	if v.list.cluster != v.rec.ClusterID {
		rs = append(rs, reason(CodeClusterID, "", "etcd's cluster id is %s, the swap started in %s", v.list.cluster, v.rec.ClusterID))
	}
	for _, r := range v.rec.Voters {
		if r.Node == v.rec.Out {
			continue
		}
		if m, ok := v.list.byID(r.ID); !ok || m.Learner {
			rs = append(rs, reason(CodeStayingChanged, r.Node, "%s was voter %s when the swap started and is not one now; somebody changed it", r.Node, r.ID))
		}
	}
	ours := append(v.inMembers(), v.outMembers()...)
	for _, m := range v.list.members {
		if !v.recorded(m.ID) && !slices.ContainsFunc(ours, func(x status.Member) bool { return x.ID == m.ID }) {
			rs = append(rs, reason(CodeUnknownMember, "", "member %s belongs to neither the swap nor a voter it started with", memberWords(m)))
		}
	}
	return rs
}

// first is when the swap first reached a state, Now when it has not: bounds
// are measured from there, so that going back and forth extends nothing.
func (v *view) first(s State) time.Time {
	if v.o.Status != nil && v.o.Status.Swap != nil && v.rec != nil && v.o.Status.Swap.ID == v.rec.ID {
		for _, st := range v.o.Status.Swap.Steps {
			if st.Step == string(s) {
				return st.At
			}
		}
	}
	return v.o.Now
}

// reached says whether the swap was in a state before.
func (v *view) reached(s State) bool {
	sw := v.swapStatus()
	return sw != nil && slices.ContainsFunc(sw.Steps, func(st status.StepTime) bool { return st.Step == string(s) })
}

func (v *view) swapStatus() *status.Swap {
	if v.o.Status != nil && v.o.Status.Swap != nil && v.rec != nil && v.o.Status.Swap.ID == v.rec.ID {
		return v.o.Status.Swap
	}
	return nil
}

func (v *view) past(s State, bound time.Duration) bool {
	return v.o.Now.Sub(v.first(s)) > bound
}

// report is a host's report on a step of this swap, nil when it has none.
func (v *view) report(h *Host, s fleet.Step) *status.Report {
	if h == nil || h.Report == nil || v.rec == nil || h.Report.Swap != v.rec.ID || h.Report.Step != s {
		return nil
	}
	return h.Report
}

func (v *view) phaseIs(h *Host, s fleet.Step, ph fleet.Phase) bool {
	r := v.report(h, s)
	return r != nil && r.Phase == ph
}

// finished: the host says that its server process has ended, its datastore is
// aside and it starts as an agent. The report need not be fresh: it is done.
func (v *view) finished(h *Host) bool {
	if h == nil || h.Report == nil || h.Report.Role != fleet.RoleAgent || h.Report.Leaving {
		return false
	}
	return v.phaseIs(h, fleet.StepFinishDemote, fleet.PhaseDone) || v.phaseIs(h, fleet.StepRollback, fleet.PhaseDone)
}

// back: Ready on a kubelet heartbeat later than the start the host reports
// (R-216-20, R-228-23).
func back(h *Host) bool { return h != nil && h.Node.Ready && h.KubeletChanged }

// answersNow: the host's etcd has just answered a linearizable read as a
// member (safety rule 2).
func (v *view) answersNow(h *Host) bool {
	_, ok := list(h)
	return ok && h.ReportAge <= v.p.JustNow
}

// quorumMembers is the agreed list with each member's health. A host that is
// silent, or whose etcd does not answer, counts as down (safety rule 24).
func (v *view) quorumMembers(down ...string) []quorum.Member {
	var ms []quorum.Member
	for _, m := range v.list.members {
		node := nodeOf(v.o, m)
		for _, r := range v.recordVoters() {
			if r.ID == m.ID {
				node = r.Node
			}
		}
		h := v.o.Host(node)
		_, up := list(h)
		up = up && h.Report.MemberID == m.ID // a dead member of a host that has another is down
		if slices.Contains(down, node) {
			up = false
		}
		ms = append(ms, quorum.Member{ID: m.ID, Node: node, Learner: m.Learner, Up: up})
	}
	return ms
}

// lost are the staying voters that another's list does not hold. A voter that was
// removed gives no list of its own any more, so that the lists never agree again: one
// that lacks it is enough, for it was read from a quorum.
func (v *view) lost() []status.Reason {
	var rs []status.Reason
	for _, r := range v.rec.Voters {
		for _, name := range v.staying() {
			e, ok := list(v.o.Host(name))
			if r.Node == v.rec.Out || !ok || e.ClusterID != v.rec.ClusterID {
				continue
			}
			if !slices.ContainsFunc(e.Members, func(m status.Member) bool { return m.ID == r.ID && !m.Learner }) {
				rs = append(rs, reason(CodeStayingChanged, r.Node, "%s was voter %s when the swap started and %s does not list it as one now; somebody changed it", r.Node, r.ID, name))
				break
			}
		}
	}
	return rs
}

func (v *view) recordVoters() []status.RecordVoter {
	if v.rec == nil {
		return nil
	}
	return v.rec.Voters
}

// leaseState is the Lease at the API server's Date.
func (v *view) leaseState() lease.State { return v.o.Lease.At(v.o.Now) }

// leaseOurs: held by a controller for the swap on record, whichever controller.
func (v *view) leaseOurs() bool {
	return v.rec != nil && v.leaseState() == lease.Held && v.o.Lease.SwapID() == v.rec.ID
}

// cordonOurs says whether our cordon marker stands on a host.
func (v *view) cordonMarked(h *Host) bool {
	return h != nil && h.Node.Annotations[v.p.Keys.Cordoned()] != ""
}

func (v *view) tainted(h *Host) bool {
	return h != nil && slices.ContainsFunc(h.Node.Taints, func(t Taint) bool {
		return t.Key == v.p.Keys.Taint() && t.Value == fleet.TaintValue
	})
}

// clean says whether a demoted Node carries nothing of a server any more.
func (v *view) clean(h *Host) bool {
	for _, l := range fleet.ServerLabels() {
		if _, ok := h.Node.Labels[l]; ok {
			return false
		}
	}
	for _, a := range fleet.EtcdAnnotations() {
		if _, ok := h.Node.Annotations[a]; ok {
			return false
		}
	}
	_, level := h.Node.Labels[v.p.Keys.Level()]
	return !level && !v.tainted(h)
}
