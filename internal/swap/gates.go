package swap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// Gates judges a swap that has not begun: every reason against it, none when
// it may start (R-E2-03, R-E2-08, R-E2-15). It is the same judgement that the
// controller makes before it takes the Lease, for the command to make first.
func Gates(o Observation, p Policy, pair Pair) []status.Reason {
	v := newView(&o, p)
	return v.startGates(pair)
}

// Standing is what stands against any swap, whichever hosts it would name: the member
// lists, the voters, their versions. While a swap is under way there is a voter more than
// the target at times, and that is named too.
func Standing(o Observation, p Policy) []status.Reason {
	v := newView(&o, p)
	rs := append(v.listGates(p.Target), v.claims()...)
	for i := range o.Hosts {
		h := &o.Hosts[i]
		if _, ok := v.memberOfNode(h.Name); ok && v.list.known {
			rs = append(rs, v.voterGates(h)...)
		}
	}
	return append(rs, v.versionGates()...)
}

// Voters are the Nodes that vote by the voters' member lists, sorted; false where
// nobody knows.
func Voters(o Observation, p Policy) ([]string, bool) {
	v := newView(&o, p)
	if !v.list.known {
		return nil, false
	}
	var names []string
	for _, m := range v.list.members {
		if node := nodeOf(v.o, m); node != "" && !m.Learner {
			names = append(names, node)
		}
	}
	slices.Sort(names)
	return names, true
}

// Newcomer is what speaks against a standby as the newcomer of any swap.
func Newcomer(o Observation, p Policy, node string) []status.Reason {
	v := newView(&o, p)
	if h := o.Host(node); h != nil {
		return v.standbyGates(h)
	}
	return v.personsGates(node, nil)
}

// Outgoing is the same of a voter as the one that goes.
func Outgoing(o Observation, p Policy, node string) []status.Reason {
	v := newView(&o, p)
	if h := o.Host(node); h != nil {
		return v.outgoingGates(h)
	}
	return v.personsGates(node, nil)
}

// Usage says whether a reason means that the request itself is wrong, rather
// than that the moment is (R-E2-04: exit status 2).
func Usage(code string) bool {
	switch code {
	case CodeSameNode, CodeUnknownNode, CodeIneligible, CodePinned:
		return true
	}
	return false
}

// Falters says whether the servers to join, which answer IN's host and cannot say who
// the members are, are all that speaks against a swap. It passes by itself, mostly
// within seconds, so it is waited for as long as nothing is written.
func Falters(rs []status.Reason) bool {
	return len(rs) > 0 && !slices.ContainsFunc(rs, func(r status.Reason) bool { return r.Code != status.CodeJoinHostFalters })
}

func (v *view) startGates(pair Pair) []status.Reason {
	if pair.Out == pair.In {
		return []status.Reason{reason(CodeSameNode, pair.In, "%s cannot be swapped for itself", pair.In)}
	}
	out, in := v.o.Host(pair.Out), v.o.Host(pair.In)
	if rs := append(v.personsGates(pair.Out, out), v.personsGates(pair.In, in)...); len(rs) > 0 {
		return rs
	}
	rs := v.paused()
	if st := v.leaseState(); st == lease.Held && !v.leaseOurs() {
		rs = append(rs, reason(CodeLeaseHeld, "", "the Lease %s/%s is held by %s", fleet.LeaseNamespace, fleet.LeaseName, v.o.Lease.Holder))
	}
	if v.problem != nil {
		rs = append(rs, *v.problem)
	} else if v.rec != nil && (v.rec.Out != pair.Out || v.rec.In != pair.In) {
		rs = append(rs, reason(CodeOtherSwap, "", "the swap %s is under way", v.rec.ID))
	}
	rs = append(rs, v.beforeGates(out, in)...)
	return append(rs, append(v.blocked(in), v.blocked(out)...)...)
}

