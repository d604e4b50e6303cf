package level

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/quorum"
)

// Situation is the cluster around a host that is about to change its level, read from a
// quorum in this pass (safety rule 23).
type Situation struct {
	Node string      `json:"node"`
	From fleet.Level `json:"from"`
	To   fleet.Level `json:"to"`

	// Date is the API server's, and Lease kube-system/fleet-regrade.
	Date  time.Time   `json:"date"`
	Lease lease.Lease `json:"lease"`
	// Holds: this step has taken the Lease already, at its acquire time.
	Holds time.Time `json:"holds,omitzero"`

	// Server: the role is server, and the host is not leaving.
	Server bool `json:"server"`
	// Swapping are the nodes that carry a swap's annotation, under whatever prefix.
	Swapping []string `json:"swapping,omitempty"`
	// Paused is a person's word that nothing begins, empty for none.
	Paused string `json:"paused,omitempty"`

	// Target is how many voters there shall be; Votes whether this host's member was
	// seen to vote, by a linearizable read of its own.
	Target   int  `json:"target"`
	Votes    bool `json:"votes"`
	Learners int  `json:"learners,omitempty"`
	// Others are the other voters of the own member list.
	Others []Voter `json:"others"`

	// Pods of this node that a drain may not, or did not, end: jobs, and such as nothing
	// would make again or a budget protects. PodsUnread says why they were not read.
	Jobs       []string `json:"jobs,omitempty"`
	Left       []string `json:"left,omitempty"`
	PodsUnread string   `json:"pods_unread,omitempty"`

	// Missing says what could not be read, in sentences.
	Missing []string `json:"missing,omitempty"`
}

// Voter is another voter as this host sees it.
type Voter struct {
	Node string `json:"node"`
	// Ready is the Node's condition; a voter without a Node is not Ready.
	Ready bool `json:"ready"`
	// APIServer: its Node says that it runs one, by label and level; EtcdOnly that it runs
	// nothing but etcd.
	APIServer bool `json:"api_server"`
	EtcdOnly  bool `json:"etcd_only,omitempty"`
	// Answers: its etcd answered now, and follows the leader this host follows.
	Answers bool `json:"answers"`
	// Agrees: its linearizable member list is this host's. Problem says why not.
	Agrees  bool   `json:"agrees"`
	Problem string `json:"problem,omitempty"`
}

// Codes of gates.
const (
	CodeOneLevel   = "OneLevelAStep"
	CodeUnread     = "NotRead"
	CodeNotServer  = "NotServer"
	CodeSwap       = "SwapUnderWay"
	CodeLeaseTaken = "LeaseTaken"
	CodeLeaseLost  = "LeaseLost"
	CodePaused     = "Paused"
	CodeNoVote     = "NoVote"
	CodeLearner    = "LearnerPresent"
	CodeCount      = "VoterCount"
	CodeNotReady   = "NotReady"
	CodeSilent     = "Silent"
	CodeDisagrees  = "MemberListsDisagree"
	CodeQuorum     = "NoQuorumWithoutMe"
	CodeAPIServers = "TooFewAPIServers"
	CodeJobs       = "JobsRun"
	CodePods       = "PodsLeft"
	CodePodsUnread = "PodsNotRead"
	minAPIServers  = 2
)

// Gate is one reason why a step may not be taken now.
type Gate struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
}

// Gates are all reasons against the step, none when it may be taken: safety rules 1 and
// 26, R-112-06, R-112-19, R-X-07. They are the same for pressure and for a person.
func Gates(s Situation) []Gate {
	var gs []Gate
	shut := func(code, format string, args ...any) { gs = append(gs, Gate{code, fmt.Sprintf(format, args...)}) }

	for _, m := range s.Missing {
		shut(CodeUnread, "%s", m)
	}
	if s.To != Toward(s.From, s.To) || s.To == s.From {
		shut(CodeOneLevel, "a step is one level: not from %s to %s", s.From, s.To)
	}
	if !s.Server {
		shut(CodeNotServer, "this host is no server, or on its way out")
	}
	if len(s.Swapping) > 0 {
		shut(CodeSwap, "a swap is under way, or was: %s", strings.Join(s.Swapping, ", "))
	}
	if s.Paused != "" {
		shut(CodePaused, "%s", s.Paused)
	}
	gs = append(gs, s.leaseGates()...)
	gs = append(gs, s.voterGates()...)
	if s.To == fleet.LevelEtcdOnly {
		gs = append(gs, s.podGates()...)
	}
	return gs
}

