package fitness

import (
	"cmp"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Fitness is what a verdict comes to.
type Fitness string

// Fitnesses. Unknown is a value of its own: such a host is neither promoted
// nor taken out.
const (
	Fit     Fitness = "fit"
	Unfit   Fitness = "unfit"
	Unknown Fitness = "unknown"
)

// Verdict is what is said of one host, with every reason.
type Verdict struct {
	Node    string  `json:"node"`
	Votes   bool    `json:"votes"`
	Fitness Fitness `json:"fitness"`
	// Reasons are why, the gravest first. Notes are among them: a host may be fit
	// and have some.
	Reasons []Reason `json:"reasons,omitempty"`
	// Measures are everything that was judged, good or bad, in a fixed order.
	Measures []Measure `json:"measures,omitempty"`

	// BadLinks is on how many bad links to other voters a voter is, and Seen how
	// many hosts that do not vote find it bad to reach. They rank causes.
	BadLinks int `json:"bad_links,omitempty"`
	Seen     int `json:"seen,omitempty"`
	// LastingLinks are those of its bad links that last (Policy.Lasting).
	LastingLinks int `json:"lasting_links,omitempty"`
	// Part is the voter's part in its bad links.
	Part Part `json:"part,omitempty"`
	// Margin is the worst measure as a share of its limit: for a voter over 1 is
	// beyond it, for a standby it is a share of what is asked of a newcomer. Links
	// that others are to blame for do not count.
	Margin float64 `json:"margin"`

	Link LinkKind `json:"link,omitempty"`
	// Samples, From and To are the window it comes from, by the host's clock.
	Samples int       `json:"samples,omitempty"`
	From    time.Time `json:"from,omitzero"`
	To      time.Time `json:"to,omitzero"`
	// Members are the ids that the host's own etcd knows (R-228-35).
	Members []fleet.MemberID `json:"members,omitempty"`
}

// Part is a voter's part in bad links.
type Part string

// Parts. A suspect is one of several on equally many bad links: which of them is
// the cause cannot be told.
const (
	Cause   Part = "cause"
	Suspect Part = "suspect"
	Victim  Part = "victim"
)

// Weight is what a reason does to a verdict.
type Weight string

// Weights, the gravest first.
const (
	// Ground makes a host unfit; a voter may be swapped out for it.
	Ground Weight = "ground"
	// Bar makes a host unfit to come in; no voter is swapped out for it.
	Bar Weight = "bar"
	// Gap is something that is not known and must be.
	Gap Weight = "gap"
	// Note is evidence, never a reason alone.
	Note Weight = "note"
)

// Reason is one finding with its numbers.
type Reason struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
	Weight   Weight `json:"weight"`
	// Lasting: it is more than chance or one bad moment (Policy.Lasting). Without a
	// ground that lasts no voter is swapped out.
	Lasting bool `json:"lasting,omitempty"`
	// Peer is the host at the other end of a link.
	Peer string `json:"peer,omitempty"`
	// Measure is what was measured, nil where nothing was.
	Measure *Measure `json:"measure,omitempty"`
}

// Measure is one value that was judged, with its limit and where it comes from.
type Measure struct {
	Kind Kind   `json:"kind"`
	Peer string `json:"peer,omitempty"`
	// Lower and Upper are the value: equal where it is exact, the edges of a bucket
	// where it comes from a histogram. Open: it has no upper edge.
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
	Open  bool    `json:"open,omitempty"`
	// Limit is what it was held to: of a voter the limit of being unfit, of a
	// standby what is asked of a newcomer.
	Limit float64 `json:"limit"`
	// Margin is the value as a share of the limit; of an interval its lower edge
	// for a voter and its upper one for a standby; of what must not fall short,
	// the limit as a share of the value.
	Margin float64 `json:"margin"`
	// Samples are how many readings or observations it comes from; From and To are
	// zero where that is the whole window of the verdict.
	Samples int       `json:"samples"`
	From    time.Time `json:"from,omitzero"`
	To      time.Time `json:"to,omitzero"`
	// Beyond is how many samples are beyond the limit of a voter by themselves, and
	// SpreadMS how far apart the first and the last of them are. Of connects the slow
	// and the failed ones count together, as they do for what has to last.
	Beyond   int   `json:"beyond,omitempty"`
	SpreadMS int64 `json:"spread_ms,omitempty"`
}