// personsGates: which hosts may vote, and which are never swapped, is a person's to
// say. It may be said in the hour for which jobs are waited for.
func (v *view) personsGates(name string, h *Host) []status.Reason {
	switch {
	case h == nil:
		return []status.Reason{reason(CodeUnknownNode, name, "there is no Node %s", name)}
	case h.Node.Labels[v.p.Keys.Eligible()] != fleet.True:
		return []status.Reason{reason(CodeIneligible, name, "%s is not eligible: its label %s is %q", name, v.p.Keys.Eligible(), h.Node.Labels[v.p.Keys.Eligible()])}
	case h.Node.Labels[v.p.Keys.Pinned()] == fleet.True:
		return []status.Reason{reason(CodePinned, name, "%s is pinned", name)}
	}
	return nil
}

// paused: a person wants nothing to begin (design §3). It is no gate of a swap
// that has begun: that one is ended (safety rule 25).
func (v *view) paused() []status.Reason {
	switch {
	case v.o.PauseProblem != "":
		return []status.Reason{reason(CodePaused, "", "the fleet is paused, by a document that cannot be read: %s", v.o.PauseProblem)}
	case v.o.Pause != nil:
		return []status.Reason{reason(CodePaused, "", "the fleet is %s", v.o.Pause.Words())}
	}
	return nil
}

// beforeGates are the gates while the voters are the target: at the start, and
// again after the waits, right before the first change on a host (safety rule 20).
func (v *view) beforeGates(out, in *Host) []status.Reason {
	var rs []status.Reason
	if v.p.Target < 3 || v.p.Target%2 == 0 {
		rs = append(rs, reason(CodeTarget, "", "the target of %d voters is not an odd number of three or more", v.p.Target))
	}
	rs = append(rs, append(v.personsGates(out.Name, out), v.personsGates(in.Name, in)...)...)
	for _, m := range v.o.Missing {
		rs = append(rs, reason(CodeMissing, "", "%s", m))
	}
	rs = append(rs, v.listGates(v.p.Target)...)
	if v.list.known {
		for _, m := range v.list.members {
			if node := nodeOf(v.o, m); node == in.Name {
				rs = append(rs, reason(CodeAlreadyAVoter, in.Name, "%s is a member already: %s", in.Name, memberWords(m)))
			}
		}
		if _, ok := v.memberOfNode(out.Name); !ok {
			rs = append(rs, reason(CodeNotAVoter, out.Name, "%s is not a voter: no member list names it", out.Name))
		}
	}
	rs = append(rs, v.claims()...)
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		if _, ok := v.memberOfNode(h.Name); ok && v.list.known {
			rs = append(rs, v.voterGates(h)...)
		}
	}
	rs = append(rs, v.outgoingGates(out)...)
	rs = append(rs, v.versionGates()...)
	rs = append(rs, v.standbyGates(in)...)
	if v.list.known {
		if ref, ok := quorum.May(v.quorumMembers(), quorum.Change{Kind: quorum.Add, Node: in.Name}); !ok {
			rs = append(rs, status.Reason{Code: ref.Code, Sentence: ref.Sentence})
		}
	}
	return rs
}

// afterGates are the gates with IN voting: everything but OUT's own health
// (R-E2-19, R-228-12, R-228-46). Holding them at target plus one costs nothing.
func (v *view) afterGates() []status.Reason {
	rs := v.listGates(len(v.rec.Voters) + 1)
	for _, name := range v.staying() {
		rs = append(rs, v.voterGates(v.o.Host(name))...)
	}
	rs = append(rs, v.newcomerGates()...)
	rs = append(rs, doomed(v.in)...)
	for _, m := range v.o.Missing {
		rs = append(rs, reason(CodeMissing, "", "%s", m))
	}
	return rs
}

// newcomerGates: IN counts as up only if its etcd has just answered (rule 2).
func (v *view) newcomerGates() []status.Reason {
	if !v.answersNow(v.in) {
		if _, ok := list(v.in); !ok {
			return []status.Reason{whyNoList(v.rec.In, v.in)}
		}
		return []status.Reason{reason(CodeSilent, v.rec.In, "the etcd of %s has not answered within %s", v.rec.In, v.p.JustNow)}
	}
	return lasts(v.in)
}

