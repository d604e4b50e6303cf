package hostd

import (
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// demoteLocal is the host half of an installer's demotion (R-D1-29, R-K-05,
// R-K-06): with the Lease free and three other Ready voters it marks the host as
// leaving and writes role agent. The member is then removed by whoever may patch
// the Node; finish does the rest on evidence.
func demoteLocal(f Facts, o order) Decision {
	c := f.Command
	if c == nil || !c.Local || c.Step != fleet.StepFinishDemote {
		return Decision{}
	}
	h := f.Host
	switch {
	case f.Journal.Step == fleet.StepFinishDemote && f.Journal.Phase == fleet.PhaseRunning:
		return Decision{} // finish is at it
	case h.Files.Leaving == c.Swap && h.Files.Role == fleet.RoleAgent:
		return hold(CodeMemberListed, "this host is leaving: remove its member now with the annotation %s=true on its Node", fleet.AnnotationEtcdRemove)
	case h.Files.Leaving == c.Swap:
		return writeRole(fleet.RoleAgent)
	}
	if p, ok := MayDemote(f); !ok {
		return hold(p.Code, "%s", p.Sentence)
	}
	return effect(Effect{Kind: Leave, Swap: c.Swap})
}

// MayDemote says whether an installer may demote this host (R-K-05).
func MayDemote(f Facts) (Problem, bool) {
	h := f.Host
	if p, ok := f.held(order{local: true}); !ok {
		return p, false
	}
	switch {
	case h.Files.Role != fleet.RoleServer || !h.Files.WAL || h.Files.Leaving != "":
		return problem(CodeNotServer, "the role file says %q, a datastore is there: %t, leaving is %q: this host is no member that could be demoted", h.Files.Role, h.Files.WAL, h.Files.Leaving), false
	case len(backProblems(f)) > 0:
		return folded(backProblems(f)), false
	case !f.Etcd.Voter():
		return problem(CodeEtcdDown, "%s", etcdStage(f)), false
	}
	ready := 0
	for _, m := range f.Etcd.View.Members {
		if m.ID != f.Etcd.ID && !m.Learner && readyNode(f.Nodes, m) {
			ready++
		}
	}
	if ready < 3 {
		return problem(CodeTooFewVoters, "%d other voters are Ready, 3 are wanted", ready), false
	}
	return Problem{}, true
}

func readyNode(nodes []hostapi.Node, m status.Member) bool {
	name, ok := fleet.MemberNodeName(m.Name)
	return ok && slices.ContainsFunc(nodes, func(n hostapi.Node) bool { return n.Name == name && n.Ready })
}

// Rest says whether nothing of a server is left to finish: the host is an agent.
func Rest(f Facts) bool {
	h := f.Host
	return h.Files.Role == fleet.RoleAgent && h.Files.Leaving == "" && !h.Datastore && h.Server.Gone() &&
		(h.Agent.State == platform.StateActive || h.Agent.Process)
}
