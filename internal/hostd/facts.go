package hostd

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// Facts is everything a decision may look at, read before anything acts.
type Facts struct {
	// Now is the host's clock before anything of the cluster was asked, for people
	// (started_at), and, by its monotonic part, for how old these facts are.
	Now  time.Time `json:"now"`
	Node string    `json:"node"`

	Host platform.Facts `json:"host"`

	// Journal is the daemon's own note. JournalProblem says what is wrong with
	// one that cannot be read: then nothing is done.
	Journal        Journal `json:"journal,omitzero"`
	JournalProblem string  `json:"journal_problem,omitempty"`

	// View is nil when no API server answered: ViewProblem says why.
	View        *hostapi.View  `json:"view,omitempty"`
	ViewProblem string         `json:"view_problem,omitempty"`
	Nodes       []hostapi.Node `json:"nodes,omitempty"`

	Etcd hostapi.Member `json:"etcd"`
	// Answer is another voter's linearizable list. It is asked for while the
	// host has reason to doubt its own membership; nil otherwise.
	Answer *hostapi.Answer `json:"answer,omitempty"`

	// Others are the other members that answered in this pass. Asked for while a
	// restart of the own server, or a hand-over of leadership, is due; nil otherwise.
	Others []fleet.MemberID `json:"others,omitempty"`
	// OthersAt is when they were asked, by the clock of Now.
	OthersAt time.Time `json:"-"`

	// HandedOver is the swap for which this process has asked its etcd to hand over
	// leadership; nothing that a restart may not lose.
	HandedOver fleet.SwapID `json:"handed_over,omitempty"`
	// HandOverAt is when it last asked for that, by the clock of Now; zero once
	// leadership was seen elsewhere.
	HandOverAt time.Time `json:"-"`

	// Preflight was judged in this pass or within the last period; nil on a server.
	Preflight *status.Preflight `json:"preflight,omitempty"`
	// FalteringSince is since when nothing but a faltering join host has spoken
	// against this host, by the clock of Now; zero when that is not so.
	FalteringSince time.Time `json:"faltering_since,omitzero"`
	// Standbys are a voter's dials of the last period.
	Standbys []status.Dial `json:"standbys,omitempty"`

	// AloneSince is since when no API server has answered, by the clock of Now; zero
	// when one has.
	AloneSince time.Time `json:"alone_since,omitzero"`

	// Levels is nil where the level half is off.
	Levels *Levels `json:"levels,omitempty"`

	// Command is the step a person or an installer asked for, nil in the daemon.
	Command *Command `json:"command,omitempty"`

	Policy Policy `json:"policy"`
}

// Command is one of the steps of `regrade host`. The Node's label and the Lease
// are asked as for an annotation; the swap annotation, when it is there, must
// name the same swap (R-D1-32).
type Command struct {
	Swap fleet.SwapID `json:"swap,omitempty"`
	Step fleet.Step   `json:"step"`
	// Local: an installer's promote-local or demote-local, which needs a free
	// Lease instead of a held one.
	Local bool `json:"local,omitempty"`
	// Join is the node to join, for promote-local.
	Join string `json:"join,omitempty"`

	// Level is the level that a person asks for, in place of a step; LookAtLevels only
	// reads what a step to any level would be judged by.
	Level        fleet.Level `json:"level,omitempty"`
	LookAtLevels bool        `json:"look_at_levels,omitempty"`
}

// levels says whether the command is of levels and of nothing else.
func (c Command) levels() bool { return c.Level != "" || c.LookAtLevels }

// Policy is what host.yaml sets.
type Policy struct {
	Keys             fleet.Keys    `json:"-"`
	Period           time.Duration `json:"period"`
	OperationTimeout time.Duration `json:"operation_timeout"`
	// JoinAlone is for how long a server without a datastore goes on asking for its
	// member while no API server answers its daemon. It is below the time after which
	// the controller ends a swap without this host (swap.Policy.FinishTimeout).
	JoinAlone       time.Duration     `json:"join_alone"`
	HandOver        time.Duration     `json:"hand_over"`
	SnapshotTimeout time.Duration     `json:"snapshot_timeout"`
	KeepSnapshots   int               `json:"keep_snapshots"`
	JoinURLs        map[string]string `json:"join_urls,omitempty"`
}

// DefaultPolicy are the bounds of design §3 and §4.1.
func DefaultPolicy() Policy {
	return Policy{
		Keys:             fleet.DefaultKeys(),
		Period:           15 * time.Second,
		OperationTimeout: 300 * time.Second,
		JoinAlone:        60 * time.Second,
		HandOver:         10 * time.Second,
		SnapshotTimeout:  120 * time.Second,
		KeepSnapshots:    3,
	}
}