// Mine says whether the Lease is held now by the step of this host that took it then.
func Mine(l lease.Lease, node string, took, date time.Time) bool {
	return l.At(date) == lease.Held && l.Holder == node && !took.IsZero() && l.AcquireTime.Equal(took)
}

func (s Situation) leaseGates() []Gate {
	state := s.Lease.At(s.Date)
	switch {
	case s.Date.IsZero():
		return []Gate{{CodeUnread, "no API server says what time it is"}}
	case !s.Holds.IsZero() && Mine(s.Lease, s.Node, s.Holds, s.Date):
		return nil
	case !s.Holds.IsZero():
		return []Gate{{CodeLeaseLost, fmt.Sprintf("the Lease %s is not this step's any more: it is %s, holder %q", fleet.LeaseName, state, s.Lease.Holder)}}
	case state == lease.Held && s.Lease.Holder == fleet.LeaseHolder:
		return []Gate{{CodeLeaseTaken, fmt.Sprintf("the Lease %s is held for the swap %s", fleet.LeaseName, s.Lease.SwapID())}}
	case state == lease.Held:
		return []Gate{{CodeLeaseTaken, fmt.Sprintf("the Lease %s is held by %s", fleet.LeaseName, s.Lease.Holder)}}
	}
	return nil
}

func (s Situation) voterGates() (gs []Gate) {
	shut := func(code, format string, args ...any) { gs = append(gs, Gate{code, fmt.Sprintf(format, args...)}) }
	if !s.Votes {
		shut(CodeNoVote, "this host's etcd does not answer as a voter")
		return gs
	}
	if s.Learners > 0 {
		shut(CodeLearner, "etcd has a learner: somebody joins")
	}
	if n := len(s.Others) + 1; n != s.Target {
		shut(CodeCount, "etcd has %d voters, %d are wanted", n, s.Target)
	}
	up, servers := 0, 0
	for _, v := range s.Others {
		switch {
		case v.EtcdOnly: // its Node says Ready until its kubelet has been silent for long enough
			shut(CodeNotReady, "%s is etcd-only: its Node is not Ready, or will not be in a moment", v.Node)
		case !v.Ready:
			shut(CodeNotReady, "%s votes and is not Ready", v.Node)
		}
		switch {
		case !v.Answers:
			shut(CodeSilent, "the etcd of %s does not answer", v.Node)
		case !v.Agrees:
			shut(CodeDisagrees, "the member list of %s is not this host's: %s", v.Node, v.Problem)
		default:
			up++
		}
		if v.Ready && v.APIServer && v.Answers {
			servers++
		}
	}
	if need := quorum.Need(len(s.Others) + 1); up < need {
		shut(CodeQuorum, "without this host %d voters of %d are sure to be there, %d are a quorum", up, len(s.Others)+1, need)
	}
	// Also on the way up and for a drain: who takes the Lease may have to restart next.
	if servers < minAPIServers {
		shut(CodeAPIServers, "without this host %d API servers are left, %d are wanted", servers, minAPIServers)
	}
	return gs
}

func (s Situation) podGates() (gs []Gate) {
	switch {
	case s.PodsUnread != "":
		return []Gate{{CodePodsUnread, s.PodsUnread}}
	case len(s.Jobs) > 0:
		gs = append(gs, Gate{CodeJobs, fmt.Sprintf("%d protected pods run here, which no step cuts: %s", len(s.Jobs), few(s.Jobs))})
	}
	if len(s.Left) > 0 {
		gs = append(gs, Gate{CodePods, fmt.Sprintf("%d pods are left here that no drain may end: %s", len(s.Left), few(s.Left))})
	}
	return gs
}

// few names the first of many.
func few(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}
