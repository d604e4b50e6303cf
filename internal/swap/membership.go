package swap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// membership is the member list that the judged voters' fresh reports agree
// on (design "Who is a voter"). When known is false nothing may be concluded
// from it, neither health nor death (safety rule 24).
type membership struct {
	known    bool
	members  []status.Member // sorted by id
	cluster  fleet.MemberID
	leader   fleet.MemberID
	problems []status.Reason
}

// list returns a host's own member list when it may be believed: the report is
// fresh and its etcd answered a linearizable read, which a removed or isolated
// member cannot.
func list(h *Host) (*status.EtcdView, bool) {
	if h == nil || !h.Fresh || h.Report == nil || h.Report.Etcd == nil || !h.Report.Etcd.Linearizable {
		return nil, false
	}
	return h.Report.Etcd, len(h.Report.Etcd.Members) > 0
}

// readLists merges the lists of the named hosts; all must be there and agree.
func readLists(o *Observation, judged []string) membership {
	var m membership
	first := ""
	for _, name := range judged {
		h := o.Host(name)
		e, ok := list(h)
		if !ok {
			m.problems = append(m.problems, whyNoList(name, h))
			continue
		}
		members := slices.Clone(e.Members)
		slices.SortFunc(members, func(a, b status.Member) int { return cmp.Compare(a.ID, b.ID) })
		if first == "" {
			first, m.members, m.cluster, m.leader = name, members, e.ClusterID, e.Leader
			continue
		}
		if e.ClusterID != m.cluster {
			m.problems = append(m.problems, reason(CodeClusterID, name,
				"%s is in etcd cluster %s and %s in %s", first, m.cluster, name, e.ClusterID))
		} else if !sameMembers(m.members, members) {
			m.problems = append(m.problems, reason(CodeListsDisagree, name,
				"%s lists %s and %s lists %s", first, describe(m.members), name, describe(members)))
		}
		if e.Leader != m.leader {
			// A hand-over is seen by one voter before the other.
			m.leader = 0
		}
	}
	if len(judged) == 0 {
		m.problems = append(m.problems, reason(CodeNoLists, "", "no voter's host daemon reports a member list"))
	}
	m.known = len(m.problems) == 0
	return m
}

func whyNoList(name string, h *Host) status.Reason {
	switch {
	case h == nil:
		return reason(CodeNodeGone, name, "%s is a voter and has no Node", name)
	case h.ReportProblem != "":
		return badReport(h)
	case h.Report == nil:
		return reason(CodeNoHostDaemon, name, "%s has no host daemon: it never reported", name)
	case !h.Fresh:
		return reason(CodeSilent, name, "the host daemon of %s is silent", name)
	case h.Report.Etcd == nil:
		return reason(CodeEtcdDown, name, "%s reports no etcd", name)
	case !h.Report.Etcd.Linearizable:
		return reason(CodeEtcdDown, name, "etcd on %s does not answer a linearizable read: %s", name, orNone(h.Report.Etcd.Error))
	}
	return reason(CodeNoLists, name, "%s reports an empty member list", name)
}

// badReport: there is a report, and nothing can be taken from it.
func badReport(h *Host) status.Reason {
	return reason(CodeBadReport, h.Name, "the report of %s cannot be used: %s", h.Name, h.ReportProblem)
}

func sameMembers(a, b []status.Member) bool {
	return slices.EqualFunc(a, b, func(x, y status.Member) bool {
		return x.ID == y.ID && x.Name == y.Name && x.Learner == y.Learner && slices.Equal(x.PeerURLs, y.PeerURLs)
	})
}

func describe(ms []status.Member) string {
	parts := make([]string, len(ms))
	for i, m := range ms {
		parts[i] = memberWords(m)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func memberWords(m status.Member) string {
	name := m.Name
	if name == "" {
		name = "unstarted " + strings.Join(m.PeerURLs, ",")
	}
	if m.Learner {
		name += " (learner)"
	}
	return fmt.Sprintf("%s=%s", m.ID, name)
}

func (m *membership) byID(id fleet.MemberID) (status.Member, bool) {
	for _, x := range m.members {
		if x.ID == id && id != 0 {
			return x, true
		}
	}
	return status.Member{}, false
}

func (m *membership) voters() int {
	n := 0
	for _, x := range m.members {
		if !x.Learner {
			n++
		}
	}
	return n
}

// nodeOf is the Node a member belongs to, empty when nobody knows it. A host's
// own word comes first, then the name k3s gave the member, then its address,
// which is all an unstarted member has.
func nodeOf(o *Observation, m status.Member) string {
	for i := range o.Hosts {
		if r := o.Hosts[i].Report; r != nil && r.MemberID == m.ID && m.ID != 0 && r.Role == fleet.RoleServer {
			return o.Hosts[i].Name
		}
	}
	if node, ok := fleet.MemberNodeName(m.Name); ok && o.Host(node) != nil {
		return node
	}
	if m.Name == "" {
		for i := range o.Hosts {
			if ip := o.Hosts[i].Node.InternalIP; ip != "" && ip == peerHost(m) {
				return o.Hosts[i].Name
			}
		}
	}
	return ""
}

// peerHost is the host of a member's first peer URL, which k3s compares with
// the Node's node-address annotation (k3s-facts §5.1).
func peerHost(m status.Member) string {
	if len(m.PeerURLs) == 0 {
		return ""
	}
	_, rest, ok := strings.Cut(m.PeerURLs[0], "://")
	if !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "/")
	if i := strings.LastIndexByte(rest, ':'); i > 0 {
		rest = rest[:i]
	}
	return strings.Trim(rest, "[]")
}

func reason(code, node, format string, args ...any) status.Reason {
	return status.Reason{Code: code, Node: node, Sentence: fmt.Sprintf(format, args...)}
}

func orNone(s string) string {
	if s == "" {
		return "no reason given"
	}
	return s
}
