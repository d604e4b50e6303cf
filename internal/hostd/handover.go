package hostd

import (
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// A hand-over of etcd's leadership to a member that does not take it stops every
// write for an election timeout: etcd drops what is proposed to a leader that is
// handing over. So it goes to a voter that answered just now and follows this
// leader, and one that came to nothing is not repeated at once.

// HandOverAgain is how long a member that is stepped down, and leads still, waits
// before it asks once more: six of k3s's election timeouts.
const HandOverAgain = 30 * time.Second

// leads says whether the own member is etcd's leader.
func (f Facts) leads() bool {
	return f.Etcd.Answers && f.Etcd.ID != 0 && f.Etcd.View.Leader == f.Etcd.ID
}

// handOverDue says whether leadership may have to be handed over for the swap.
func (f Facts) handOverDue() bool {
	return f.Etcd.Voter() && f.leads() && f.order().leadTo != ""
}

// named is the voter of the node that role-lead-to names.
func named(f Facts, o order) (status.Member, Problem) {
	for _, m := range f.Etcd.View.Members {
		if node, ok := fleet.MemberNodeName(m.Name); ok && node == o.leadTo && !m.Learner && m.ID != f.Etcd.ID {
			return m, Problem{}
		}
	}
	return status.Member{}, problem(CodeNoLeadTarget, "etcd is led from here and role-lead-to names %q, which is no other voter", o.leadTo)
}

// leadTarget is who can take leadership now: the voter that is named, or, where it
// does not answer, another that stays; never the newcomer.
func leadTarget(f Facts, o order) (fleet.MemberID, Problem) {
	first, p := named(f, o)
	if p.is() {
		return 0, p
	}
	for _, m := range append([]status.Member{first}, f.otherVoters()...) {
		node, ok := fleet.MemberNodeName(m.Name)
		if ok && slices.Contains(f.Others, m.ID) && (o.record == nil || node != o.record.In) {
			return m.ID, Problem{}
		}
	}
	return 0, problem(CodeNoLeadTarget, "etcd is led from here and no voter that stays answers, so that none can take it over")
}

func handOver(f Facts, o order) Decision {
	to, p := leadTarget(f, o)
	if p.is() {
		return hold(p.Code, "%s", p.Sentence)
	}
	late := f.View != nil && f.View.Date.Sub(f.Journal.Asked) > f.Policy.HandOver
	if f.Journal.Asked.IsZero() || late && f.HandOverAt.IsZero() {
		// The first time, or once more: leadership had gone, and whoever took it fell
		// before this server was restarted.
		if f.View == nil {
			return hold(CodeNoAPI, "no API server answers: %s", f.ViewProblem)
		}
		j := f.Journal
		j.Asked = f.View.Date
		return note(j)
	}
	if late {
		return failed(f, CodeHandOverFailed, "etcd's leadership did not arrive at %s within %s", to, f.Policy.HandOver)
	}
	return effect(Effect{Kind: MoveLeader, Member: to})
}

// lead hands leadership over at the beginning of a swap that will take the own
// vote: the swap's writes go through the leader, and the host that goes out is
// often the slow one. It is tried once for a swap, and with nobody but the voter
// that is named; the step-down sees to what is left (safety rule 8).
func lead(f Facts, o order) Decision {
	if o.leadTo == "" || o.out() != f.Node || f.HandedOver == o.swap || f.Command != nil || !f.Etcd.Voter() || !f.leads() {
		return Decision{}
	}
	if _, ok := f.held(o); !ok {
		return Decision{}
	}
	if m, p := named(f, o); !p.is() && slices.Contains(f.Others, m.ID) {
		return effect(Effect{Kind: MoveLeader, Member: m.ID})
	}
	return Decision{}
}

// follow hands leadership over once more when it has come back to a member that
// is stepped down: another voter fell meanwhile, perhaps the very one that is
// named, and this one was elected. Its removal waits for that, and nobody else
// would see to it (safety rule 8).
func follow(f Facts, o order) Decision {
	if !f.Etcd.Voter() || !f.leads() {
		return Decision{}
	}
	if p, ok := f.held(o); !ok {
		return hold(p.Code, "%s", p.Sentence)
	}
	to, p := leadTarget(f, o)
	if p.is() {
		return hold(p.Code, "%s", p.Sentence)
	}
	if at := f.HandOverAt; !at.IsZero() && f.Now.Sub(at) < HandOverAgain {
		return hold(CodeHandingOver, "etcd's leadership was to go from here and did not; asked again %s after that", HandOverAgain)
	}
	return effect(Effect{Kind: MoveLeader, Member: to})
}
