package fleet

import (
	"fmt"
	"strings"
)

// DefaultPrefix is the prefix of regrade's own labels, annotations and taints.
const DefaultPrefix = "github-runner.exadev.com/"

// Keys are regrade's label, annotation and taint keys under one prefix. The
// prefix is a setting; a swap annotation under another prefix than the
// configured one holds everything (safety rule 25).
type Keys struct{ prefix string }

// NewKeys checks a prefix: a DNS subdomain and a slash.
func NewKeys(prefix string) (Keys, error) {
	host, ok := strings.CutSuffix(prefix, "/")
	if !ok || !subdomain(host) {
		return Keys{}, fmt.Errorf("label prefix %q: want a DNS name and a slash, like %s", prefix, DefaultPrefix)
	}
	return Keys{prefix: prefix}, nil
}

// DefaultKeys are the keys under DefaultPrefix.
func DefaultKeys() Keys { return Keys{prefix: DefaultPrefix} }

// Prefix ends with a slash. The zero Keys have DefaultPrefix.
func (k Keys) Prefix() string {
	if k.prefix == "" {
		return DefaultPrefix
	}
	return k.prefix
}

// Labels.

// Eligible marks a host that may vote: "true" or "false".
func (k Keys) Eligible() string { return k.Prefix() + "voter-eligible" }

// Pinned marks a voter that is never swapped out or in: "true" or "false".
func (k Keys) Pinned() string { return k.Prefix() + "voter-pinned" }

// DesiredRole is the role the controller wants of a host (R-D1-01).
func (k Keys) DesiredRole() string { return k.Prefix() + "desired-role" }

// Level is the regrade level of a server (R-B-05).
func (k Keys) Level() string { return k.Prefix() + "regrade-level" }

// Annotations.

// Swap holds the id of the swap a Node takes part in (R-D1-02).
func (k Keys) Swap() string { return k.Prefix() + swapKeyName }

// Step holds the order to the host (R-D1-03).
func (k Keys) Step() string { return k.Prefix() + "role-step" }

// JoinNode names the voter that a promotion joins (R-D1-04).
func (k Keys) JoinNode() string { return k.Prefix() + "role-join-node" }

// LeadTo names the staying voter that shall lead before the host restarts
// (safety rule 8).
func (k Keys) LeadTo() string { return k.Prefix() + "role-lead-to" }

// SnapshotRequest asks a staying voter's host for an etcd snapshot (R-D1-05).
func (k Keys) SnapshotRequest() string { return k.Prefix() + "snapshot-request" }

// MemberGone says that the staying voters' lists no longer hold the host's
// member; its value is the swap id (R-228-39).
func (k Keys) MemberGone() string { return k.Prefix() + "role-member-gone" }

// Record is the JSON record of the swap (safety rule 4, status.Record).
func (k Keys) Record() string { return k.Prefix() + "role-record" }

// Controller is the id of the controller that drives the swap (safety rule 21).
func (k Keys) Controller() string { return k.Prefix() + "role-controller" }

// Cordoned marks a cordon of ours: its value is the swap id (safety rule 27).
// On a Node that carries no swap it stands for a clean-up that is still owed
// (safety rule 16).
func (k Keys) Cordoned() string { return k.Prefix() + "role-cordoned" }

// LevelCordoned marks a cordon that a level's step set: who steps up takes it away, and
// nobody else's (safety rule 27). Its value is the API server's Date of then.
func (k Keys) LevelCordoned() string { return k.Prefix() + "regrade-cordoned" }

// Taint is the key of the step-4 taint, beside its value and effect
// TaintValue and NoSchedule. It shares its name with the Swap annotation.
func (k Keys) Taint() string { return k.Prefix() + swapKeyName }

const swapKeyName = "role-swap"

// TaintValue is the value of the step-4 taint.
const TaintValue = "step-down"

// ForeignSwapKey says whether key is a swap annotation under another prefix,
// which a second installation or a changed setting leaves behind.
func (k Keys) ForeignSwapKey(key string) bool {
	return strings.HasSuffix(key, "/"+swapKeyName) && key != k.Swap()
}

// Annotations of a swap that its end clears from a Node, sorted.
func (k Keys) SwapAnnotations() []string {
	return []string{k.Controller(), k.JoinNode(), k.LeadTo(), k.MemberGone(), k.Record(), k.Step(), k.Swap(), k.SnapshotRequest()}
}

// True is the value of a boolean label or annotation that is set.
const True = "true"