// lasts: the vote of a newcomer whose role file does not say server ends with the
// next restart of its host, and OUT's would be given up for it. A full disk does that:
// etcd runs on what it has, and nothing more can be written.
func lasts(in *Host) []status.Reason {
	if r := in.Report; r == nil || r.Role == fleet.RoleServer {
		return nil
	}
	why := ""
	if in.Report.Message != "" {
		why = "; it says: " + in.Report.Message
	}
	return []status.Reason{reason(CodeWrongRole, in.Name, "the role file of %s says %q, not server: a restart of the host would end its vote%s", in.Name, in.Report.Role, why)}
}

// listGates: the lists are there, agree, hold just voters, this many, an etcd
// leader and no alarm (safety rule 3).
func (v *view) listGates(want int) []status.Reason {
	rs := slices.Clone(v.list.problems)
	if !v.list.known {
		return rs
	}
	nodes := map[string]status.Member{}
	for _, m := range v.list.members {
		node := nodeOf(v.o, m)
		if other, twice := nodes[node]; twice && node != "" {
			rs = append(rs, reason(CodeUnknownMember, node, "the members %s and %s both belong to %s; one of them is nobody's", memberWords(other), memberWords(m), node))
		}
		nodes[node] = m
		switch {
		case !m.Started():
			rs = append(rs, reason(CodeUnstarted, "", "member %s was added and never started", memberWords(m)))
		case m.Learner:
			rs = append(rs, reason(CodeLearner, "", "member %s is a learner", memberWords(m)))
		case node == "":
			rs = append(rs, reason(CodeUnknownMember, "", "member %s belongs to no Node", memberWords(m)))
		}
	}
	if n := v.list.voters(); n != want {
		code := CodeVoterCount
		if n%2 == 0 && v.rec == nil {
			code = CodeEvenVoters
		}
		rs = append(rs, reason(code, "", "etcd has %s, %d are wanted", plural(n, "voter"), want))
	}
	if v.list.leader == 0 {
		rs = append(rs, reason(CodeNoLeader, "", "the voters do not agree on an etcd leader"))
	}
	return append(rs, v.alarms()...)
}

func (v *view) alarms() []status.Reason {
	var rs []status.Reason
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		if e, ok := list(h); ok && len(e.Alarms) > 0 {
			rs = append(rs, reason(CodeAlarm, h.Name, "etcd on %s reports %s", h.Name, strings.Join(e.Alarms, ", ")))
			break // alarms are the cluster's: every voter reports the same
		}
	}
	return rs
}

// voterGates: a voter that stays is Ready, full, fresh, and serves (R-I-03).
func (v *view) voterGates(h *Host) []status.Reason {
	if h == nil {
		return []status.Reason{reason(CodeNodeGone, "", "a voter has no Node")}
	}
	var rs []status.Reason
	if _, ok := list(h); !ok {
		rs = append(rs, whyNoList(h.Name, h))
	}
	if !h.Node.Ready {
		rs = append(rs, reason(CodeNotReady, h.Name, "%s is not Ready", h.Name))
	}
	rs = append(rs, doomed(h)...)
	if l := h.Node.Labels[v.p.Keys.Level()]; l != "" && l != string(fleet.LevelFull) {
		rs = append(rs, reason(CodeNotFull, h.Name, "%s is at level %s", h.Name, l))
	} else if h.Report != nil && h.Report.Level != "" && h.Report.Level != fleet.LevelFull {
		rs = append(rs, reason(CodeNotFull, h.Name, "%s reports level %s", h.Name, h.Report.Level))
	}
	if h.Report != nil {
		if h.Report.Leaving {
			rs = append(rs, reason(CodeLeaving, h.Name, "%s is on its way out", h.Name))
		}
		if h.Report.Role != fleet.RoleServer {
			rs = append(rs, reason(CodeWrongRole, h.Name, "%s votes and its role file says %q", h.Name, h.Report.Role))
		}
	}
	return rs
}

