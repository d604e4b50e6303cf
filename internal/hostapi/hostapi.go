// Package hostapi holds what the host daemon learns from outside its host and
// says to it: the cluster's API, etcd, and the ways to its peers. The
// interfaces are declared in internal/hostd, which uses them; these are their
// types, so that the adapters (internal/kube, internal/etcd) need not know the
// daemon.
package hostapi

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// View is what an action depends on, read from a quorum (no resourceVersion) in
// this pass, through an API server that answered an authenticated /readyz
// (safety rule 23).
type View struct {
	// Date is the API server's clock.
	Date time.Time
	// Server is the URL of the API server that answered: proven up.
	Server string
	// Self is this host's own Node, nil when there is none.
	Self  *swap.Node
	Lease lease.Lease
}

// Node is one Node of the cluster as the watch last showed it. Nothing is
// decided on it but how often to look, whom to dial, and what to compare in
// the preflight.
type Node struct {
	Name string
	swap.Node
}

// Beat is the heartbeat that vouches for a report (safety rule 29).
type Beat struct {
	BootID  string
	Counter uint64
	// At is the host's clock; readers only see that it changes.
	At time.Time
}

// Member is this host's own etcd as it answers.
type Member struct {
	// Answers: the status call was answered, by a voter or a learner. The other
	// fields are empty otherwise and View.Error says why.
	Answers bool
	ID      fleet.MemberID
	Learner bool
	View    status.EtcdView
}

// Voter says that the member votes and answered a linearizable read.
func (m Member) Voter() bool {
	if !m.Answers || m.Learner || !m.View.Linearizable {
		return false
	}
	for _, o := range m.View.Members {
		if o.ID == m.ID {
			return !o.Learner
		}
	}
	return false
}

// Answer is a linearizable member list that another voter gave.
type Answer struct {
	URL       string // the client URL that answered
	ClusterID fleet.MemberID
	Leader    fleet.MemberID // as that voter sees it, zero when it does not say
	Members   []status.Member
}

// Standby is a host to dial.
type Standby struct {
	Node    string
	Address string // host:port of etcd's peer port
}

// PreflightInput is what a preflight compares the host with (safety rule 17).
type PreflightInput struct {
	Node string
	// Nodes are the Nodes as last seen, this host's own included.
	Nodes []Node
	// Out is the voter that this host would replace, empty when there is no
	// swap: then every server is compared with.
	Out string
	// JoinURLs are the configured join URLs by node name.
	JoinURLs map[string]string
	// Join is the voter to join, empty when any will do.
	Join string
}
