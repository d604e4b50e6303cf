package sensor

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// Names of etcd's metrics (k3s-facts §11.4), the same in 3.5, 3.6 and 3.7, but that 3.5
// does not have the known peers.
const (
	walFsync       = "etcd_disk_wal_fsync_duration_seconds"
	backendCommit  = "etcd_disk_backend_commit_duration_seconds"
	roundTrip      = "etcd_network_peer_round_trip_time_seconds"
	knownPeers     = "etcd_network_known_peers"
	activePeers    = "etcd_network_active_peers"
	hasLeader      = "etcd_server_has_leader"
	isLeader       = "etcd_server_is_leader"
	isLearner      = "etcd_server_is_learner"
	serverID       = "etcd_server_id"
	leaderChanges  = "etcd_server_leader_changes_seen_total"
	sendFailures   = "etcd_server_heartbeat_send_failures_total"
	slowApplies    = "etcd_server_slow_apply_total"
	dbSize         = "etcd_mvcc_db_total_size_in_bytes"
	dbQuota        = "etcd_server_quota_backend_bytes"
	processStarted = "process_start_time_seconds"
)

var families = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range []string{
		walFsync, backendCommit, roundTrip, knownPeers, activePeers, hasLeader, isLeader, isLearner, serverID,
		leaderChanges, sendFailures, slowApplies, dbSize, dbQuota, processStarted,
	} {
		m[name] = true
	}
	return m
}()

// Metrics is etcd's page at one moment: its gauges, and its counters since it
// began.
type Metrics struct {
	fitness.Etcd // without Gains
	// Members are the ids of the members it knows, itself and learners included.
	Members []fleet.MemberID
	// Started is when the process began, in seconds since 1970; zero when the
	// page does not say.
	Started float64
	// Age of the process when the page was read, by this host's clock; zero where
	// Started is.
	Age time.Duration

	WALFsync, BackendCommit counted
	RoundTrip               map[fleet.MemberID]counted

	LeaderChanges, SendFailures, SlowApplies float64
}

// counted is a histogram as a page has it, but not cumulative.
type counted struct {
	counts [fitness.MaxBuckets]uint64
	sum    float64 // seconds
}

func (c counted) total() (n uint64) {
	for _, v := range c.counts {
		n += v
	}
	return n
}

// Histogram is a counted one since etcd began.
func (c counted) Histogram() fitness.Histogram { return gain(c, counted{}) }

// maxPeers is more than any etcd has members.
const maxPeers = 64

// ParseMetrics reads a page. What the sensor needs must be there and make sense;
// what is optional is the database's size and quota and the start of the process.
func ParseMetrics(page []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	found, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return Metrics{}, faultf(CodeBadPage, "etcd's metrics page: %v", err)
	}
	p := reading{families: found}
	var m Metrics
	m.HasLeader, m.IsLeader, m.IsLearner = p.truth(hasLeader), p.truth(isLeader), p.truth(isLearner)
	m.Member = p.own()
	m.Members, m.KnownMembers = p.known(m.Member)
	m.ActivePeers = p.active(m.Member)
	m.LeaderChanges, m.SendFailures, m.SlowApplies = p.counter(leaderChanges), p.counter(sendFailures), p.counter(slowApplies)
	m.WALFsync, m.BackendCommit = p.histogram(walFsync, fitness.DiskBounds()), p.histogram(backendCommit, fitness.DiskBounds())
	m.RoundTrip = p.roundTrips()
	m.DBSizeBytes, m.QuotaBytes = p.bytes(dbSize), p.bytes(dbQuota)
	m.Started = p.optional(processStarted)
	if p.fault != nil {
		return Metrics{}, p.fault
	}
	return m, nil
}

// reading picks values out of a page; the first fault is kept.
type reading struct {
	families map[string]*dto.MetricFamily
	fault    *Fault
}

func (p *reading) fail(code, format string, args ...any) {
	if p.fault == nil {
		p.fault = faultf(code, "etcd's metrics page: "+format, args...)
	}
}

func (p *reading) series(name string) []*dto.Metric {
	if f := p.families[name]; f != nil {
		return f.GetMetric()
	}
	return nil
}

// value is of a gauge, a counter or, where the page names no type, an untyped one.
func value(m *dto.Metric) float64 {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetUntyped() != nil:
		return m.GetUntyped().GetValue()
	}
	return math.NaN()
}

// sensible is a finite number from zero to what a float counts exactly.
func sensible(v float64) bool { return v >= 0 && v <= 1<<53 }

// one is the value of a family with one series.
func (p *reading) one(name string) (float64, bool) {
	s := p.series(name)
	if len(s) == 0 {
		return 0, false
	}
	v := value(s[0])
	if len(s) != 1 || !sensible(v) {
		p.fail(CodeBadPage, "%s has %d series, the first of %v", name, len(s), v)
		return 0, false
	}
	return v, true
}

func (p *reading) counter(name string) float64 {
	v, ok := p.one(name)
	if !ok {
		p.fail(CodeIncomplete, "it has no %s", name)
	}
	return v
}

func (p *reading) optional(name string) float64 {
	v, _ := p.one(name)
	return v
}

func (p *reading) bytes(name string) uint64 { return uint64(p.optional(name)) }

