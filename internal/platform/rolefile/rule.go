package rolefile

import (
	"fmt"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
)

// Files is what the rule looks at, as it was read in one go.
type Files struct {
	// Role is the role file, empty when there is none. RoleProblem says what is
	// wrong with one that cannot be read: then nothing may start by it.
	Role        fleet.Role `json:"role,omitempty"`
	RoleProblem string     `json:"role_problem,omitempty"`

	// Leaving is the swap in which this server steps down, empty when none.
	Leaving fleet.SwapID `json:"leaving,omitempty"`
	// Joining is the promotion confirmed by the daemon, zero when none. Without a boot
	// id it was confirmed in an earlier boot, and nobody has ended it since.
	Joining Joining `json:"joining,omitzero"`
	// JoiningProblem says why it cannot be told whether a join was confirmed or
	// allowed. No join is then, and no agent may start beside one; a member starts on
	// its datastore all the same where the role file says server, or is not there. Where
	// it says agent neither role starts: the datastore may be a voter's, or be left from
	// before.
	JoiningProblem string `json:"joining_problem,omitempty"`
	// ForeignJoin: that is since the file which outlives a reboot can be read and holds no
	// swap. It is nobody's, and is taken away wherever a join would be.
	ForeignJoin bool `json:"foreign_join,omitempty"`
	// AllowJoin is the operator's override of this boot.
	AllowJoin bool `json:"allow_join,omitempty"`

	Identity Identity `json:"identity,omitzero"`
	// IdentityProblem says what is wrong with a cluster-id or member-id file that
	// cannot be read. A member starts on its datastore all the same; without one
	// nothing may be founded or joined on a guess.
	IdentityProblem string `json:"identity_problem,omitempty"`

	// WAL: server/db/etcd/member/wal exists, which alone makes a datastore
	// (k3s-facts §2, safety rule 19).
	WAL bool `json:"wal,omitempty"`
	// Tombstone: server/db/etcd/tombstone exists.
	Tombstone bool `json:"tombstone,omitempty"`
	// Demoted: a datastore was moved aside here. It lies with the data, so it is
	// there when the role folder with everything else is lost.
	Demoted bool `json:"demoted,omitempty"`

	// JoinURL and Token: the server configuration names a server to join, and
	// a token. An empty token with a URL starts a new cluster (k3s-facts §3.2).
	JoinURL string `json:"join_url,omitempty"`
	Token   bool   `json:"token,omitempty"`

	// BootID is this boot's, by which a Joining of another one is told.
	BootID string `json:"boot_id,omitempty"`
}

// Joining says that the daemon has seen the Lease held for a promotion of this
// host since the boot that it names (safety rule 18). A host may only join in that
// boot; with a datastore it is, or is about to be, a member, and may start in any.
type Joining struct {
	Swap   fleet.SwapID `json:"swap"`
	BootID string       `json:"boot_id"`
}

// Identity is who this host is, or was, in etcd. The cluster id stays for good
// (a former member never bootstraps); the member id goes with the datastore.
type Identity struct {
	ClusterID fleet.MemberID `json:"cluster_id,omitzero"`
	MemberID  fleet.MemberID `json:"member_id,omitzero"`
	// Voters are client URLs of the other voters, to ask when the own etcd is down.
	Voters []string `json:"voters,omitempty"`
	// Password is the fingerprint of the node password of this member's host, as it
	// was when it became one; empty when nobody has seen it. It goes with the member id.
	Password string `json:"password,omitempty"`
}

// Equal compares two identities, the order of the voters included.
func (id Identity) Equal(o Identity) bool {
	return id.ClusterID == o.ClusterID && id.MemberID == o.MemberID && id.Password == o.Password && slices.Equal(id.Voters, o.Voters)
}

// Former says that this host is, or was, a member of a cluster, whatever its role
// file says: regrade wrote down which one, or what it wrote cannot be read, or its
// datastore was moved aside.
func (f Files) Former() bool {
	return f.Identity.ClusterID != 0 || f.IdentityProblem != "" || f.Demoted
}

// JoiningNow says whether the promotion was confirmed in this boot.
func (f Files) JoiningNow() bool {
	return f.Joining.Swap != "" && f.BootID != "" && f.Joining.BootID == f.BootID
}

// Answer is what the rule says of one role, and why.
type Answer struct {
	May bool
	Why string
}

// MayStart answers for a role. Nothing is left to chance: of the two roles at
// most one may start, whatever the files say (TestNeverBothRoles).
func MayStart(f Files, role fleet.Role) Answer {
	switch role {
	case fleet.RoleServer:
		return mayServer(f)
	case fleet.RoleAgent:
		return mayAgent(f)
	}
	return Answer{false, fmt.Sprintf("%q is not a role", role)}
}

