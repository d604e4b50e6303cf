package probecmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// Reading is what `regrade probe check` prints as JSON: the reading taken is
// there, the others are not.
type Reading struct {
	Reading fitness.Reading `json:"reading"`
	// Faults are why it could not be taken, or not whole.
	Faults  []Fault   `json:"faults,omitempty"`
	Link    *Link     `json:"link,omitempty"`
	Connect []Connect `json:"connect,omitempty"`
	Memory  *Memory   `json:"memory,omitempty"`
	Etcd    *Etcd     `json:"etcd,omitempty"`
	Fsync   *Fsync    `json:"fsync,omitempty"`
}

// Fault is a reason.
type Fault struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
}

// Link is the default route's.
type Link struct {
	Kind      string `json:"kind"`
	Interface string `json:"interface"`
	Device    string `json:"device,omitempty"`
	Metric    uint32 `json:"metric"`
	IPv6      bool   `json:"ipv6"`
}

// Connect is one connect.
type Connect struct {
	To           string  `json:"to"`
	Milliseconds float64 `json:"ms"`
	Failed       bool    `json:"failed"`
	Error        string  `json:"error,omitempty"`
}

// Memory is a host's.
type Memory struct {
	AvailableBytes uint64    `json:"available_bytes"`
	TotalBytes     uint64    `json:"total_bytes"`
	Pressure       *Pressure `json:"pressure"`
	Over           bool      `json:"over"`
	Reasons        []string  `json:"reasons,omitempty"`
}

// Pressure is in percent of time.
type Pressure struct {
	SomeAvg10 float64 `json:"some_avg10"`
	SomeAvg60 float64 `json:"some_avg60"`
	FullAvg10 float64 `json:"full_avg10"`
	FullAvg60 float64 `json:"full_avg60"`
}

// Etcd is a member's page; counters are since it began.
type Etcd struct {
	Member                fleet.MemberID   `json:"member"`
	HasLeader             bool             `json:"has_leader"`
	IsLeader              bool             `json:"is_leader"`
	IsLearner             bool             `json:"is_learner"`
	KnownMembers          int              `json:"known_members"`
	Members               []fleet.MemberID `json:"members"`
	ActivePeers           int              `json:"active_peers"`
	DBSizeBytes           uint64           `json:"db_size_bytes"`
	QuotaBytes            uint64           `json:"quota_bytes"`
	WALFsync              Histogram        `json:"wal_fsync"`
	BackendCommit         Histogram        `json:"backend_commit"`
	RoundTrip             []RoundTrip      `json:"round_trip"`
	LeaderChanges         uint64           `json:"leader_changes"`
	HeartbeatSendFailures uint64           `json:"heartbeat_send_failures"`
	SlowApplies           uint64           `json:"slow_applies"`
}

// RoundTrip is to one peer.
type RoundTrip struct {
	Peer fleet.MemberID `json:"peer"`
	Histogram
}

// Histogram says where its p99 lies: above one bound, at or under the other, which
// is absent past the last bucket.
type Histogram struct {
	Count    uint64   `json:"count"`
	Mean     float64  `json:"mean_ms"`
	P99Above float64  `json:"p99_above_ms"`
	P99AtMax *float64 `json:"p99_at_most_ms"`
}

