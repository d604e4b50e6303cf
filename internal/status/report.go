package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Report is what a host daemon says of its host, one key a node in
// fleet-role-actuators (R-D1-07, R-D1-08). It is written when something in it
// changed; a heartbeat Lease with the same BootID and Counter says that it
// still holds (safety rule 29).
type Report struct {
	Protocol int `json:"protocol"`

	// The step last taken, empty before the first.
	Swap      fleet.SwapID `json:"swap,omitempty"`
	Step      fleet.Step   `json:"step,omitempty"`
	Phase     fleet.Phase  `json:"phase,omitempty"`
	Code      string       `json:"code,omitempty"`    // reason code of a refusal, a failure or a wait
	Message   string       `json:"message,omitempty"` // the same for people
	StartedAt time.Time    `json:"started_at,omitzero"`
	// Stopped says, in a rollback or a finish, that the server process is gone
	// (safety rules 6 and 16). The process is looked for, not assumed.
	Stopped bool `json:"stopped,omitempty"`
	// Snapshot is the base name of the etcd snapshot taken for the swap (R-216-25).
	Snapshot string `json:"snapshot,omitempty"`

	Role    fleet.Role  `json:"role,omitempty"`
	Level   fleet.Level `json:"level,omitempty"`
	Leaving bool        `json:"leaving,omitempty"`

	// At is the host's wall clock, for people; nothing is decided by it. SkewMS
	// is that clock less the API server's Date.
	At     time.Time `json:"at"`
	SkewMS int64     `json:"skew_ms,omitempty"`

	BootID  string `json:"boot_id"`
	Counter uint64 `json:"counter"`

	ClusterID  fleet.MemberID `json:"cluster_id,omitzero"`
	MemberID   fleet.MemberID `json:"member_id,omitzero"`
	K3sVersion string         `json:"k3s_version,omitempty"`

	// Etcd is what the host's own etcd says, nil on an agent.
	Etcd *EtcdView `json:"etcd,omitempty"`
	// Preflight is kept by a standby, nil elsewhere (safety rule 17).
	Preflight *Preflight `json:"preflight,omitempty"`
	// AsAgent is kept by a server, nil elsewhere: whether it could come back as an
	// agent (safety rule 15).
	AsAgent *Preflight `json:"as_agent,omitempty"`
	// Standbys says which standbys' peer ports this voter reaches.
	Standbys []Dial `json:"standbys,omitempty"`
	// Regrade is of a host whose level half is on, nil elsewhere.
	Regrade *Regrade `json:"regrade,omitempty"`
}

// Regrade is what the level half of a host says: the step between levels that it is in,
// or took last, and why it takes none now.
type Regrade struct {
	From    fleet.Level `json:"from,omitempty"`
	To      fleet.Level `json:"to,omitempty"`
	Phase   fleet.Phase `json:"phase,omitempty"`
	By      string      `json:"by,omitempty"`      // pressure or hand
	Code    string      `json:"code,omitempty"`    // what the step came to
	Message string      `json:"message,omitempty"` // the same for people
	Began   time.Time   `json:"began,omitzero"`    // the API server's Date
	Ended   time.Time   `json:"ended,omitzero"`
	// Wait is the reason code of what holds the step, or the next one; Why for people.
	Wait string `json:"wait,omitempty"`
	Why  string `json:"why,omitempty"`
}

// EtcdView is a member's own sight of its cluster.
type EtcdView struct {
	// Linearizable: it answered a linearizable read, hence has a leader and a quorum.
	Linearizable bool           `json:"linearizable"`
	ClusterID    fleet.MemberID `json:"cluster_id,omitzero"`
	Leader       fleet.MemberID `json:"leader,omitzero"`
	Members      []Member       `json:"members,omitempty"`
	Alarms       []string       `json:"alarms,omitempty"`
	Version      string         `json:"version,omitempty"`
	AppliedIndex uint64         `json:"applied_index,omitempty"`
	Error        string         `json:"error,omitempty"`
}

