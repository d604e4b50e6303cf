package status

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// Status is status.json of fleet-role-status: what the controller sees, does
// and would do.
type Status struct {
	Protocol   int       `json:"protocol"`
	At         time.Time `json:"at"`
	Controller string    `json:"controller,omitempty"`
	DryRun     bool      `json:"dry_run"`
	Target     int       `json:"target"`

	Swap     *Swap     `json:"swap"`
	LastSwap *LastSwap `json:"last_swap"`
	Request  *Request  `json:"request"`
	// Dropped is the request that was dropped last without a swap.
	Dropped *Dropped `json:"dropped,omitempty"`
	// Pause is a person's pause, nil when there is none.
	Pause *Pause `json:"pause,omitempty"`

	// Next is what the pass decided: an action, or what it waits for.
	Next Next `json:"next"`

	// Hosts are the Nodes that regrade has to do with: those that vote, are
	// eligible, report, or carry a mark of ours. OtherNodes counts the rest.
	Hosts      []Host `json:"hosts"`
	OtherNodes int    `json:"other_nodes,omitempty"`
	// Verdicts are on each voter and eligible host (R-185-12); none while no probe
	// has written.
	Verdicts []fitness.Verdict `json:"verdicts,omitempty"`
	// Automatic is what the verdicts ask for, nil where nothing was judged.
	Automatic *Automatic `json:"automatic,omitempty"`
	// Pending are hosts whose clean-up is still owed (safety rule 16).
	Pending []string `json:"pending,omitempty"`
	// EvenSince is when an even number of voters was first seen (R-F-02).
	EvenSince time.Time `json:"even_since,omitzero"`
	// History are the swaps that ended, the last first, as far as a later decision
	// looks back: how many a day, how long a host is left alone, and that none is
	// begun again by a Lease from a backup (R-228-18).
	History []PastSwap `json:"history,omitempty"`
	// HistoryLost is when a status was found missing in a cluster that had seen
	// swaps: those that ended before are not in History. Zero: none is missing.
	HistoryLost   time.Time `json:"history_lost,omitzero"`
	CooldownUntil time.Time `json:"cooldown_until,omitzero"`
	Backoff       []Backoff `json:"backoff,omitempty"`
}

// Swap is the swap under way (R-E2-29).
type Swap struct {
	ID        fleet.SwapID `json:"id"`
	Out       string       `json:"out"`
	In        string       `json:"in"`
	Step      string       `json:"step"` // a state of the transition table
	StartedAt time.Time    `json:"started_at"`
	StepSince time.Time    `json:"step_since"`
	Deadline  time.Time    `json:"deadline,omitzero"`
	Manual    bool         `json:"manual"`
	Snapshot  string       `json:"snapshot,omitempty"`
	// AskedAgain counts removals asked for again after the request vanished.
	AskedAgain int `json:"asked_again,omitempty"`
	// FailingSince is when the newcomer was first seen failing (safety rule 7).
	FailingSince time.Time `json:"failing_since,omitzero"`
	Reasons      []Reason  `json:"reasons,omitempty"`
	// Cause is what led to a rollback.
	Cause []Reason `json:"cause,omitempty"`
	// Steps are the times of the steps taken, oldest first.
	Steps []StepTime `json:"steps,omitempty"`
}

// StepTime is when a swap reached a state.
type StepTime struct {
	Step string    `json:"step"`
	At   time.Time `json:"at"`
}

// LastSwap is how the last swap ended (R-E2-30).
type LastSwap struct {
	ID              fleet.SwapID  `json:"id"`
	Out             string        `json:"out"`
	In              string        `json:"in"`
	Outcome         fleet.Outcome `json:"outcome"`
	Manual          bool          `json:"manual"`
	EndedAt         time.Time     `json:"ended_at"`
	Reasons         []Reason      `json:"reasons,omitempty"`
	OutgoingPending bool          `json:"outgoing_pending,omitempty"`
	IncomingPending bool          `json:"incoming_pending,omitempty"` // after a rollback
	Snapshot        string        `json:"snapshot,omitempty"`
	Steps           []StepTime    `json:"steps,omitempty"`
}

// PastSwap is a swap that ended.
type PastSwap struct {
	ID      fleet.SwapID  `json:"id,omitempty"`
	Out     string        `json:"out"`
	In      string        `json:"in"`
	Manual  bool          `json:"manual"`
	Outcome fleet.Outcome `json:"outcome"`
	EndedAt time.Time     `json:"ended_at"`
}