func mayServer(f Files) Answer {
	switch {
	case f.Tombstone:
		// k3s would set the datastore aside and join as a new member within a
		// minute (safety rules 12 and 13).
		return no("the datastore holds a tombstone: this host was removed from etcd")
	case f.WAL:
		return mayMember(f)
	}
	return mayJoin(f)
}

// mayMember is for a host with a datastore: it may be the vote that makes a
// quorum, so it starts without asking anybody.
func mayMember(f Files) Answer {
	switch {
	case f.Leaving != "":
		return yes("it is leaving in swap %s and keeps its vote until it is removed", f.Leaving)
	case f.Role == fleet.RoleServer:
		return yes("the role file says server and there is a datastore")
	case f.Joining.Swap != "":
		// k3s makes the datastore, and the cluster a voter of it, before the daemon has
		// written the role file: a reboot in between must not cost that vote.
		return yes("it joins in swap %s", f.Joining.Swap)
	case f.AllowJoin:
		return yes("the operator allowed it with allow-join")
	case f.RoleProblem != "":
		return no("%s", f.RoleProblem)
	case f.Role == "":
		return yes("no role file: as it was before regrade")
	}
	return no("the role file says %s", f.Role)
}

// mayJoin is for a host without a datastore: it would join, or found a cluster.
func mayJoin(f Files) Answer {
	joins := f.JoinURL != "" && f.Token
	switch {
	case f.IdentityProblem != "":
		return no("%s: whether it was a member cannot be told", f.IdentityProblem)
	case f.JoiningNow() || f.AllowJoin:
		if !joins {
			return no("it shall join, but its server configuration lacks a server URL or a token")
		}
		if f.JoiningNow() {
			return yes("it joins in swap %s", f.Joining.Swap)
		}
		return yes("the operator allowed it with allow-join")
	case f.Joining.BootID != "", f.Joining.Swap != "" && f.Role == "":
		// Without a role file it would join, or found a cluster, as before regrade.
		return no("the join of swap %s was confirmed before this boot", f.Joining.Swap)
	case f.JoiningProblem != "" && f.Role == "":
		// A join may have been begun: what is not known is worth no more than what is.
		return no("%s: whether a join was begun cannot be told, and there is no role file", f.JoiningProblem)
	case f.Leaving != "":
		return no("it is leaving in swap %s and has no datastore", f.Leaving)
	case f.RoleProblem != "":
		return no("%s", f.RoleProblem)
	case f.Role == fleet.RoleAgent:
		return no("the role file says agent")
	case f.Identity.ClusterID != 0:
		// The role file may be lost: a host with a cluster id is no new one.
		return no("it was a member of cluster %s and has no datastore: it joins again only by a swap or allow-join", f.Identity.ClusterID)
	case f.Demoted && f.Role == "":
		// The role folder is lost and the data is not. What a demotion left behind
		// must not join by itself, beside an agent that may well run (safety rule 13).
		return no("its datastore was moved aside by a demotion and its role file is lost: it joins again only by a swap or allow-join")
	case f.Demoted && !joins:
		// A role file that says server is a person's word for a join (R-A-21), never
		// for a second cluster (safety rule 19).
		return no("its datastore was moved aside: it only joins, and its server configuration lacks a server URL or a token")
	case f.Demoted:
		return yes("the role file says server, and it joins anew")
	case f.Role == fleet.RoleServer:
		return yes("a first installation")
	}
	return yes("no role file: as it was before regrade")
}

func mayAgent(f Files) Answer {
	switch {
	case f.Leaving != "":
		return no("it is leaving in swap %s and still has a vote", f.Leaving)
	case f.JoiningNow():
		return no("it joins as a server in swap %s", f.Joining.Swap)
	case f.JoiningProblem != "":
		return no("%s: whether it joins as a server cannot be told", f.JoiningProblem)
	case f.RoleProblem != "":
		return no("%s", f.RoleProblem)
	case f.Role == fleet.RoleAgent:
		if server := mayServer(f); server.May {
			return no("the server may start: %s", server.Why)
		}
		return yes("the role file says agent")
	case f.Role == "" && (f.Former() || f.AllowJoin || f.Joining.Swap != "") && mayServer(f).May:
		// Both units are enabled by now: a lost role file must not start both. An
		// identity that cannot be read was written by regrade all the same, and so was a
		// join that an earlier boot began.
		return no("no role file, and the server may start: %s", mayServer(f).Why)
	case f.Role == "":
		return yes("no role file: as it was before regrade")
	}
	return no("the role file says %s", f.Role)
}

func yes(format string, args ...any) Answer { return Answer{true, fmt.Sprintf(format, args...)} }
func no(format string, args ...any) Answer  { return Answer{false, fmt.Sprintf(format, args...)} }
