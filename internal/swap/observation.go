package swap

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// Observation is everything a decision may look at, read before anything acts.
// Hosts are sorted by name. Durable times are the API server's Date; ages are
// by the observer's monotonic clock (safety rule 22).
type Observation struct {
	// Now is the API server's Date.
	Now time.Time `json:"now"`
	// Self is this controller's own id (its pod's UID).
	Self string `json:"self"`

	Lease lease.Lease `json:"lease"`
	// LeaseUnchanged is how long this controller has seen the Lease's renew
	// time stand still; zero when it has just changed or was just first seen.
	LeaseUnchanged time.Duration `json:"lease_unchanged,omitempty"`

	Hosts []Host `json:"hosts"`

	// Status is the last published status, nil when there is none or it cannot
	// be read: StatusProblem then says why.
	Status        *status.Status `json:"status,omitempty"`
	StatusProblem string         `json:"status_problem,omitempty"`

	// Request is a person's request, nil when there is none. RequestProblem
	// says what is wrong with one that cannot be read.
	Request        *status.Request `json:"request,omitempty"`
	RequestProblem string          `json:"request_problem,omitempty"`

	// Pause is a person's pause, nil when there is none. One that cannot be read
	// is a pause all the same: PauseProblem says why it cannot.
	Pause        *status.Pause `json:"pause,omitempty"`
	PauseProblem string        `json:"pause_problem,omitempty"`

	// Automatic is the swap that the fitness verdicts ask for, nil when none.
	Automatic *Pair `json:"automatic,omitempty"`

	// Snapshots are the etcd snapshots the cluster publishes whose base name
	// begins with fleet.SnapshotPrefix.
	Snapshots []Snapshot `json:"snapshots,omitempty"`

	// Missing says what could not be read in this pass, in sentences. A step
	// that needs it is held (safety rule 24).
	Missing []string `json:"missing,omitempty"`
}

// Pair is an outgoing voter and an incoming standby.
type Pair struct {
	Out string `json:"out"`
	In  string `json:"in"`
}

// Host is one Node with what its host daemon reports. Every Node is listed:
// nothing is filtered before the decision.
type Host struct {
	Name string `json:"name"`
	Node Node   `json:"node"`

	// Report is nil when the host has none; ReportProblem says what is wrong
	// with one that cannot be read, or that its heartbeat contradicts.
	Report        *status.Report `json:"report,omitempty"`
	ReportProblem string         `json:"report_problem,omitempty"`
	// Fresh: the report, or a heartbeat that vouches for just this report, has
	// changed since this controller looked, within three periods of the monotonic
	// clock. ReportAge is how long ago that change was seen.
	Fresh     bool          `json:"fresh,omitempty"`
	ReportAge time.Duration `json:"report_age,omitempty"`
	// Speaks: the host's heartbeat has moved within three periods, whatever it vouches
	// for, or this controller has not looked for longer. A host daemon that speaks is
	// not silent, though nobody can tell what it says (safety rule 24).
	Speaks bool `json:"speaks,omitempty"`
	// ReadWithin is how long ago the news before the last was seen. The pass that the
	// last one tells of began after that news was written: so whatever was seen in a
	// look before it was true before the pass began. Zero when there were no two: one
	// change alone may come from a pass that began at any time.
	ReadWithin time.Duration `json:"read_within,omitempty"`
	// StoppedAge is how long this controller has known the host's word that its
	// server process is gone; zero when the report does not say so.
	StoppedAge time.Duration `json:"stopped_age,omitempty"`

	// Pods are the pods bound to the Node, read only for the two nodes of a
	// swap or a request. PodsRead tells an empty list from one not read.
	Pods     []Pod `json:"pods,omitempty"`
	PodsRead bool  `json:"pods_read,omitempty"`

	// KubeletRenewed is the renew time of the kubelet's Lease, read only for
	// the two nodes of a swap and for pending ones. ReadySince in Node and this
	// are both written by the same kubelet.
	KubeletRenewed time.Time `json:"kubelet_renewed,omitzero"`
	// KubeletChanged: that renew time has changed since StartedAt of the current
	// report was first seen (R-216-20, R-228-23): a heartbeat later than the start.
	KubeletChanged bool `json:"kubelet_changed,omitempty"`
}

