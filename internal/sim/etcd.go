package sim

import (
	"errors"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// Errors of etcd that k3s tells apart (k3s-facts §3.3 and §5.1).
var (
	ErrNoQuorum        = errors.New("etcdserver: no leader")
	ErrTooManyLearners = errors.New("etcdserver: too many learner members in cluster")
	ErrUnhealthy       = errors.New("etcdserver: unhealthy cluster")
	ErrNotEnough       = errors.New("etcdserver: re-configuration failed due to not enough started members")
	ErrNotCaughtUp     = errors.New("etcdserver: can only promote a learner member which is in sync with leader")
	ErrNoMember        = errors.New("etcdserver: member not found")
)

// Seed is a member of the cluster that a World begins with.
type Seed struct {
	Host string
	Name string
}

// Datastore is etcd as the world needs it: one member a host at most. The one
// in memory is raft; the demo has one made of real members. It is called from
// one goroutine.
type Datastore interface {
	// Found starts a cluster of voters and returns their ids in order.
	Found(seeds []Seed) ([]fleet.MemberID, error)
	ClusterID() fleet.MemberID

	// Start runs the host's member: from its WAL, or, with join, for the first
	// time as the member id that Add returned, under a name.
	Start(host, name string, id fleet.MemberID, join bool) error
	// Stop ends the host's member; nothing happens when none runs. Gracefully
	// means that a leader hands over first.
	Stop(host string, gracefully bool)
	// Wipe takes the host's datastore away.
	Wipe(host string)

	// Local is what the host's own member says. A learner refuses the member
	// list; a voter without a quorum knows the list it last saw.
	Local(host string) hostapi.Member
	// Removed says whether the host's running member has learnt from a peer
	// that it is a member no more.
	Removed(host string) bool

	// Members is the committed list, with its error when there is no quorum.
	Members() ([]status.Member, error)
	// Leader is zero when there is none.
	Leader() fleet.MemberID
	Add(host string) (fleet.MemberID, error)
	Promote(id fleet.MemberID) error
	Remove(id fleet.MemberID) error
	MoveLeader(to fleet.MemberID) error

	// Tick lets time pass.
	Tick(now time.Time)
}
