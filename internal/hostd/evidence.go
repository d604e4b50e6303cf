package hostd

import (
	"net/url"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// removed says whether there is evidence that this host's member is gone
// (safety rule 12; rule 5 overrides R-D1-20 and R-216-21: a missing label or
// removed-node-name proves nothing). The sentence names the evidence.
func removed(f Facts) (string, bool) {
	files := f.Host.Files
	if files.Tombstone {
		return "the datastore holds a tombstone", true
	}
	if f.Etcd.Voter() {
		// Whatever is claimed, it votes: a contradiction is never acted on.
		return "", false
	}
	if id, ok := f.memberGone(); ok {
		return "the controller says that the member is gone, under the Lease of swap " + string(id), true
	}
	a := f.Answer
	if a != nil && files.WAL && files.Identity.MemberID == 0 && f.joins() && f.unlisted(a) {
		return "this host's member, added before it had a datastore, is not in the list that " + a.URL + " gives", true
	}
	if a == nil || files.Identity.ClusterID == 0 || files.Identity.MemberID == 0 || a.ClusterID != files.Identity.ClusterID {
		return "", false
	}
	if slices.ContainsFunc(a.Members, func(m status.Member) bool { return m.ID == files.Identity.MemberID }) {
		return "", false
	}
	return "the member " + files.Identity.MemberID.String() + " is not in the list that " + a.URL + " gives", true
}

// memberGone reads role-member-gone: it counts under a live Lease of the swap
// that the Node takes part in (R-228-39, R-228-40).
func (f Facts) memberGone() (fleet.SwapID, bool) {
	if f.View == nil || f.View.Self == nil {
		return "", false
	}
	k, ann := f.Policy.Keys, f.View.Self.Annotations
	id := fleet.SwapID(ann[k.MemberGone()])
	return id, id != "" && ann[k.Swap()] == string(id) && f.View.Lease.HeldFor(id, f.View.Date)
}

// joins says whether the journal is of a promotion, or of its rollback: a host
// with a datastore was added to etcd then, though its etcd may never have told
// it its id.
func (f Facts) joins() bool {
	return f.Journal.Step == fleet.StepPromote || f.Journal.Step == fleet.StepRollback
}

// unlisted says whether a list of the cluster that this host joins has no member
// that could be its own: none of its name, none at its address, none unnamed.
func (f Facts) unlisted(a *hostapi.Answer) bool {
	cluster := f.Host.Files.Identity.ClusterID
	if cluster == 0 {
		cluster = f.Journal.ClusterID
	}
	if cluster == 0 || a.ClusterID != cluster || len(f.addresses()) == 0 {
		return false
	}
	for _, m := range a.Members {
		if node, ok := fleet.MemberNodeName(m.Name); !ok || node == f.Node || f.here(m) {
			return false
		}
	}
	return true
}

// here says whether a peer URL of a member has this host's address, or is none.
func (f Facts) here(m status.Member) bool {
	own := f.addresses()
	return slices.ContainsFunc(m.PeerURLs, func(p string) bool {
		u, err := url.Parse(p)
		return err != nil || slices.Contains(own, u.Hostname())
	})
}

// neverListed says whether no member of this host can be in any list, in a
// rollback of a promotion whose server is gone: it never had what a join needs,
// or a list of the same cluster has neither its name nor its address. An added
// member that never started has no name, only the address (safety rule 6).
func neverListed(f Facts) bool {
	files := f.Host.Files
	if files.WAL {
		return false
	}
	if !f.Host.EtcdCerts {
		return true
	}
	return f.Answer != nil && f.unlisted(f.Answer)
}

// addresses are this host's, as far as they are known.
func (f Facts) addresses() []string {
	var out []string
	if f.View != nil && f.View.Self != nil && f.View.Self.InternalIP != "" {
		out = append(out, f.View.Self.InternalIP)
	}
	if u, err := url.Parse(f.Policy.JoinURLs[f.Node]); err == nil && u.Hostname() != "" {
		out = append(out, u.Hostname())
	}
	return out
}

// otherVoters are the client URLs of the voters beside this member, sorted.
func otherVoters(m hostapi.Member) []string {
	var out []string
	for _, o := range m.View.Members {
		if o.ID != m.ID && !o.Learner {
			out = append(out, o.ClientURLs...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