// Kind says what was measured and in which unit.
type Kind string

// Kinds of a measure: times in seconds, ratios from 0 to 1, memory in bytes.
const (
	ConnectP99       Kind = "connect_p99_seconds"
	ConnectFailed    Kind = "connect_failed_ratio"
	RoundTripMean    Kind = "round_trip_mean_seconds"
	WALFsyncP99      Kind = "wal_fsync_p99_seconds"
	BackendCommitP99 Kind = "backend_commit_p99_seconds"
	FsyncP99         Kind = "fsync_p99_seconds"
	MemoryOver       Kind = "memory_over_ratio"
	MemoryAvailable  Kind = "memory_available_bytes"
)

// Codes of a verdict's reasons.
const (
	CodeNoEntry       = "NoProbeEntry"
	CodeProbeSilent   = "ProbeSilent"
	CodeProbePeriod   = "ProbePeriod"
	CodeNotSeen       = "ProbeNotSeenYet"
	CodeFilling       = "WindowFilling"
	CodeGap           = "ReadingMissing"
	CodeFewTimes      = "TooFewObservations"
	CodeSlowLink      = "LinkSlow"
	CodeLossyLink     = "LinkLossy"
	CodeSlowTrips     = "RoundTripSlow"
	CodeVictim        = "LinkVictim"
	CodeWALFsync      = "WALFsyncSlow"
	CodeBackendCommit = "BackendCommitSlow"
	CodeFsync         = "FsyncSlow"
	CodeMemoryOver    = "MemoryOver"
	CodeBelowQuota    = "MemoryBelowQuota"
	CodeWiFi          = "WiFi"
	CodeRestarted     = "RestartedLately"
	CodeLeaderChanges = "LeaderChanges"
	CodeSendFailures  = "HeartbeatSendFailures"
	CodeSlowApplies   = "SlowApplies"
	CodeUncertain     = "WithinTheBucket"
	CodeTrimmed       = "MoreReasons"
)

// Grounds are the reasons for which a voter may be swapped out.
func (v *Verdict) Grounds() []Reason {
	return slices.DeleteFunc(slices.Clone(v.Reasons), func(r Reason) bool { return r.Weight != Ground })
}

// Without is a standby's verdict when the host out is not a voter any more: its
// links to out do not count, all others do, whoever is to blame for them
// (R-185-23). The margin is that against the others.
func (v *Verdict) Without(out string) (Fitness, []Reason, float64) {
	left := slices.DeleteFunc(slices.Clone(v.Reasons), func(r Reason) bool { return r.Peer == out && out != "" })
	for i := range left {
		if left[i].Code == CodeVictim {
			left[i].Weight = Bar
		}
	}
	margin := 0.0
	for _, m := range v.Measures {
		if m.Peer != out || out == "" {
			margin = max(margin, m.Margin)
		}
	}
	return fitness(left), left, margin
}

// fitness is what reasons come to. What is known to be wrong outweighs what is
// not known; Judge gives no other reason where nothing can be known.
func fitness(rs []Reason) Fitness {
	f := Fit
	for _, r := range rs {
		switch r.Weight {
		case Ground, Bar:
			return Unfit
		case Gap:
			f = Unknown
		}
	}
	return f
}

var weights = []Weight{Ground, Bar, Gap, Note}

func (v *Verdict) add(r Reason) { v.Reasons = append(v.Reasons, r) }

// finish sorts the reasons and draws the conclusion.
func (v *Verdict) finish() {
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(slices.Index(weights, a.Weight), slices.Index(weights, b.Weight)), cmp.Compare(b.margin(), a.margin()), cmp.Compare(a.Peer, b.Peer))
	})
	v.Fitness = fitness(v.Reasons)
	excused := map[string]bool{}
	for _, r := range v.Reasons {
		if r.Code == CodeVictim {
			excused[r.Peer] = true
		} else if r.Weight != Note {
			v.Margin = max(v.Margin, r.margin())
		}
	}
	for _, m := range v.Measures {
		if m.Peer == "" || !excused[m.Peer] {
			v.Margin = max(v.Margin, m.Margin)
		}
	}
}

func (r Reason) margin() float64 {
	if r.Measure == nil {
		return 0
	}
	return r.Measure.Margin
}
