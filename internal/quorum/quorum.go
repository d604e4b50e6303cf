// Package quorum is etcd's arithmetic: how many voters must be up, how many may
// fail, and what a change of membership would leave behind in the worst case
// (safety rule 2; etcd's runtime reconfiguration guide).
package quorum

import (
	"fmt"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
)

// Need is the number of voters that make a quorum of n: floor(n/2)+1.
func Need(n int) int { return n/2 + 1 }

// Tolerance is how many of n voters may fail with the quorum kept. Learners
// never count. It is 0 for n of 0, 1 and 2.
func Tolerance(n int) int {
	if n <= 0 {
		return 0
	}
	return n - Need(n)
}

// Member is one entry of the member list with what we know of its health.
type Member struct {
	ID      fleet.MemberID
	Node    string // node name when known, for sentences
	Learner bool
	Up      bool // answers now; silent counts as down (safety rule 24)
}

// Change is a change of membership, or a restart, that somebody wants to make.
type Change struct {
	Kind Kind
	ID   fleet.MemberID // the member removed, promoted or restarted
	Node string         // the node of a member that is added
}

// Kind of a change.
type Kind string

// Kinds. Add is a new learner that will be promoted: it is judged as a voter
// that is down, the worst it can become.
const (
	Add     Kind = "add"
	Remove  Kind = "remove"
	Restart Kind = "restart"
)

// Projection is the membership a change would leave behind.
type Projection struct {
	Voters int
	Up     int
	Need   int
}

// Safe says whether the projected voters that are up make a quorum.
func (p Projection) Safe() bool { return p.Voters > 0 && p.Up >= p.Need }

func (p Projection) String() string {
	return fmt.Sprintf("%d of %d voters up, %d needed", p.Up, p.Voters, p.Need)
}

// Now is the membership as it is.
func Now(members []Member) Projection {
	var p Projection
	for _, m := range members {
		if m.Learner {
			continue
		}
		p.Voters++
		if m.Up {
			p.Up++
		}
	}
	p.Need = Need(p.Voters)
	return p
}

// Project is the membership a change would leave behind, in the worst case.
func Project(members []Member, c Change) Projection {
	after := slices.Clone(members)
	switch c.Kind {
	case Add:
		after = append(after, Member{Node: c.Node, Up: false})
	case Remove:
		after = slices.DeleteFunc(after, func(m Member) bool { return m.ID == c.ID })
	case Restart:
		for i := range after {
			if after[i].ID == c.ID {
				after[i].Up = false
			}
		}
	}
	return Now(after)
}

// Refusal says why a change may not be made.
type Refusal struct {
	Code     string
	Sentence string
}

// Codes of a refusal.
const (
	CodeNoQuorumAfter = "QuorumAtRisk"
	CodeTwoVoters     = "TwoVoters"
	CodeNoQuorumNow   = "NoQuorum"
)

// May judges a change by safety rule 2: it must leave a quorum up in the worst
// case, and nothing is removed at two voters. Removing a learner is no change
// to the quorum and is always allowed while there is one now. The second
// result is false when the change is refused.
func May(members []Member, c Change) (Refusal, bool) {
	now := Now(members)
	if !now.Safe() {
		return Refusal{CodeNoQuorumNow, fmt.Sprintf("etcd has no quorum: %s", now)}, false
	}
	if c.Kind == Remove {
		i := slices.IndexFunc(members, func(m Member) bool { return m.ID == c.ID })
		if i < 0 {
			return Refusal{}, true
		}
		if members[i].Learner {
			return Refusal{}, true
		}
		if now.Voters <= 2 {
			return Refusal{CodeTwoVoters, "a voter is never removed while there are only two"}, false
		}
	}
	if after := Project(members, c); !after.Safe() {
		return Refusal{CodeNoQuorumAfter, fmt.Sprintf("the change would leave %s", after)}, false
	}
	return Refusal{}, true
}
