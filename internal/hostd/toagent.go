package hostd

import (
	"maps"
	"net"
	"net/url"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

// finish makes a removed server an agent, on evidence and without an order
// (safety rules 12 and 16, R-228-19, R-228-36). Orders that deal with the
// removal themselves go first.
func finish(f Facts, o order) Decision {
	if f.Journal.Step == fleet.StepFinishDemote && f.Journal.Phase == fleet.PhaseRunning {
		if f.Etcd.Voter() {
			return hold(CodeContradiction, "the member was said to be gone and its etcd votes")
		}
		return toAgent(f, o)
	}
	files := f.Host.Files
	if f.Etcd.Voter() && !files.Tombstone {
		if id, ok := f.memberGone(); ok && (files.Leaving != "" || files.Role == fleet.RoleServer) && o.step != fleet.StepStepUp {
			return hold(CodeContradiction, "the controller says that the member is gone in swap %s and its etcd votes", id)
		}
	}
	_, gone := removed(f)
	if !gone || o.problem.is() || files.Role != fleet.RoleServer && files.Leaving == "" && !files.WAL && !files.Tombstone {
		return Decision{}
	}
	switch o.step {
	case fleet.StepPromote, fleet.StepRollback:
		return Decision{} // promote fails, and the controller orders the rollback
	case fleet.StepStepUp:
		if !f.Journal.Is(o.swap, o.step) || !f.Journal.Phase.Settled() {
			return Decision{}
		}
	}
	swap := files.Leaving
	if o.swap != "" {
		swap = o.swap
	}
	return begin(f, order{swap: swap, step: fleet.StepFinishDemote})
}

// rollback undoes a promotion from whatever state it reached (R-D1-27, R-I-21,
// safety rule 6): server stopped and seen gone, said so; then, once the member
// is gone, datastore aside and back to an agent. Until then the role file stays
// as it is: a member that still is listed may be needed.
func rollback(f Facts, o order) Decision {
	if !f.Journal.Running(o.swap, fleet.StepRollback) {
		if p, ok := f.labelled(o); !ok {
			return refuse(f, o, p)
		}
		if p, ok := f.held(o); !ok {
			if p.Code == CodeStaleSwap || f.Command != nil && p.Code != CodeNoAPI {
				return refuse(f, o, p)
			}
			// Not settled: a rollback is due whoever holds the Lease next.
			return hold(p.Code, "%s", p.Sentence)
		}
		return begin(f, o)
	}
	if f.stopDue() {
		// A newcomer that votes, or is made a voter in the next moment, may be what
		// makes the quorum.
		if d, ok := spared(f); !ok {
			return d
		}
	}
	if f.blind() && f.Answer == nil && !f.Host.Files.Tombstone && !late(f, f.Policy.OperationTimeout) {
		if _, gone := removed(f); !gone {
			return hold(CodeNoQuorumWithout, "%s, and no other voter gives its list: nobody knows whether a quorum needs this server", etcdStage(f))
		}
	}
	return toAgent(f, o)
}

// runs says whether a unit runs and nothing has been asked to stop it.
func runs(u platform.Unit) bool {
	return !u.Gone() && u.Job != platform.JobStop && u.State != platform.StateDeactivating
}

// orphaned takes back a promotion whose swap has ended without this host, which
// was silent for longer than the swap could wait: nobody orders a rollback any
// more. So does one that had failed before: its rollback was never ordered. A host
// that has a datastore by then is left to the evidence of finish.
func orphaned(f Facts, o order) Decision {
	j := f.Journal
	gaveUp := j.Step == fleet.StepPromote && j.Phase == fleet.PhaseFailed
	if j.Phase != fleet.PhaseRunning && !gaveUp || j.Local || f.Command != nil || o.problem.is() || o.step != "" {
		return Decision{}
	}
	// A deleted Node carries no swap either; the Lease alone then says whether the
	// swap still goes on.
	if f.View == nil || o.swap == j.Swap || f.View.Lease.HeldFor(j.Swap, f.View.Date) {
		return Decision{}
	}
	switch {
	case j.Step == fleet.StepPromote && !f.Host.Files.WAL:
		return begin(f, order{swap: j.Swap, step: fleet.StepRollback})
	case f.halfWay():
		return overtaken(f, o)
	case j.Step == fleet.StepRollback:
		return toAgent(f, o)
	}
	return Decision{}
}

// halfWay says whether a rollback that has ended this server and nothing else, or a
// promotion that would start it again, is still noted as going on.
func (f Facts) halfWay() bool {
	j := f.Journal
	return (j.Step == fleet.StepRollback || j.Step == fleet.StepPromote) && j.Phase == fleet.PhaseRunning && f.asMember()
}

// overtaken ends a rollback that had stopped this server, or was about to, when its
// swap went forward after all and ended without a word of this host: the member is
// counted on, whoever has it in his list, and its server goes on. One that is gone from
// the lists goes back to an agent.
func overtaken(f Facts, o order) Decision {
	_, gone := removed(f)
	switch {
	case gone:
		return toAgent(f, o)
	case !f.votes() && !f.listed():
		return hold(CodeMemberListed, "swap %s has ended in the middle of this host's %s; nothing says yet whether its member is in the lists", f.Journal.Swap, f.Journal.Step)
	case f.Host.Server.Gone():
		return startServer(f)
	case !f.Host.Server.Rising():
		return soon(CodeStarting, "the server is %s", f.Host.Server.State)
	case f.Journal.Step == fleet.StepPromote && !f.Etcd.Voter():
		return soon(CodeStarting, "%s", etcdStage(f))
	case f.Journal.Step == fleet.StepPromote:
		return done(f)
	}
	return failed(f, CodeMemberListed, "swap %s has ended and this host is a member: it is not taken back", f.Journal.Swap)
}

// listed says whether another voter's list holds the own member.
func (f Facts) listed() bool {
	return f.Answer != nil && slices.ContainsFunc(f.Answer.Members, f.own)
}

// mayBeListed says the same of a member without a name at this host's address as well:
// its etcd tells the cluster its name only after it has started, and needs a quorum
// for that.
func (f Facts) mayBeListed() bool {
	return f.listed() || f.Answer != nil && slices.ContainsFunc(f.Answer.Members, func(m status.Member) bool { return m.Name == "" && f.here(m) })
}

// toAgent is the common way back to an agent. Role agent comes before leaving
// and joining go, so that no moment lets both roles start, nor the server of a
// removed member.
func toAgent(f Facts, o order) Decision {
	h := f.Host
	if d, gone := stopped(h.Server, fleet.RoleServer); !gone {
		return d
	}
	if !f.Journal.Stopped {
		j := f.Journal
		j.Stopped = true
		return note(j)
	}
	if f.Journal.Step == fleet.StepRollback {
		if _, gone := removed(f); !gone && !neverListed(f) && !returned(f) {
			return hold(CodeMemberListed, "the server is gone; nothing says yet that its member is gone from the lists")
		}
	}
	switch {
	case h.Files.Role != fleet.RoleAgent || h.Files.AllowJoin:
		// Writing a role ends allow-join: the server that it let in has gone.
		return writeRole(fleet.RoleAgent)
	case h.Files.Joining.Swap != "" || h.Files.ForeignJoin:
		// Before leaving: one that was forgotten would let the server start. One that holds
		// no swap lets no agent start.
		return effect(Effect{Kind: Join})
	case h.Files.Leaving != "":
		return effect(Effect{Kind: Leave})
	case h.Datastore && h.DatastoreProblem != "":
		return hold(CodeDatastoreMount, "%s", h.DatastoreProblem)
	case h.Datastore:
		return effect(Effect{Kind: MoveAside})
	case h.Files.Identity.MemberID != 0:
		return effect(Effect{Kind: Identify, Identity: rolefile.Identity{Voters: h.Files.Identity.Voters}})
	case h.Level != fleet.LevelFull:
		return effect(Effect{Kind: SetLevel, Level: fleet.LevelFull})
	case h.ServerJoin != "":
		return effect(Effect{Kind: SetJoin, Role: fleet.RoleServer})
	}
	return startAgent(f, o)
}

// returned says that nothing of a server is left on the host: what follows
// needs no evidence any more, and the evidence may have gone with the files.
func returned(f Facts) bool {
	h := f.Host
	return h.Files.Role == fleet.RoleAgent && !h.Datastore && h.Files.Identity.MemberID == 0 && h.Files.Joining.Swap == ""
}

// startAgent gives the agent a server that is up to join (safety rule 15) and
// starts it. An agent that a reboot has started before that hangs on its old
// URL: it is stopped first. One that is ready is left alone.
func startAgent(f Facts, o order) Decision {
	h := f.Host
	if h.Agent.State != platform.StateActive && f.Journal.StartedAt.IsZero() {
		want, ok := agentJoin(f, o)
		switch {
		case !ok:
			return hold(CodeNoServerUp, "no server is known to be up for the agent to join")
		case h.AgentJoin != want:
			if d, gone := stopped(h.Agent, fleet.RoleAgent); !gone {
				return d
			}
			return effect(Effect{Kind: SetJoin, Role: fleet.RoleAgent, URL: want})
		}
	}
	if !h.Agent.Rising() {
		return effect(Effect{Kind: Start, Role: fleet.RoleAgent})
	}
	if f.Journal.StartedAt.IsZero() {
		j := f.Journal
		j.StartedAt = f.Now.UTC()
		if h.Agent.State == platform.StateActive && !h.Agent.Since.IsZero() {
			j.StartedAt = h.Agent.Since.UTC()
		}
		return note(j)
	}
	if !h.Agent.Process && h.Agent.State != platform.StateActive {
		return soon(CodeStarting, "the agent is %s", h.Agent.State)
	}
	return done(f)
}

// agentJoin is the URL of a server that is proven up: the API server that
// answered in this pass, or the voter that gave its list. It is never this host,
// and not the outgoing one while another is known.
func agentJoin(f Facts, o order) (string, bool) {
	var servers []string
	if f.View != nil {
		servers = append(servers, f.View.Server)
	}
	if f.Answer != nil {
		servers = append(servers, f.Answer.URL)
	}
	var best, last string
	for _, server := range servers {
		node, join := joinURL(f, server)
		switch {
		case join == "" || node == f.Node:
		case node != "" && node == o.out():
			last = join
		case best == "" || join == f.Host.AgentJoin: // keep what the drop-in names, when that is up
			best = join
		}
	}
	if best == "" {
		best = last
	}
	return best, best != ""
}

// joinURL is the configured join URL of the node at a server's address; an
// address that no node has makes the usual one.
func joinURL(f Facts, server string) (node, join string) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", ""
	}
	for _, n := range slices.Sorted(maps.Keys(f.Policy.JoinURLs)) {
		if j, err := url.Parse(f.Policy.JoinURLs[n]); err == nil && j.Hostname() == u.Hostname() {
			return n, f.Policy.JoinURLs[n]
		}
	}
	if slices.Contains(f.addresses(), u.Hostname()) || u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost" {
		return f.Node, ""
	}
	if f.Policy.JoinURLs[f.Node] == "" {
		return "", "" // it may be this host's own, by an address that nobody named
	}
	return "", "https://" + net.JoinHostPort(u.Hostname(), "6443")
}