// Fsync is a run of appends.
type Fsync struct {
	Dir             string  `json:"dir"`
	Count           int     `json:"count"`
	P50Milliseconds float64 `json:"p50_ms"`
	P99Milliseconds float64 `json:"p99_ms"`
	MaxMilliseconds float64 `json:"max_ms"`
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func etcdOf(m sensor.Metrics) *Etcd {
	e := &Etcd{
		Member: m.Member, HasLeader: m.HasLeader, IsLeader: m.IsLeader, IsLearner: m.IsLearner,
		KnownMembers: m.KnownMembers, Members: m.Members, ActivePeers: m.ActivePeers,
		DBSizeBytes: m.DBSizeBytes, QuotaBytes: m.QuotaBytes,
		WALFsync:      histogramOf(m.WALFsync.Histogram(), fitness.DiskBounds()),
		BackendCommit: histogramOf(m.BackendCommit.Histogram(), fitness.DiskBounds()),
		LeaderChanges: uint64(m.LeaderChanges), HeartbeatSendFailures: uint64(m.SendFailures), SlowApplies: uint64(m.SlowApplies),
	}
	for id, h := range m.RoundTrip {
		e.RoundTrip = append(e.RoundTrip, RoundTrip{id, histogramOf(h.Histogram(), fitness.PeerBounds())})
	}
	slices.SortFunc(e.RoundTrip, func(a, b RoundTrip) int {
		if a.Peer < b.Peer {
			return -1
		}
		return 1
	})
	return e
}

func histogramOf(h fitness.Histogram, bounds []time.Duration) Histogram {
	out := Histogram{Count: h.Total()}
	if out.Count == 0 {
		return out
	}
	if mean, ok := h.Mean(); ok {
		out.Mean = milliseconds(mean)
	}
	above, atMost := h.P99(bounds)
	out.P99Above = milliseconds(above)
	if atMost > 0 {
		out.P99AtMax = new(milliseconds(atMost))
	}
	return out
}

// words are the reading for people, with what it will be compared with.
func (r *Reading) words(p fitness.Policy) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if l := r.Link; l != nil {
		route := "IPv4"
		if l.IPv6 {
			route = "IPv6"
		}
		below := ""
		if l.Device != "" && l.Device != l.Interface {
			below = ", carried by " + l.Device
		}
		say("link: %s; the %s default route (metric %d) leaves by %s%s", l.Kind, route, l.Metric, l.Interface, below)
	}
	for _, c := range r.Connect {
		if c.Failed {
			say("connect: %s failed: %s", c.To, c.Error)
			continue
		}
		say("connect: %s took %s ms (a voter's limit is %s, a standby's %s)", c.To, number(c.Milliseconds), p.LinkLimit(), p.LinkEntry())
	}
	if m := r.Memory; m != nil {
		r.memoryWords(m, p, say)
	}
	if e := r.Etcd; e != nil {
		e.words(p, say)
	}
	if f := r.Fsync; f != nil {
		say("fsync: %d appends in %s: p50 %s ms, p99 %s ms (a standby's limit is %s), longest %s ms", f.Count, f.Dir, number(f.P50Milliseconds), number(f.P99Milliseconds), p.WALFsync, number(f.MaxMilliseconds))
	}
	for _, f := range r.Faults {
		say("%s: not known: %s (%s)", r.Reading, f.Sentence, f.Code)
	}
	return b.String()
}

func (r *Reading) memoryWords(m *Memory, p fitness.Policy, say func(string, ...any)) {
	if m.TotalBytes > 0 {
		say("memory: %s of %s available (floor %s; a standby needs more than etcd's quota, %s unless set)", level.MiB(m.AvailableBytes), level.MiB(m.TotalBytes), level.MiB(p.Memory.AvailableFloorBytes), level.MiB(p.QuotaBytes))
	}
	if x := m.Pressure; x != nil {
		say("pressure: some %.2f %% of 10 s, %.2f %% of 60 s (limit %g %%); full %.2f %% of 10 s, %.2f %% of 60 s (limit %g %%)", x.SomeAvg10, x.SomeAvg60, p.Memory.SomeAvg60, x.FullAvg10, x.FullAvg60, p.Memory.FullAvg60)
	}
	for _, s := range m.Reasons {
		say("over: %s", s)
	}
}

func (e *Etcd) words(p fitness.Policy, say func(string, ...any)) {
	kind := "voter"
	if e.IsLearner {
		kind = "learner"
	}
	leads := map[bool]string{true: "it leads", false: "it follows"}[e.IsLeader]
	if !e.HasLeader {
		leads = "it has no leader"
	}
	knows := fmt.Sprintf("it knows %d members", e.KnownMembers)
	if e.KnownMembers == 0 {
		knows = "it does not say how many members it knows (etcd 3.5)"
	}
	say("etcd: member %s, a %s; %s; %s and is connected to %d of its peers", e.Member, kind, leads, knows, e.ActivePeers)
	if e.DBSizeBytes > 0 || e.QuotaBytes > 0 {
		say("database: %s of a quota of %s", level.MiB(e.DBSizeBytes), level.MiB(e.QuotaBytes))
	}
	say("since etcd began:")
	say("  WAL fsync: %s (limit %s)", e.WALFsync.words(), p.WALFsync)
	say("  backend commit: %s (limit %s)", e.BackendCommit.words(), p.BackendCommit)
	for _, t := range e.RoundTrip {
		say("  round trip to %s: %s (a voter's limit is a mean of %s)", t.Peer, t.words(), p.LinkLimit())
	}
	say("  %d leader changes, %d heartbeats sent late, %d slow applies", e.LeaderChanges, e.HeartbeatSendFailures, e.SlowApplies)
}

func (h Histogram) words() string {
	if h.Count == 0 {
		return "none"
	}
	p99 := fmt.Sprintf("above %s ms", number(h.P99Above))
	if h.P99AtMax != nil {
		p99 = fmt.Sprintf("between %s and %s ms", number(h.P99Above), number(*h.P99AtMax))
	}
	return fmt.Sprintf("%d, mean %s ms, p99 %s", h.Count, number(h.Mean), p99)
}

// number has as many digits as the reading is good for.
func number(v float64) string { return fmt.Sprintf("%.4g", v) }