// Member is one entry of etcd's member list.
type Member struct {
	ID         fleet.MemberID `json:"id"`
	Name       string         `json:"name,omitempty"` // empty: added, never started
	PeerURLs   []string       `json:"peer_urls,omitempty"`
	ClientURLs []string       `json:"client_urls,omitempty"`
	Learner    bool           `json:"learner,omitempty"`
}

// Started says whether the member has ever started: only then it has a name.
func (m Member) Started() bool { return m.Name != "" }

// Preflight is a standby's readiness to become a server, or a server's to become
// an agent.
type Preflight struct {
	OK       bool      `json:"ok"`
	Problems []Problem `json:"problems,omitempty"`
}

// Codes of a host daemon that does nothing for its host, or nothing more, before a
// person has looked.
const (
	CodeBadJournal     = "BadJournal"
	CodeBadRoleFile    = "BadRoleFile"
	CodeBadIdentity    = "BadIdentity"
	CodeForeignCluster = "ForeignCluster"
)

// Halts says whether a code is one of those: it is worth knowing whatever has become of
// a step, and with no step at all.
func Halts(code string) bool {
	switch code {
	case CodeBadJournal, CodeBadRoleFile, CodeBadIdentity, CodeForeignCluster:
		return true
	}
	return false
}

// CodeJoinHostFalters: a server to join answers, and cannot say who the members are.
const CodeJoinHostFalters = "JoinHostFalters"

// JoinPatience is for how long the servers to join may falter before a swap is not
// begun, or a promotion refused, for it: etcd elects within seconds, and the host has
// been found fit otherwise.
const JoinPatience = 60 * time.Second

// Falters says whether servers to join that answer, and cannot say who the members
// are, are all that speaks against the role. It passes by itself.
func (p Preflight) Falters() bool {
	return len(p.Problems) > 0 && !slices.ContainsFunc(p.Problems, func(x Problem) bool { return x.Code != CodeJoinHostFalters })
}

// Problem is one thing that is missing, by code and in words.
type Problem struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
}

// Dial is the outcome of one TCP connect to a standby's listener.
type Dial struct {
	Node  string `json:"node"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// SameAs says whether two reports differ in nothing worth a write. The clock,
// the counter and the applied index move all the time and are not looked at.
func (r Report) SameAs(o Report) bool {
	a, errA := json.Marshal(r.still())
	b, errB := json.Marshal(o.still())
	return errA == nil && errB == nil && string(a) == string(b)
}

func (r Report) still() Report {
	r.At, r.Counter = time.Time{}, 0
	// A skew is worth a write when it has moved by seconds.
	r.SkewMS = r.SkewMS / 5000
	if r.Etcd != nil {
		e := *r.Etcd
		e.AppliedIndex = 0
		r.Etcd = &e
	}
	return r
}

// ParseReport reads one key of fleet-role-actuators.
func ParseReport(raw []byte) (Report, error) {
	var r Report
	if len(raw) > MaxDocument {
		return r, fmt.Errorf("report: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	if r.Protocol != Protocol {
		return Report{}, fmt.Errorf("report: protocol %d, this program speaks %d", r.Protocol, Protocol)
	}
	if r.BootID == "" {
		return Report{}, fmt.Errorf("report: no boot_id")
	}
	if r.Phase != "" {
		if _, err := fleet.ParsePhase(string(r.Phase)); err != nil {
			return Report{}, fmt.Errorf("report: %w", err)
		}
	}
	if r.Step != "" {
		if _, err := fleet.ParseReported(string(r.Step)); err != nil {
			return Report{}, fmt.Errorf("report: %w", err)
		}
	}
	if r.Role != "" {
		if _, err := fleet.ParseRole(string(r.Role)); err != nil {
			return Report{}, fmt.Errorf("report: %w", err)
		}
	}
	if _, err := fleet.ParseLevel(string(r.Level)); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	if r.Swap != "" {
		if _, err := fleet.ParseSwapID(string(r.Swap)); err != nil {
			return Report{}, fmt.Errorf("report: %w", err)
		}
	}
	return r, nil
}
