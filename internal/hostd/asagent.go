package hostd

import (
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// AsAgent judges whether a voter could come back as an agent (safety rules 13,
// 14, 15): what would keep its agent from starting, or its datastore where it is,
// is known long before the swap and must not show once the newcomer votes. Nil on
// a host that is no server, or that is leaving already.
func AsAgent(f Facts) *status.Preflight {
	h := f.Host
	if h.Files.Role != fleet.RoleServer || h.Files.Leaving != "" {
		return nil
	}
	ps := backProblems(f)
	return &status.Preflight{OK: len(ps) == 0, Problems: ps}
}

// backProblems are what is in the way, the unit's conditions first.
func backProblems(f Facts) []status.Problem {
	ps := append(conditionProblems(f), joinProblems(f)...)
	ps = append(ps, noteProblems(f)...)
	if p := f.Host.AgentProblem; p != "" {
		ps = append(ps, status.Problem{Code: CodeNoAgent, Sentence: "this host could not come back as an agent: " + p})
	}
	if p := f.Host.Files.JoiningProblem; p != "" {
		ps = append(ps, status.Problem{Code: CodeNoAgent, Sentence: "this host could not come back as an agent: " + p})
	}
	if p := f.Host.DatastoreProblem; p != "" {
		ps = append(ps, status.Problem{Code: CodeDatastoreMount, Sentence: p})
	}
	return ps
}

// conditionProblems: a unit that does not ask before it starts would not keep
// the role over a restart.
func conditionProblems(f Facts) []status.Problem {
	var ps []status.Problem
	for _, u := range []struct {
		name string
		unit platform.Unit
	}{{"server", f.Host.Server}, {"agent", f.Host.Agent}} {
		why := u.unit.ConditionProblem
		if why == "" {
			why = fmt.Sprintf("the %s unit does not ask `regrade host role-is %s` before it starts", u.name, u.name)
		}
		if !u.unit.Conditioned {
			ps = append(ps, status.Problem{Code: CodeNoCondition, Sentence: why})
		}
	}
	return ps
}

// noteProblems: a daemon whose own note cannot be read does nothing, so its host
// must not be in a swap (safety rule 25).
func noteProblems(f Facts) []status.Problem {
	if f.JournalProblem == "" {
		return nil
	}
	return []status.Problem{{Code: CodeBadJournal, Sentence: f.JournalProblem + ": its host daemon does nothing before a person has looked"}}
}

// joinProblems: by its own join URL a host knows its own server, which it must
// not ask while it is leaving, nor join (safety rules 15 and 23), and its own
// member, which has no name before it has started (safety rule 6).
func joinProblems(f Facts) []status.Problem {
	if f.Policy.JoinURLs[f.Node] != "" {
		return nil
	}
	return []status.Problem{{Code: CodeNoOwnJoinURL, Sentence: fmt.Sprintf("%s has no entry for this host, %s", fleet.FileJoinConfig, f.Node)}}
}

// folded is one refusal that names all problems, under the first one's code.
func folded(ps []status.Problem) Problem {
	var p Problem
	var all []string
	for _, x := range ps {
		if p.Code == "" {
			p.Code = x.Code
		}
		all = append(all, x.Code+": "+x.Sentence)
	}
	p.Sentence = strings.Join(all, "; ")
	return p
}
