package hostd

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Kind names one effect on the host. Each is safe to repeat.
type Kind string

// Kinds of effect; the empty kind is none.
const (
	Note       Kind = "note"        // write the journal
	WriteRole  Kind = "role"        // write the role file
	Leave      Kind = "leaving"     // write or delete the leaving file
	Join       Kind = "joining"     // write or delete the joining file
	Identify   Kind = "identity"    // write cluster-id, member-id, voters
	SetLevel   Kind = "level"       // write or delete the level drop-in
	SetJoin    Kind = "join-url"    // write or delete a role's join drop-ins
	Start      Kind = "start"       // queue a unit's start
	Stop       Kind = "stop"        // stop a unit
	Restart    Kind = "restart"     // restart the server
	KillShims  Kind = "kill-shims"  // end the pods a stopped agent part left
	MoveAside  Kind = "aside"       // move the datastore aside
	Snapshot   Kind = "snapshot"    // begin an etcd snapshot
	Prune      Kind = "prune"       // keep the newest etcd snapshots of ours
	PeerPort   Kind = "peer-port"   // hold etcd's peer port or let it go
	MoveLeader Kind = "move-leader" // hand etcd's leadership over

	NoteLevel    Kind = "level-note"    // write the journal of a level's step
	TakeLease    Kind = "take-lease"    // take the Lease for it, and never renew it
	ReleaseLease Kind = "release-lease" // let the own node's Lease go
	MarkNode     Kind = "mark-node"     // level label and cordon of the own Node
	EvictPods    Kind = "evict"         // evict the pods of the own Node that may go
)

// Effect is one effect with all it needs.
type Effect struct {
	Kind     Kind              `json:"kind"`
	Role     fleet.Role        `json:"role,omitempty"`     // WriteRole, SetJoin, Start, Stop
	Swap     fleet.SwapID      `json:"swap,omitempty"`     // Leave; empty deletes
	Joining  rolefile.Joining  `json:"joining,omitzero"`   // Join; zero deletes
	Identity rolefile.Identity `json:"identity,omitzero"`  // Identify
	Level    fleet.Level       `json:"level,omitempty"`    // SetLevel, MarkNode
	URL      string            `json:"url,omitempty"`      // SetJoin; empty deletes
	Base     string            `json:"base,omitempty"`     // Snapshot
	Keep     int               `json:"keep,omitempty"`     // Prune
	Hold     bool              `json:"hold,omitempty"`     // PeerPort
	Member   fleet.MemberID    `json:"member,omitzero"`    // MoveLeader
	Journal  *Journal          `json:"journal,omitempty"`  // Note
	At       time.Time         `json:"at,omitzero"`        // TakeLease: its acquire time
	Restarts bool              `json:"restarts,omitempty"` // SetLevel, where that restarts the server by itself

	LevelJournal *LevelJournal `json:"level_journal,omitempty"` // NoteLevel
}

// moves says whether the effect changes which k3s process runs: what the votes of
// the cluster and its list of members hang on.
func (e Effect) moves() bool {
	return e.Kind == Start || e.Kind == Stop || e.Kind == Restart || e.Restarts
}

// Decision is what Next returns: an effect, or why there is none.
type Decision struct {
	Effect Effect `json:"effect,omitzero"`

	// Code and Sentence say what the host waits for, or what is wrong. Both are
	// empty when there is nothing to do.
	Code     string `json:"code,omitempty"`
	Sentence string `json:"sentence,omitempty"`

	// Level is what the level half waits for, or why it changes nothing; its wait holds up
	// no other rule.
	Level Said `json:"level,omitzero"`

	// Soon: what it waits for happens on this host within moments, so the next
	// pass comes quickly.
	Soon bool `json:"soon,omitempty"`
}

// Said is a reason code and its sentence.
type Said struct {
	Code     string `json:"code,omitempty"`
	Sentence string `json:"sentence,omitempty"`
}

// Acts says whether there is an effect.
func (d Decision) Acts() bool { return d.Effect.Kind != "" }
