package hostd

import (
	"context"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// API is the cluster, through one of several API servers, never this host's
// own while it is leaving (safety rule 23). Each call is bounded.
type API interface {
	// Read reads own Node, Lease and the server's Date from a quorum.
	Read(ctx context.Context) (hostapi.View, error)
	// Nodes are all Nodes as the watch last showed them, sorted by name.
	Nodes(ctx context.Context) ([]hostapi.Node, error)
	// WriteReport writes the host's key of fleet-role-actuators.
	WriteReport(ctx context.Context, r status.Report) error
	// WriteHeartbeat renews the host's heartbeat Lease.
	WriteHeartbeat(ctx context.Context, b hostapi.Beat) error
	// Changed gives a value when a watched object changed. It only wakes.
	Changed() <-chan struct{}
	// Avoid says whether this host's own API server is out of the question.
	Avoid(own bool)
}

// Etcd is this host's own etcd and, where that is down, the other voters'.
type Etcd interface {
	// Local asks the own etcd: status, member list, alarms, a linearizable read.
	// An etcd that does not answer is a Member with Answers false, not an error.
	Local(ctx context.Context) hostapi.Member
	// Ask gives the first linearizable member list that one of the client URLs
	// answers; an error when none does.
	Ask(ctx context.Context, urls []string) (hostapi.Answer, error)
	// Answering are those of the members that answer a status call now, as members
	// of the cluster, and that follow the leader given.
	Answering(ctx context.Context, cluster, leader fleet.MemberID, members []status.Member) []fleet.MemberID
	// MoveLeader asks the own etcd, which leads, to hand over to a member.
	MoveLeader(ctx context.Context, to fleet.MemberID) error
}

// Ways are the network checks of safety rule 17, each bounded to seconds.
type Ways interface {
	// Preflight judges whether this host could become a server now.
	Preflight(ctx context.Context, in hostapi.PreflightInput) status.Preflight
	// Dial connects to each standby's peer port.
	Dial(ctx context.Context, standbys []hostapi.Standby) []status.Dial
}

// Lock is the host lock that the daemon, its commands and an installer share
// (R-216-13).
type Lock interface {
	// TryLock takes the lock unless another process has it.
	TryLock() (bool, error)
	Unlock() error
}
