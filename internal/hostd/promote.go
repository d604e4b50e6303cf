package hostd

import (
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

// promote makes a standby a server (R-D1-21..24, R-216-05, design §4.1): join
// drop-ins, joining, agent stopped and seen gone, server start queued; once a
// WAL exists the role file says server; done when the own etcd answers a
// linearizable read as a voter.
func promote(f Facts, o order) Decision {
	h := f.Host
	if !f.Journal.Running(o.swap, fleet.StepPromote) {
		return beginPromote(f, o)
	}
	if why, gone := removed(f); gone {
		return failed(f, CodeMemberRemoved, "%s", why)
	}
	if !h.Files.WAL {
		if d, ok := confirmJoin(f, o); !ok {
			return d
		}
	} else if h.Files.Role != fleet.RoleServer {
		// From here on it starts without asking: its vote may be the one that
		// makes a quorum (safety rule 18).
		return writeRole(fleet.RoleServer)
	}
	if d, gone := stopped(h.Agent, fleet.RoleAgent); !gone {
		return d
	}
	if h.PeerPort {
		return effect(Effect{Kind: PeerPort})
	}
	if h.Level != fleet.LevelFull {
		return effect(Effect{Kind: SetLevel, Level: fleet.LevelFull})
	}
	if !h.Server.Rising() {
		return effect(Effect{Kind: Start, Role: fleet.RoleServer})
	}
	if f.Journal.StartedAt.IsZero() {
		j := f.Journal
		j.StartedAt = f.Now.UTC()
		return note(j)
	}
	if !f.Etcd.Voter() || !h.Files.WAL {
		return soonIf(!h.Files.WAL, hold(CodeJoining, "the server joins: %s", joinStage(f)))
	}
	if h.Files.Joining.Swap != "" {
		return effect(Effect{Kind: Join})
	}
	return done(f)
}

// halfBack: the rollback of this swap has ended the server and nothing else, and the
// swap goes forward after all: its vote is needed, and its server starts on the
// datastore that it had. A member that is gone is another matter: promote fails then.
func (f Facts) halfBack(o order) bool {
	return f.Journal.Running(o.swap, fleet.StepRollback) && f.asMember()
}

// asMember says whether the files let a member's server start on its datastore, also
// before the role file says so: a rollback may come in between.
func (f Facts) asMember() bool {
	h := f.Host.Files
	return (h.Role == fleet.RoleServer || h.Joining.Swap != "") && h.Leaving == "" && h.WAL && !h.Tombstone
}

func beginPromote(f Facts, o order) Decision {
	h := f.Host
	if d, ok := admit(f, o); !ok {
		return d
	}
	switch {
	case h.Files.Role == fleet.RoleServer && h.Files.Leaving == "" && f.Etcd.Voter():
		j := Journal{Swap: o.swap, Step: o.step, Phase: fleet.PhaseDone, BootID: h.Files.BootID, StartedAt: h.Server.Since.UTC(), Local: o.local}
		return note(j)
	case f.halfBack(o):
		return begin(f, o)
	case h.Files.Role == fleet.RoleServer || h.Files.Leaving != "":
		return refuse(f, o, problem(CodeNotStandby, "the role file says %q and leaving is %q: this host is no standby", h.Files.Role, h.Files.Leaving))
	}
	if f.Preflight == nil {
		return hold(CodePreflightWait, "the preflight has not been judged")
	}
	if f.Preflight.Falters() && f.Now.Sub(f.FalteringSince) < status.JoinPatience {
		return hold(status.CodeJoinHostFalters, "%s", preflightProblem(f).Sentence)
	}
	if !f.Preflight.OK {
		return refuse(f, o, preflightProblem(f))
	}
	if o.join == f.Node || f.Policy.JoinURLs[o.join] == "" {
		return refuse(f, o, problem(CodeNoJoinURL, "the node to join is %q: no join URL is configured for it", o.join))
	}
	return begin(f, o)
}

// preflightProblem folds the problems into one refusal that names them all.
func preflightProblem(f Facts) Problem {
	p := Problem{Code: CodePreflightFailed}
	var all []string
	for _, x := range f.Preflight.Problems {
		all = append(all, x.Code+": "+x.Sentence)
		if x.Code == CodeNotStaged {
			p.Code = CodeNotStaged
		}
	}
	p.Sentence = strings.Join(all, "; ")
	return p
}

// confirmJoin prepares the join of a host without a WAL. The Lease is asked in
// each pass, because what comes next may add a member (R-D1-19); a join that a
// reboot has interrupted is not taken up again (design §4.1: agent again).
func confirmJoin(f Facts, o order) (Decision, bool) {
	h := f.Host
	if f.Journal.BootID != h.Files.BootID {
		return failed(f, CodeRebooted, "the host was restarted before it was a member; it is an agent again"), false
	}
	if p, ok := f.held(o); !ok {
		if p.Code == CodeNoAPI {
			return hold(p.Code, "%s", p.Sentence), false
		}
		// k3s asks for its member again each second: without the Lease it must not
		// go on asking. It has no datastore yet, so no vote stops with it.
		if d, gone := stopped(h.Server, fleet.RoleServer); !gone {
			return d, false
		}
		return hold(p.Code, "%s", p.Sentence), false
	}
	want := rolefile.Joining{Swap: o.swap, BootID: h.Files.BootID}
	url := f.Policy.JoinURLs[o.join]
	switch {
	case url == "":
		return hold(CodeNoJoinURL, "no join URL is configured for %q", o.join), false
	case h.ServerJoin != url:
		return effect(Effect{Kind: SetJoin, Role: fleet.RoleServer, URL: url}), false
	case h.Files.Identity.MemberID != 0:
		// An id of an earlier life would read as "removed".
		return effect(Effect{Kind: Identify, Identity: rolefile.Identity{Voters: h.Files.Identity.Voters}}), false
	case h.Files.Joining != want:
		return effect(Effect{Kind: Join, Joining: want}), false
	}
	return Decision{}, true
}

// alone ends a server that asks for its member while no API server has told this host
// for long whether the swap goes on. Its network may come back after the swap's end,
// and k3s asks before this daemon does (safety rule 18). It has no datastore yet, so no
// vote stops with it; promote starts it again when the swap goes on.
func alone(f Facts, _ order) Decision {
	h := f.Host
	if f.View != nil || f.Command != nil || f.Journal.Local || h.Files.AllowJoin || h.Files.Joining.Swap == "" {
		return Decision{}
	}
	if h.Files.WAL {
		return joinedAlone(f)
	}
	if !h.Files.JoiningNow() || f.Etcd.Answers || f.AloneSince.IsZero() || f.Now.Sub(f.AloneSince) < f.Policy.JoinAlone {
		return Decision{}
	}
	if d, gone := stopped(h.Server, fleet.RoleServer); !gone {
		return d
	}
	return hold(CodeNoAPI, "no API server answers: %s; the server asks for its member again when one says that the swap goes on", f.ViewProblem)
}

// joinedAlone starts a server again that alone has ended in the moment in which it
// joined: the host was looked at before an API server was waited for. By now k3s may
// have made it a voter, and where the quorum hangs on it no API server answers before
// it runs.
func joinedAlone(f Facts) Decision {
	j := f.Journal
	if j.Step != fleet.StepPromote || j.Phase != fleet.PhaseRunning || !f.asMember() || !f.Host.Agent.Gone() || !f.Host.Server.Gone() {
		return Decision{}
	}
	if _, gone := removed(f); gone {
		return Decision{}
	}
	return startServer(f)
}

// joinStage says how far the join is, in words.
func joinStage(f Facts) string {
	switch {
	case !f.Host.Files.WAL:
		return "no datastore yet; the unit is " + string(f.Host.Server.State)
	case !f.Etcd.Answers:
		return "its etcd does not answer yet: " + f.Etcd.View.Error
	case f.Etcd.Learner:
		return "it is a learner"
	}
	return "its etcd does not answer a linearizable read yet: " + f.Etcd.View.Error
}

func soonIf(quick bool, d Decision) Decision {
	d.Soon = quick
	return d
}