// claims names Nodes that claim a vote no list has (design "Who is a voter").
// A Node whose member k3s removed is no voter whatever it says (R-228-11).
func (v *view) claims() []status.Reason {
	if !v.list.known {
		return nil
	}
	var rs []status.Reason
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		if h.Node.EtcdIsVoter != "True" || h.Node.Annotations[fleet.AnnotationEtcdRemovedName] != "" {
			continue
		}
		if _, labelled := h.Node.Labels[fleet.LabelEtcd]; !labelled {
			continue // a frozen condition of a demoted Node
		}
		if _, ok := v.memberOfNode(h.Name); !ok {
			rs = append(rs, reason(CodeClaim, h.Name, "the Node %s claims a vote and no member list has it", h.Name))
		}
	}
	return rs
}

func (v *view) memberOfNode(node string) (status.Member, bool) {
	for _, m := range v.list.members {
		if nodeOf(v.o, m) == node {
			return m, true
		}
	}
	return status.Member{}, false
}

// versionGates: safety rule 9. Members of these etcd versions can crash when
// one is removed and added again.
func (v *view) versionGates() []status.Reason {
	var rs []status.Reason
	var first, k3s string // whose version the others are held against
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		e, ok := list(h)
		if !ok {
			continue
		}
		if !EtcdVersionSafe(e.Version) {
			rs = append(rs, reason(CodeEtcdVersion, h.Name, "%s runs etcd %s; swaps need 3.5.26 or later, or 3.6.4 or later", h.Name, orNone(e.Version)))
		}
		switch ver := h.Report.K3sVersion; {
		case ver == "":
			rs = append(rs, reason(CodeNoK3sVersion, h.Name, "%s does not say yet which k3s it runs", h.Name))
		case k3s == "":
			first, k3s = h.Name, ver
		case ver != k3s:
			rs = append(rs, reason(CodeK3sVersions, h.Name, "%s runs k3s %s and %s runs %s: an upgrade is under way", first, k3s, h.Name, ver))
		}
	}
	return rs
}

// EtcdVersionSafe reads major.minor.patch; a version that cannot be read is
// not safe.
func EtcdVersionSafe(s string) bool {
	var n [3]int
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) != 3 {
		return false
	}
	for i, part := range parts {
		digits := 0
		for digits < len(part) && part[digits] >= '0' && part[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits > 4 || (i < 2 && digits != len(part)) {
			return false
		}
		for _, c := range part[:digits] {
			n[i] = n[i]*10 + int(c-'0')
		}
	}
	at := func(major, minor, patch int) bool {
		return cmp.Or(cmp.Compare(n[0], major), cmp.Compare(n[1], minor), cmp.Compare(n[2], patch)) >= 0
	}
	return at(3, 6, 4) || (at(3, 5, 26) && !at(3, 6, 0))
}

// outgoingGates: what OUT's own host says of its way back as an agent (safety
// rule 15). Its refusal of the step-down would come after IN was promoted. That
// it is a voter, fresh and well is voterGates' to judge.
func (v *view) outgoingGates(out *Host) []status.Reason {
	if out.Report == nil || !out.Fresh || out.Report.Role != fleet.RoleServer || out.Report.Leaving {
		return nil
	}
	return readiness(out, out.Report.AsAgent, "an agent")
}

// readiness are the problems that a host itself has found on its way to a role.
func readiness(h *Host, p *status.Preflight, role string) []status.Reason {
	if p == nil {
		return []status.Reason{reason(CodeNotStaged, h.Name, "%s has not said whether it can be %s: its host daemon may be too old", h.Name, role)}
	}
	var rs []status.Reason
	for _, x := range p.Problems {
		rs = append(rs, reason(x.Code, h.Name, "%s: %s", h.Name, x.Sentence))
	}
	if !p.OK && len(rs) == 0 {
		rs = append(rs, reason(CodePreflight, h.Name, "%s says it is not ready to be %s", h.Name, role))
	}
	return rs
}

