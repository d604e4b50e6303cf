package platform

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Facts is a host as it was seen in one go.
type Facts struct {
	Files rolefile.Files `json:"files"`

	// Datastore: server/db/etcd exists, with a WAL or without.
	Datastore bool `json:"datastore,omitempty"`
	// MemberName is server/db/etcd/name.
	MemberName string `json:"member_name,omitempty"`
	// EtcdCerts: the etcd client certificate is there, without which no member
	// was ever added for this host.
	EtcdCerts bool `json:"etcd_certs,omitempty"`
	// Staged: the server configuration is there (R-D1-17, R-228-15).
	Staged bool `json:"staged,omitempty"`

	// Password is the fingerprint of the node password that is there now, empty when
	// there is none.
	Password string `json:"password,omitempty"`
	// AgentProblem says why the agent could not start by its own configuration,
	// empty when nothing speaks against it (safety rule 15).
	AgentProblem string `json:"agent_problem,omitempty"`
	// DatastoreProblem says why the datastore could not be moved aside, empty when
	// nothing speaks against it (safety rule 14).
	DatastoreProblem string `json:"datastore_problem,omitempty"`

	// Level is what the next start of the server takes.
	Level fleet.Level `json:"level,omitempty"`
	// ServerJoin and AgentJoin are the URLs of our own join drop-ins.
	ServerJoin string `json:"server_join,omitempty"`
	AgentJoin  string `json:"agent_join,omitempty"`

	// LevelRun is the level that this daemon had applied last, where a program of the
	// host's owner does that.
	LevelRun LevelRun `json:"level_run,omitzero"`

	Server Unit `json:"server"`
	Agent  Unit `json:"agent"`

	// Owed is the role whose k3s this boot still owes: the files let it start, nothing
	// of it runs, and the platform does not see to it by itself. systemd does, at every
	// boot; an engine leaves down what it was told to stop before (k3s-facts §12). A k3s
	// that runs in a network that is gone is owed a start as well.
	Owed fleet.Role `json:"owed,omitempty"`

	// Warnings hold nothing up, and somebody should know of them.
	Warnings []Warning `json:"warnings,omitempty"`

	// Shims is the number of container shims that run on the host.
	Shims int `json:"shims,omitempty"`
	// PeerPort: the daemon holds etcd's peer port.
	PeerPort bool `json:"peer_port,omitempty"`

	Snapshot SnapshotRun `json:"snapshot,omitzero"`
	// Snapshots are the files of regrade's own etcd snapshots, oldest first.
	Snapshots []string `json:"snapshots,omitempty"`

	K3sVersion string `json:"k3s_version,omitempty"`

	// Journal is what SetJournal wrote, nil when nothing did.
	Journal []byte `json:"journal,omitempty"`
	// LevelJournal is what SetLevelJournal wrote, nil when nothing did.
	LevelJournal []byte `json:"level_journal,omitempty"`
}

// Warning is a condition of the host, by its code.
type Warning struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
}

// Unit is one of k3s's two units (or containers).
type Unit struct {
	State State `json:"state"`
	// Job: systemd has work queued for the unit.
	Job Job `json:"job,omitempty"`
	// Process: a k3s process of this role was looked for and found. A unit that
	// is inactive while its process lives has not stopped (safety rule 10).
	Process bool `json:"process,omitempty"`
	// Level is what the running server was started with, empty when unknown.
	Level fleet.Level `json:"level,omitempty"`
	// Since is when the unit was last started, by the host's clock.
	Since time.Time `json:"since,omitzero"`
	// Conditioned: the unit asks role-is before each start. Without that no
	// role may be switched here.
	Conditioned bool `json:"conditioned,omitempty"`
	// ConditionProblem says why not, where the platform knows more than that.
	ConditionProblem string `json:"condition_problem,omitempty"`
}

// Gone says that the unit is at rest: nothing runs, nothing is queued.
func (u Unit) Gone() bool {
	return !u.Process && u.Job == JobNone && (u.State == StateInactive || u.State == StateFailed)
}

// Rising says that the unit runs or is on its way: a start would add nothing.
func (u Unit) Rising() bool {
	return u.State == StateActive || u.State == StateActivating || u.Job == JobStart
}

// State of a unit.
type State string

// States. Activating lasts until READY, which may never come (k3s-facts §3.7),
// and covers the wait before an automatic restart.
const (
	StateInactive     State = "inactive"
	StateActivating   State = "activating"
	StateActive       State = "active"
	StateDeactivating State = "deactivating"
	StateFailed       State = "failed"
)

// Job is what is queued for a unit.
type Job string

// Jobs. JobOther is anything else, such as a reload.
const (
	JobNone  Job = ""
	JobStart Job = "start"
	JobStop  Job = "stop"
	JobOther Job = "other"
)

// LevelRun is a level that is applied by a program. What one came to is there until the
// next note of a step.
type LevelRun struct {
	// Applies: setting a level restarts the server into it by itself.
	Applies bool        `json:"applies,omitempty"`
	Level   fleet.Level `json:"level,omitempty"`
	Running bool        `json:"running,omitempty"`
	Output  string      `json:"output,omitempty"`
	Error   string      `json:"error,omitempty"`
}

// SnapshotRun is the etcd snapshot last begun by this daemon.
type SnapshotRun struct {
	Base    string `json:"base,omitempty"`
	Running bool   `json:"running,omitempty"`
	Error   string `json:"error,omitempty"`
}