// Node is what a Node object says.
type Node struct {
	UID           string            `json:"uid,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
	Taints        []Taint           `json:"taints,omitempty"`
	Unschedulable bool              `json:"unschedulable,omitempty"`
	Ready         bool              `json:"ready,omitempty"`
	// EtcdIsVoter is the condition's status: "True", "False", "Unknown" or "".
	EtcdIsVoter string `json:"etcd_is_voter,omitempty"`
	InternalIP  string `json:"internal_ip,omitempty"`
	// KubeletVersion is like v1.34.2+k3s1.
	KubeletVersion string `json:"kubelet_version,omitempty"`
	Deleting       bool   `json:"deleting,omitempty"`
}

// Taint is one taint of a Node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Pod is one pod that is not finished.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Protected: matches the runner selector; a planned change never cuts it (R-I-07).
	Protected bool `json:"protected,omitempty"`
	// Stays: a mirror or DaemonSet pod, which no drain evicts.
	Stays bool `json:"stays,omitempty"`
	// Owned: has a controller that would make it again.
	Owned bool `json:"owned,omitempty"`
	// Terminating: eviction was accepted and the pod is on its way out.
	Terminating bool `json:"terminating,omitempty"`
	// Blocked is the API server's answer to a dry-run eviction when it refuses,
	// such as the name of a disruption budget (safety rule 20).
	Blocked string `json:"blocked,omitempty"`
}

// Snapshot is one ETCDSnapshotFile object.
type Snapshot struct {
	Name  string `json:"name"` // spec.snapshotName
	Node  string `json:"node"`
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"`
}

// Host returns the host of a name, nil when there is none.
func (o *Observation) Host(name string) *Host {
	for i := range o.Hosts {
		if o.Hosts[i].Name == name {
			return &o.Hosts[i]
		}
	}
	return nil
}

// Policy is what an operator may set; none of it changes with an observation.
type Policy struct {
	Keys   fleet.Keys `json:"-"`
	Target int        `json:"target"`
	DryRun bool       `json:"dry_run"`

	Period           time.Duration `json:"period"`
	OperationTimeout time.Duration `json:"operation_timeout"` // 300 s
	RunnerWait       time.Duration `json:"runner_wait"`       // 3600 s
	LearnerStall     time.Duration `json:"learner_stall"`     // k3s: 300 s
	SnapshotTimeout  time.Duration `json:"snapshot_timeout"`  // 120 s
	DrainTimeout     time.Duration `json:"drain_timeout"`     // 300 s
	FinishTimeout    time.Duration `json:"finish_timeout"`    // 300 s
	TakeOver         time.Duration `json:"take_over"`         // 30 s
	Cooldown         time.Duration `json:"cooldown"`          // 300 s and one window
	AbandonBackoff   time.Duration `json:"abandon_backoff"`   // 1 h, doubling
	MaxSkew          time.Duration `json:"max_skew"`          // 30 s
	// JustNow is how old a report may be to count as an answer given now
	// (safety rules 2 and 8): during a swap hosts write every 2 s.
	JustNow time.Duration `json:"just_now"`
}

// DefaultPolicy are the bounds of design §3 and §4.1 at a probe period of 15 s
// and a window of 100 samples.
func DefaultPolicy() Policy {
	return Policy{
		Keys:             fleet.DefaultKeys(),
		Target:           3,
		DryRun:           true,
		Period:           15 * time.Second,
		OperationTimeout: 300 * time.Second,
		RunnerWait:       time.Hour,
		LearnerStall:     300 * time.Second,
		SnapshotTimeout:  120 * time.Second,
		DrainTimeout:     300 * time.Second,
		FinishTimeout:    300 * time.Second,
		TakeOver:         30 * time.Second,
		Cooldown:         300*time.Second + 100*15*time.Second,
		AbandonBackoff:   time.Hour,
		MaxSkew:          30 * time.Second,
		JustNow:          10 * time.Second,
	}
}
