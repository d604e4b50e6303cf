package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// ProbeGates are what the voters' own etcds, as their probes last read them, say
// against any swap (R-185-04, R-185-50): no leader, a learner, other members than
// another voter knows, or another number than vote. A probe that is silent says
// nothing here: its voter is unknown, which holds a swap as well (R-185-20). The
// gates of the swap itself ask the host daemons again.
func ProbeGates(hosts []fitness.Host, period time.Duration) []status.Reason {
	var voters []fitness.Host
	for _, h := range hosts {
		if h.Votes {
			voters = append(voters, h)
		}
	}
	slices.SortFunc(voters, func(a, b fitness.Host) int { return cmp.Compare(a.Node, b.Node) })
	var rs []status.Reason
	var first string
	var members []fleet.MemberID
	for _, h := range voters {
		say := func(code, format string, args ...any) {
			rs = append(rs, status.Reason{Code: code, Node: h.Node, Sentence: fmt.Sprintf(format, args...)})
		}
		if !h.Seen || h.Age > fitness.SilentPeriods*period || h.Window == nil || h.Window.Last() == nil || h.Window.Last().Etcd == nil {
			continue
		}
		e := h.Window.Last().Etcd
		if !e.HasLeader {
			say(swap.CodeNoLeader, "the etcd of %s has no leader", h.Node)
		}
		if e.IsLearner {
			say(swap.CodeLearner, "the etcd of %s is a learner", h.Node)
		}
		// Etcd 3.5 does not say how many members it knows: zero.
		if n := e.KnownMembers; n > 0 && n != len(voters) {
			say(swap.CodeVoterCount, "the etcd of %s knows %d members, %d vote", h.Node, n, len(voters))
		}
		switch known := h.Window.Members; {
		case known == nil:
		case first == "":
			first, members = h.Node, known
		case !slices.Equal(known, members):
			say(swap.CodeListsDisagree, "%s knows the members %v and %s knows %v", first, members, h.Node, known)
		}
	}
	return rs
}