func (p *reading) truth(name string) bool {
	v := p.counter(name)
	if v != 0 && v != 1 {
		p.fail(CodeBadPage, "%s is %v", name, v)
	}
	return v == 1
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// own is the member's own id. A page may have others with a value of 0.
func (p *reading) own() fleet.MemberID {
	for _, m := range p.series(serverID) {
		if value(m) != 1 {
			continue
		}
		if id, err := fleet.ParseMemberID(label(m, "server_id")); err == nil {
			return id
		}
	}
	p.fail(CodeIncomplete, "it does not say the member's own id (%s)", serverID)
	return 0
}

// each walks the series of a family that says something of a peer of the own
// member.
func (p *reading) each(name string, own fleet.MemberID, f func(remote fleet.MemberID, v float64)) {
	s := p.series(name)
	if len(s) > maxPeers {
		p.fail(CodeBadPage, "%s has %d series", name, len(s))
		return
	}
	for _, m := range s {
		if local, err := fleet.ParseMemberID(label(m, "Local")); err != nil || local != own {
			continue
		}
		remote, err := fleet.ParseMemberID(label(m, "Remote"))
		if v := value(m); err != nil || !sensible(v) {
			p.fail(CodeBadPage, "%s of %q is %v", name, label(m, "Remote"), v)
			return
		} else {
			f(remote, v)
		}
	}
}

// known are the members that etcd knows. Their number is the sum of the gauge: a
// member that was removed leaves its series behind, with a value of 0. etcd 3.5
// has no such gauge: none are known then, which is not the same as none.
func (p *reading) known(own fleet.MemberID) (ids []fleet.MemberID, sum int) {
	var total float64
	p.each(knownPeers, own, func(remote fleet.MemberID, v float64) {
		total += v
		if v > 0 {
			ids = append(ids, remote)
		}
	})
	if total == 0 && len(p.series(knownPeers)) > 0 {
		p.fail(CodeIncomplete, "it knows no member (%s)", knownPeers)
	}
	slices.Sort(ids)
	return slices.Compact(ids), int(min(total, math.MaxInt32))
}

// active counts peers with a stream; a peer may have two (R-185-24).
func (p *reading) active(own fleet.MemberID) (n int) {
	p.each(activePeers, own, func(remote fleet.MemberID, v float64) {
		if v > 0 && remote != own {
			n++
		}
	})
	return n
}

func (p *reading) roundTrips() map[fleet.MemberID]counted {
	s := p.series(roundTrip)
	if len(s) > maxPeers {
		p.fail(CodeBadPage, "%s has %d series", roundTrip, len(s))
		return nil
	}
	trips := map[fleet.MemberID]counted{}
	for _, m := range s {
		id, err := fleet.ParseMemberID(label(m, "To"))
		if err != nil {
			p.fail(CodeBadPage, "%s: %v", roundTrip, err)
			return nil
		}
		trips[id] = p.counted(roundTrip, m, fitness.PeerBounds())
	}
	return trips
}

func (p *reading) histogram(name string, bounds []time.Duration) counted {
	s := p.series(name)
	if len(s) != 1 {
		p.fail(CodeIncomplete, "it has %d series of %s", len(s), name)
		return counted{}
	}
	return p.counted(name, s[0], bounds)
}

// counted takes the buckets apart. They must be those that etcd has had since
// 3.0: with others every interval said of them would be wrong.
func (p *reading) counted(name string, m *dto.Metric, bounds []time.Duration) (c counted) {
	h := m.GetHistogram()
	if h == nil {
		p.fail(CodeBadPage, "%s is no histogram", name)
		return counted{}
	}
	buckets := slices.Clone(h.GetBucket())
	slices.SortFunc(buckets, func(a, b *dto.Bucket) int {
		switch {
		case a.GetUpperBound() < b.GetUpperBound():
			return -1
		case a.GetUpperBound() > b.GetUpperBound():
			return 1
		}
		return 0
	})
	if n := len(buckets); n != len(bounds)+1 || !math.IsInf(buckets[n-1].GetUpperBound(), 1) {
		p.fail(CodeBuckets, "%s has %d buckets, not %d", name, len(buckets), len(bounds)+1)
		return counted{}
	}
	var before uint64
	for i, b := range buckets {
		if i < len(bounds) && !near(b.GetUpperBound(), bounds[i].Seconds()) {
			p.fail(CodeBuckets, "%s has a bucket up to %s s, not %s s", name, short(b.GetUpperBound()), short(bounds[i].Seconds()))
			return counted{}
		}
		n := b.GetCumulativeCount()
		if b.GetCumulativeCountFloat() != 0 || n < before || n > 1<<53 {
			p.fail(CodeBadPage, "%s: its bucket up to %s s has fewer than the one before, or no whole number", name, short(b.GetUpperBound()))
			return counted{}
		}
		c.counts[i], before = n-before, n
	}
	c.sum = h.GetSampleSum()
	if h.GetSampleCount() != before || !sensible(c.sum) {
		p.fail(CodeBadPage, "%s: %d observations in its buckets, count %d, sum %v", name, before, h.GetSampleCount(), c.sum)
		return counted{}
	}
	return c
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
