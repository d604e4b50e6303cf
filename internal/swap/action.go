package swap

import (
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Kind names one effect on the API. Each is one write (a drain is one round of
// evictions), safe to repeat.
type Kind string

// Kinds of action. The empty kind is none: the decision waits or holds.
const (
	// TakeLease acquires the free or expired Lease for Record.ID, with the
	// swap's nodes, the record and the controller's id as annotations.
	TakeLease Kind = "take-lease"
	// ReleaseLease clears holder and annotations (R-228-01).
	ReleaseLease Kind = "release-lease"
	// WriteRecord writes role-swap, role-record and role-controller on Node.
	WriteRecord Kind = "write-record"
	// TakeOver writes this controller's id on Node (safety rule 21).
	TakeOver Kind = "take-over"
	// Cordon sets unschedulable and the role-cordoned annotation. Where the
	// operator cordoned first, only nothing is changed: such a Node is no candidate.
	Cordon Kind = "cordon"
	// Uncordon clears both, and only where role-cordoned stands (safety rule 27).
	Uncordon Kind = "uncordon"
	// Drain lists the pods again, dry-runs every eviction, then evicts what may
	// go. It never touches a protected, mirror or DaemonSet pod.
	Drain Kind = "drain"
	// RequestSnapshot writes snapshot-request on Node, a staying voter.
	RequestSnapshot Kind = "request-snapshot"
	// WithdrawRemoval deletes a stale remove annotation from Node (safety rule 5).
	WithdrawRemoval Kind = "withdraw-removal"
	// ClearRemovedName deletes removed-node-name from Node (safety rule 5).
	ClearRemovedName Kind = "clear-removed-name"
	// HandOver writes role-lead-to alone on Node, a voter that leads etcd (safety rule 8).
	HandOver Kind = "hand-over"
	// Order writes desired-role and role-step, and what goes with the step, in one patch.
	Order Kind = "order"
	// TaintNode adds the step-4 taint (design §3).
	TaintNode Kind = "taint"
	// RequestRemoval writes remove=true on Node. The executor reads the member
	// lists' holder reports, the Node and the Lease again right before it.
	RequestRemoval Kind = "request-removal"
	// RepairMember writes the etcd label, node-name and node-address of Member on
	// Node, so that k3s can find the member (safety rule 6).
	RepairMember Kind = "repair-member"
	// MarkMemberGone writes role-member-gone on Node (R-228-39).
	MarkMemberGone Kind = "mark-member-gone"
	// CleanNode removes server labels, etcd annotations, level label and our
	// taint from a demoted Node (R-I-16, R-E2-24). The desired-role label stays:
	// it is persistent (R-D1-01), and a host that comes back late is asked by it
	// to finish (R-228-36). The cordon stays too; Uncordon is its own action.
	CleanNode Kind = "clean-node"
	// Untaint removes our taint, and only ours, from Node.
	Untaint Kind = "untaint"
	// Conclude publishes the outcome in the status, before any annotation goes.
	Conclude Kind = "conclude"
	// ClearSwap removes the swap's annotations from Node (R-E2-26) and sets
	// desired-role to Desired where that is not empty. It leaves role-cordoned,
	// which Uncordon removes.
	ClearSwap Kind = "clear-swap"
	// ClearSnapshotRequest deletes snapshot-request from Node.
	ClearSnapshotRequest Kind = "clear-snapshot-request"
	// DropRequest deletes request.json (expired, refused or taken up).
	DropRequest Kind = "drop-request"
)

// Action is one effect with all it needs. Nodes are named; the executor reads
// each again and its write tests the resourceVersion (safety rule 21).
type Action struct {
	Kind Kind   `json:"kind"`
	Node string `json:"node,omitempty"`

	Swap   fleet.SwapID   `json:"swap,omitempty"`
	Record *status.Record `json:"record,omitempty"`

	// For Order; LeadTo for HandOver as well.
	Step     fleet.Step  `json:"step,omitempty"`
	JoinNode string      `json:"join_node,omitempty"`
	LeadTo   string      `json:"lead_to,omitempty"`
	Level    fleet.Level `json:"level,omitempty"` // sets the level label; LevelFull removes it

	// For RepairMember: name and peer host of the member.
	MemberName    string `json:"member_name,omitempty"`
	MemberAddress string `json:"member_address,omitempty"`

	// For ClearSwap: the desired-role label to leave behind.
	Desired fleet.Role `json:"desired,omitempty"`

	// For Conclude.
	Last *status.LastSwap `json:"last,omitempty"`

	// For DropRequest: what the status says of it; nil for one that was taken up.
	Dropped *status.Dropped `json:"dropped,omitempty"`
}

// Decision is what Next returns.
type Decision struct {
	// State of the transition table the observation is in, and the row taken.
	State State  `json:"state"`
	Row   string `json:"row"`

	// Action has an empty Kind when nothing is to be done now.
	Action Action `json:"action,omitzero"`

	Code     string          `json:"code"`
	Sentence string          `json:"sentence"`
	Facts    []status.Fact   `json:"facts,omitempty"`
	Waits    []status.Reason `json:"waits,omitempty"`

	// Renew: the Lease is ours for this swap and is renewed in this pass,
	// before the action (R-E2-14).
	Renew bool `json:"renew,omitempty"`

	// Swap is the swap as the status shall show it, nil when none is under way.
	Swap *status.Swap `json:"swap,omitempty"`
}

// Acts says whether the decision has an action.
func (d Decision) Acts() bool { return d.Action.Kind != "" }