// standbyGates: what IN's own host says of its readiness (safety rule 17), its
// clock (rule 22) and its Node (rule 27).
func (v *view) standbyGates(in *Host) []status.Reason {
	var rs []status.Reason
	if in.Node.Deleting {
		rs = append(rs, reason(CodeDeleting, in.Name, "the Node %s is being deleted", in.Name))
	}
	if !in.Node.Ready {
		rs = append(rs, reason(CodeNotReady, in.Name, "%s is not Ready", in.Name))
	}
	if in.Node.Unschedulable && !v.cordonMarked(in) {
		rs = append(rs, reason(CodeOperatorCordon, in.Name, "%s was cordoned by somebody else", in.Name))
	}
	switch {
	case in.ReportProblem != "":
		return append(rs, badReport(in))
	case in.Report == nil:
		return append(rs, reason(CodeNoHostDaemon, in.Name, "%s has no host daemon: it never reported", in.Name))
	case !in.Fresh:
		return append(rs, reason(CodeSilent, in.Name, "the host daemon of %s is silent", in.Name))
	}
	r := in.Report
	if r.Role != fleet.RoleAgent {
		rs = append(rs, reason(CodeWrongRole, in.Name, "the role file of %s says %q, not agent", in.Name, r.Role))
	}
	if s := Skewed(in, v.o.Now, v.p.MaxSkew); s != "" {
		rs = append(rs, reason(CodeSkew, in.Name, "%s; at most %s are allowed", s, v.p.MaxSkew))
	}
	rs = append(rs, readiness(in, r.Preflight, "a server")...)
	return append(rs, v.reachGates(in)...)
}

// Skewed says how far a host's clock is off the API server's when that is more than
// most: as the host itself measured it, or by a report that is from the future. Empty
// when it is not; a report may be old by now, which says nothing of its clock.
func Skewed(h *Host, now time.Time, most time.Duration) string {
	r := h.Report
	if r == nil {
		return ""
	}
	// As a Duration a number from nowhere would wrap round to a small one.
	if ms := most.Milliseconds(); r.SkewMS > ms || r.SkewMS < -ms {
		return fmt.Sprintf("the clock of %s is %s off the API server's", h.Name, milliseconds(r.SkewMS))
	}
	if ahead := r.At.Sub(now); ahead > most {
		return fmt.Sprintf("the report of %s is of %s, by the API server's clock it is %s", h.Name, r.At.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return ""
}

// milliseconds are written like a Duration where they fit into one.
func milliseconds(n int64) string {
	if d := time.Duration(n) * time.Millisecond; d/time.Millisecond == time.Duration(n) {
		return d.String()
	}
	return fmt.Sprintf("%d ms", n)
}

// reachGates: every voter has dialled the standby's peer port (safety rule 17).
func (v *view) reachGates(in *Host) []status.Reason {
	var rs []status.Reason
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		if _, ok := list(h); !ok {
			continue
		}
		j := slices.IndexFunc(h.Report.Standbys, func(d status.Dial) bool { return d.Node == in.Name })
		switch {
		case j < 0:
			rs = append(rs, reason(CodeUnreachable, in.Name, "%s has not tried the peer port of %s yet", h.Name, in.Name))
		case !h.Report.Standbys[j].OK:
			rs = append(rs, reason(CodeUnreachable, in.Name, "%s does not reach the peer port of %s: %s", h.Name, in.Name, orNone(h.Report.Standbys[j].Error)))
		}
	}
	return rs
}

// leftover is IN or OUT with a remove annotation that is not this swap's
// doing; nil when there is none (safety rule 5).
func (v *view) leftover() *Host {
	for _, h := range []*Host{v.in, v.out} {
		if _, ok := h.Node.Annotations[fleet.AnnotationEtcdRemove]; ok {
			return h
		}
	}
	return nil
}
