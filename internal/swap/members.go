package swap

import (
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Members are the members of etcd by the name of their Node, false when fresh
// lists do not agree on them: nothing may be concluded then.
func Members(o Observation, p Policy) (map[string]status.Member, bool) {
	v := newView(&o, p)
	if !v.list.known {
		return nil, false
	}
	by := map[string]status.Member{}
	for _, m := range v.list.members {
		if node := nodeOf(&o, m); node != "" {
			by[node] = m
		}
	}
	return by, true
}

// NoLists says why Members does not know, one reason for each list that is
// missing or differs; none when it does.
func NoLists(o Observation, p Policy) []status.Reason {
	v := newView(&o, p)
	if v.list.known {
		return nil
	}
	return slices.Clone(v.list.problems)
}

// OnRecord is the swap under way, empty when there is none. One whose marks
// cannot be understood counts as one of no name that can be given.
func OnRecord(o Observation, p Policy) fleet.SwapID {
	v := newView(&o, p)
	switch {
	case v.rec != nil:
		return v.rec.ID
	case v.problem != nil:
		return fleet.SwapID("unreadable")
	}
	return ""
}
