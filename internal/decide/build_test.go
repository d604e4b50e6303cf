package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// given is a fleet, what its probes measured, and what else a decision sees.
type given struct {
	Observation
	fleet  *fitnesstest.Fleet
	hosts  func([]fitness.Host)
	fit    fitness.Policy
	policy Policy
}

// calm is n1 to n3 voting, n4 and n5 standing by, all fit.
func calm() *given { return calmOf(3, 2) }

func calmOf(voters, standbys int) *given {
	g := &given{fleet: fitnesstest.New(voters, standbys), fit: fitness.DefaultPolicy(), policy: DefaultPolicy()}
	g.policy.Target = voters
	g.Now, g.VotersKnown = now, true
	for _, name := range slices.Concat(g.fleet.Voters, g.fleet.Standbys) {
		votes := slices.Contains(g.fleet.Voters, name)
		g.Hosts = append(g.Hosts, Host{Name: name, Votes: votes, Member: votes, Eligible: true})
	}
	return g
}

// slowVoter is calm with n1 slow on every link.
func slowVoter() *given { return calm().with(slow("n1")) }

func slow(node string) func(*given) {
	return func(g *given) { g.fleet.Delay[node] = 620 * time.Millisecond }
}

func (g *given) with(changes ...func(*given)) *given {
	for _, c := range changes {
		c(g)
	}
	return g
}

func (g *given) host(n int) *Host { return &g.Hosts[n-1] }

func (g *given) observe() Observation {
	hosts := g.fleet.Hosts()
	if g.hosts != nil {
		g.hosts(hosts)
	}
	g.Verdicts = fitness.Judge(hosts, g.fit)
	return g.Observation
}

func (g *given) decide() Decision { return Decide(g.observe(), g.policy) }

// told is a decision as a person reads it.
func told(d Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", d.Code, d.Sentence)
	for _, r := range d.Reasons {
		fmt.Fprintf(&b, "  %s: %s\n", r.Code, r.Sentence)
	}
	for _, list := range []struct {
		name  string
		hosts []Ranked
	}{{"voter", d.Voters}, {"candidate", d.Candidates}} {
		for i, r := range list.hosts {
			fmt.Fprintf(&b, "  %s %d: %s, margin %.2f", list.name, i+1, r.Node, r.Margin)
			if r.BadLinks > 0 {
				fmt.Fprintf(&b, ", %d bad links, seen by %d", r.BadLinks, r.Seen)
			}
			if r.Link != "" {
				fmt.Fprintf(&b, ", %s", r.Link)
			}
			for _, x := range r.Reasons {
				fmt.Fprintf(&b, "\n    %s: %s", x.Code, x.Sentence)
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}
