package fitness

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
)

// Sample is one host's reading of one period (R-185-01). A reading that could
// not be taken is nil or empty and named in Absent, never a zero.
type Sample struct {
	// At is the host's clock. Only differences inside one window are used.
	At time.Time
	// Restart says that this is the first sample after something began anew.
	Restart Restart

	// Connect is the way to every voter's peer port, the host itself excepted
	// (R-185-03). Empty when the reading is absent or there is no other voter.
	Connect []Connect
	// Link is where the default route leaves; its Kind is empty when absent (R-185-07).
	Link Link
	// Memory is what levels read as well (R-185-06); nil when absent.
	Memory *level.Reading
	// Etcd is of a voter or learner only (R-185-04); nil when absent.
	Etcd *Etcd
	// Fsync is of a host without etcd, once a window (R-185-05); nil in between.
	Fsync *Fsync

	// Absent names the readings that should be here and are not.
	Absent []Absence
}

// Restart says what began anew before a sample.
type Restart string

// Restarts. Of several the one further down is named.
const (
	NoRestart Restart = ""
	// RestartProbe: the probe began; host and etcd may have gone on.
	RestartProbe Restart = "probe"
	// RestartEtcd: etcd began, or was seen for the first time: its counters are
	// smaller than before, or its start time is another.
	RestartEtcd Restart = "etcd"
	// RestartHost: the boot id is another than that of the samples before.
	RestartHost Restart = "host"
)

// Reading names one sensor.
type Reading string

// Readings; `regrade probe check` takes these words (R-185-08).
const (
	ReadingConnect Reading = "connect"
	ReadingLink    Reading = "link"
	ReadingMemory  Reading = "memory"
	ReadingEtcd    Reading = "etcd"
	ReadingFsync   Reading = "fsync"
)

// Absence is a reading that could not be taken, and why: a short code of
// letters, at most 32.
type Absence struct {
	Reading Reading
	Code    string
}

// Connect is one TCP connect to a voter's peer port.
type Connect struct {
	To string // the voter's node name
	// Took is the time until it stood; without meaning when Failed.
	Took   time.Duration
	Failed bool
	// Why it failed, as far as that says something of the host at the other end. An
	// entry keeps it of its newest samples.
	Why Failure
}

// Failure is what a failed connect says of the host at the other end.
type Failure string

// Failures. What is neither, such as a socket that could not be had, says nothing of
// the other end; nor does the entry of a probe of before there were failures.
const (
	// Refused: something at its address answered that it takes no connection. The
	// host runs, whatever of it does not.
	Refused Failure = "refused"
	// Unanswered: nothing came back in time, or the network says that there is no way.
	Unanswered Failure = "unanswered"
)

// Link is the interface of the default route.
type Link struct {
	Kind      LinkKind
	Interface string
}

// LinkKind is what carries the default route.
type LinkKind string

// Kinds of a link. Unseen is an interface whose link cannot be looked at, such
// as a tunnel: it is a reading, not an absent one.
const (
	Wired  LinkKind = "wired"
	WiFi   LinkKind = "wifi"
	Unseen LinkKind = "unseen"
)

// Etcd is what a member's own metrics page says (k3s-facts §11.4).
type Etcd struct {
	Member    fleet.MemberID // its own id
	HasLeader bool
	IsLeader  bool
	IsLearner bool
	// KnownMembers is the sum of etcd_network_known_peers for this member, which
	// counts itself and learners. Zero is not known: etcd 3.5 does not say.
	KnownMembers int
	// ActivePeers are peers with at least one active stream; two streams are one
	// peer (R-185-24).
	ActivePeers int
	// DBSizeBytes and QuotaBytes are of its storage; zero when the page has none.
	DBSizeBytes, QuotaBytes uint64
	// Gains since the sample before; nil after a restart.
	Gains *Gains
}

// Gains are what etcd's counters gained since the sample before.
type Gains struct {
	WALFsync, BackendCommit Histogram // buckets of DiskBounds
	RoundTrip               []PeerRoundTrip
	LeaderChanges           uint32
	HeartbeatSendFailures   uint32
	SlowApplies             uint32
}

// PeerRoundTrip is etcd's own probe of one peer.
type PeerRoundTrip struct {
	Peer      fleet.MemberID
	Histogram Histogram // buckets of PeerBounds
}

// Fsync is a run of appends with fdatasync on the disk that would hold the
// datastore.
type Fsync struct {
	Count         int
	P50, P99, Max time.Duration
}
