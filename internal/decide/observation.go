package decide

import (
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Observation is everything a decision may look at. The order of its lists does
// not matter.
type Observation struct {
	// Now is the API server's Date, as every time here is.
	Now time.Time `json:"now"`
	// Hosts are at least all voters and all eligible hosts.
	Hosts []Host `json:"hosts"`
	// VotersKnown: fresh member lists agree on who votes.
	VotersKnown bool              `json:"voters_known"`
	Verdicts    []fitness.Verdict `json:"verdicts"`

	// UnderWay is the swap on record, empty when there is none.
	UnderWay fleet.SwapID `json:"under_way,omitempty"`
	// Paused is why a person paused regrade, nil when nobody did.
	Paused *string `json:"paused,omitempty"`
	// CooldownUntil comes from the status; without a status a cooldown starts
	// (safety rule 25).
	StatusMissing bool             `json:"status_missing,omitempty"`
	CooldownUntil time.Time        `json:"cooldown_until,omitzero"`
	Backoff       []status.Backoff `json:"backoff,omitempty"`
	// History are the swaps that ended within the last day, or longer.
	History []PastSwap `json:"history,omitempty"`
	// HistoryLost is when a status was lost: History lacks what ended before. Zero: it
	// lacks nothing.
	HistoryLost time.Time `json:"history_lost,omitzero"`

	// Held are gates that hold every swap, found elsewhere: an alarm, no leader,
	// the Lease of another.
	Held []status.Reason `json:"held,omitempty"`
	// Gates judges a pair as the swap's first step will (swap.Gates); nil: no gate.
	// A reason about IN rules that candidate out, any other holds the swap.
	Gates func(swap.Pair) []status.Reason `json:"-"`
}

// Host is one Node as a decision sees it.
type Host struct {
	Name  string `json:"name"`
	Votes bool   `json:"votes,omitempty"`
	// Member: it is in the member lists in any way, as a learner too.
	Member   bool `json:"member,omitempty"`
	Eligible bool `json:"eligible,omitempty"`
	Pinned   bool `json:"pinned,omitempty"`
	// Cordoned by somebody else than regrade (safety rule 27).
	Cordoned bool `json:"cordoned,omitempty"`
	// Zone is its topology.kubernetes.io/zone.
	Zone string `json:"zone,omitempty"`
}

// PastSwap is a swap that ended.
type PastSwap = status.PastSwap

// Policy is what an operator may set.
type Policy struct {
	Target int `json:"target"`
	// MaxServers is the most servers that the cluster may have; zero is no bound.
	MaxServers int `json:"max_servers,omitempty"`
	// MaxUnfit: with more voters unfit at once a common cause is likely, and
	// nothing is swapped.
	MaxUnfit int `json:"max_unfit"`
	// MaxPerDay is how many automatic swaps may end in 24 hours.
	MaxPerDay int `json:"max_per_day"`
	// Dwell is how long a host that was swapped out, or that failed as a newcomer,
	// is no candidate.
	Dwell time.Duration `json:"dwell"`
}

// DefaultPolicy is that of design §3.
func DefaultPolicy() Policy {
	return Policy{Target: 3, MaxUnfit: 1, MaxPerDay: 4, Dwell: 24 * time.Hour}
}

// Cooldown is how long after a swap nothing is swapped by itself: k3s's learner
// stall time and one window, so that it outlasts the window in which the restarts
// of the swap still stand (R-185-19, R-X-11).
func Cooldown(learnerStall, period time.Duration, size int) time.Duration {
	return learnerStall + time.Duration(size)*period
}

// From takes what a swap's observation says of the fleet: Nodes, who votes, the
// swap on record, a pause, cooldown, backoffs and the swaps that ended.
func From(o swap.Observation, p swap.Policy) Observation {
	d := Observation{Now: o.Now, StatusMissing: o.Status == nil, Paused: paused(&o)}
	d.Gates = func(pair swap.Pair) []status.Reason {
		// The pause is told beside the gates, whether or not there is a pair.
		return slices.DeleteFunc(swap.Gates(o, p, pair), func(r status.Reason) bool { return r.Code == swap.CodePaused })
	}
	members, known := swap.Members(o, p)
	d.VotersKnown = known
	d.Held = append(d.Held, swap.NoLists(o, p)...)
	d.UnderWay = swap.OnRecord(o, p)
	for i := range o.Hosts {
		h := &o.Hosts[i]
		m, isMember := members[h.Name]
		if !known {
			// Without lists label and condition together say who votes (R-E1-03): good
			// enough to say how fit a host is, and no swap comes of it.
			isMember = h.Node.Labels[fleet.LabelEtcd] == fleet.True && h.Node.EtcdIsVoter == "True" && h.Node.Annotations[fleet.AnnotationEtcdRemovedName] == ""
		}
		eligible := h.Node.Labels[p.Keys.Eligible()] == fleet.True
		if !isMember && !eligible {
			continue
		}
		d.Hosts = append(d.Hosts, Host{
			Name: h.Name, Member: isMember, Votes: isMember && !m.Learner, Eligible: eligible,
			Pinned: h.Node.Labels[p.Keys.Pinned()] == fleet.True, Zone: h.Node.Labels[fleet.LabelZone],
			Cordoned: h.Node.Unschedulable && h.Node.Annotations[p.Keys.Cordoned()] == "",
		})
	}
	if s := o.Status; s != nil {
		d.CooldownUntil, d.Backoff, d.History, d.HistoryLost = s.CooldownUntil, s.Backoff, s.History, s.HistoryLost
		// A status of a program that kept no history has at least the last swap.
		if l := s.LastSwap; l != nil && len(d.History) == 0 {
			d.History = []PastSwap{{Out: l.Out, In: l.In, Manual: l.Manual, Outcome: l.Outcome, EndedAt: l.EndedAt}}
		}
	}
	return d
}

// paused is why a person paused the fleet, nil when nobody did.
func paused(o *swap.Observation) *string {
	switch {
	case o.PauseProblem != "":
		why := "the pause cannot be read: " + o.PauseProblem
		return &why
	case o.Pause != nil:
		return &o.Pause.Reason
	}
	return nil
}