// Reason is one finding with a stable code, a sentence and its numbers.
type Reason struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
	Node     string `json:"node,omitempty"`
}

// Next is a decision as published.
type Next struct {
	State    string   `json:"state"`
	Action   string   `json:"action,omitempty"`
	Node     string   `json:"node,omitempty"`
	Code     string   `json:"code"`
	Sentence string   `json:"sentence"`
	Facts    []Fact   `json:"facts,omitempty"`
	Waits    []Reason `json:"waits,omitempty"`
}

// Automatic is the swap that the verdicts ask for, or why they ask for none
// (R-185-13). Out and In are empty for none.
type Automatic struct {
	Out      string   `json:"out,omitempty"`
	In       string   `json:"in,omitempty"`
	Sentence string   `json:"sentence"`
	Reasons  []Reason `json:"reasons,omitempty"`
}

// Fact is one value a decision used.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Host is one host as the controller sees it.
type Host struct {
	Name     string         `json:"name"`
	Role     fleet.Role     `json:"role,omitempty"`
	Level    fleet.Level    `json:"level,omitempty"`
	Ready    bool           `json:"ready"`
	Voter    bool           `json:"voter"`
	Learner  bool           `json:"learner,omitempty"`
	MemberID fleet.MemberID `json:"member_id,omitzero"`
	Eligible bool           `json:"eligible"`
	Pinned   bool           `json:"pinned,omitempty"`
	Fresh    bool           `json:"fresh"`
	// Members are the member ids its own etcd lists (R-228-35).
	Members []fleet.MemberID `json:"members,omitempty"`
	Reasons []Reason         `json:"reasons,omitempty"`
}

// Backoff is a pair that was abandoned and is not tried by itself before Until
// (safety rule 20).
type Backoff struct {
	Out   string    `json:"out"`
	In    string    `json:"in"`
	Count int       `json:"count"`
	Until time.Time `json:"until"`
}

// Request is request.json: a swap asked for by a person (R-E2-02, R-228-10).
type Request struct {
	// Protocol is zero in a request of a program older than this field.
	Protocol int `json:"protocol,omitempty"`

	Out string    `json:"out"`
	In  string    `json:"in"`
	At  time.Time `json:"at"` // the API server's Date
}

// Dropped is a request that no swap came of: refused, expired, or not to be read.
// It stands until another one is dropped.
type Dropped struct {
	Out string `json:"out,omitempty"` // empty where it could not be read
	In  string `json:"in,omitempty"`
	// Asked is the request's own time, At when it was dropped.
	Asked   time.Time `json:"asked,omitzero"`
	At      time.Time `json:"at"`
	Reasons []Reason  `json:"reasons"`
}

// RequestLife is how long a request waits to be taken up (safety rule 25).
const RequestLife = 10 * time.Minute

// ParseStatus reads status.json.
func ParseStatus(raw []byte) (Status, error) {
	var s Status
	if len(raw) > MaxDocument {
		return s, fmt.Errorf("status: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	if s.Protocol != Protocol {
		return Status{}, fmt.Errorf("status: protocol %d, this program speaks %d", s.Protocol, Protocol)
	}
	return s, nil
}

// maxName is the longest name that the API server gives a Node.
const maxName = 253

// ParseRequest reads request.json.
func ParseRequest(raw []byte) (Request, error) {
	var r Request
	if len(raw) > MaxDocument {
		return r, fmt.Errorf("request: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Request{}, fmt.Errorf("request: %w", err)
	}
	switch {
	case r.Protocol != 0 && r.Protocol != Protocol:
		return Request{}, fmt.Errorf("request: protocol %d, this program speaks %d", r.Protocol, Protocol)
	case r.Out == "" || r.In == "":
		return Request{}, fmt.Errorf("request: out and in must both name a node")
	case len(r.Out) > maxName || len(r.In) > maxName:
		return Request{}, fmt.Errorf("request: a node name of more than %d characters", maxName) // the status would carry it
	case fleet.CheckName(r.Out) != nil:
		return Request{}, fmt.Errorf("request: out: %w", fleet.CheckName(r.Out))
	case fleet.CheckName(r.In) != nil:
		return Request{}, fmt.Errorf("request: in: %w", fleet.CheckName(r.In))
	case r.Out == r.In:
		return Request{}, fmt.Errorf("request: %s cannot be swapped for itself", r.Out)
	case r.At.IsZero():
		return Request{}, fmt.Errorf("request: no time")
	}
	return r, nil
}
