package web

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/fitness"
)

// probeDescribed are the metrics of a probe's sample with their labels, beside the
// Node's name, which each has.
var probeDescribed = catalogue{}

func probeDesc(name, help string, labels ...string) *prometheus.Desc {
	return probeDescribed.desc("regrade_probe_"+name, help, labels...)
}

// How long ago something was is said as an age and not as a time: a host's clock
// may be off that of whoever asks, and a probe is told of no other.
var (
	descPassAge    = probeDesc("pass_age_seconds", "How long ago the last pass ended.")
	descRecords    = probeDesc("records", "1 while the host keeps samples: it votes, or is eligible.")
	descInWindow   = probeDesc("window_samples", "Samples in the window.")
	descOverdue    = probeDesc("entry_overdue", "1 while the entry is due and could not be written, or removed.")
	descEntryAge   = probeDesc("entry_age_seconds", "How long ago this process wrote its entry; absent before the first time.")
	descEntryBytes = probeDesc("entry_bytes", "Bytes of the entry written last.")
	descMapBytes   = probeDesc("map_bytes", "Bytes of all hosts' entries after that.")

	descConnect   = probeDesc("connect_seconds", "Time of the last connect to a voter's peer port; absent when it failed.", "peer")
	descConnects  = probeDesc("connects_total", "Connects to a voter's peer port.", "peer")
	descNoConnect = probeDesc("connect_failures_total", "Those that failed.", "peer")
	descLink      = probeDesc("link_info", "1 for the link of the default route.", "kind", "interface")
	descMemory    = probeDesc("memory_available_bytes", "Available memory of the host.")
	descMemoryAll = probeDesc("memory_total_bytes", "Memory of the host.")
	descPressure  = probeDesc("memory_pressure_ratio", "Share of the time in which some or all tasks waited for memory.", "tasks", "average")
	descFsyncP50  = probeDesc("fsync_p50_seconds", "Median time of an append with fdatasync in the last run on a standby's disk.")
	descFsyncP99  = probeDesc("fsync_p99_seconds", "The same, 99th percentile.")
	descFsyncMax  = probeDesc("fsync_max_seconds", "The same, the longest.")

	descMember   = probeDesc("etcd_member_info", "1 for the id of the host's own member.", "member")
	descLeader   = probeDesc("etcd_has_leader", "1 while the member knows a leader.")
	descLeads    = probeDesc("etcd_is_leader", "1 while the member is the leader.")
	descLearns   = probeDesc("etcd_is_learner", "1 while the member is a learner.")
	descKnown    = probeDesc("etcd_known_members", "Members that it knows, itself and learners included; absent where etcd does not say.")
	descActive   = probeDesc("etcd_active_peers", "Peers that it has a stream with.")
	descDBSize   = probeDesc("etcd_db_size_bytes", "Size of its database.")
	descDBQuota  = probeDesc("etcd_db_quota_bytes", "What the database may grow to.")
	descWAL      = probeDesc("wal_fsync_seconds", "etcd's WAL fsyncs, as gained from sample to sample.")
	descCommit   = probeDesc("backend_commit_seconds", "etcd's backend commits, as gained from sample to sample.")
	descTrips    = probeDesc("round_trip_seconds", "etcd's own round trips to a peer, as gained from sample to sample.", "member")
	descElection = probeDesc("etcd_leader_changes_total", "Leader changes that etcd saw, as gained from sample to sample.")
	descSends    = probeDesc("etcd_heartbeat_send_failures_total", "Heartbeats that etcd could not send in time, as gained from sample to sample.")
	descApplies  = probeDesc("etcd_slow_applies_total", "Slow applies of etcd, as gained from sample to sample.")
)

// sampleOf collects what the last pass measured.
type sampleOf struct{ p *Probe }

// Describe implements prometheus.Collector. It is unchecked: a reading that was
// not taken has no series.
func (s sampleOf) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s sampleOf) Collect(ch chan<- prometheus.Metric) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(descPassAge, p.now().Sub(p.passed).Seconds())
	if p.last == nil {
		return
	}
	p.kept(set)
	if sample := p.last.Sample; sample != nil {
		taken(sample, set)
	}
	if f := p.last.Fsync; f != nil {
		set(descFsyncP50, f.P50.Seconds())
		set(descFsyncP99, f.P99.Seconds())
		set(descFsyncMax, f.Max.Seconds())
	}
	p.counts(ch)
}

// kept is what the probe keeps and wrote.
func (p *Probe) kept(set gauge) {
	set(descRecords, one(p.last.Records))
	set(descInWindow, float64(p.last.Samples))
	set(descOverdue, one(p.last.Overdue))
	if !p.last.Written.IsZero() {
		set(descEntryAge, p.now().Sub(p.last.Written).Seconds())
		set(descEntryBytes, float64(p.last.EntryBytes))
		set(descMapBytes, float64(p.last.MapBytes))
	}
}

// taken is one sample, but for what is counted.
func taken(s *fitness.Sample, set gauge) {
	for _, c := range s.Connect {
		if !c.Failed {
			set(descConnect, c.Took.Seconds(), c.To)
		}
	}
	if l := s.Link; l.Kind != "" {
		set(descLink, 1, string(l.Kind), l.Interface)
	}
	if m := s.Memory; m != nil {
		if m.TotalBytes > 0 {
			set(descMemory, float64(m.AvailableBytes))
			set(descMemoryAll, float64(m.TotalBytes))
		}
		if p := m.Pressure; p != nil {
			set(descPressure, p.SomeAvg10/100, "some", "10s")
			set(descPressure, p.SomeAvg60/100, "some", "60s")
			set(descPressure, p.FullAvg10/100, "full", "10s")
			set(descPressure, p.FullAvg60/100, "full", "60s")
		}
	}
	e := s.Etcd
	if e == nil {
		return
	}
	set(descMember, 1, e.Member.String())
	set(descLeader, one(e.HasLeader))
	set(descLeads, one(e.IsLeader))
	set(descLearns, one(e.IsLearner))
	set(descActive, float64(e.ActivePeers))
	if e.KnownMembers > 0 {
		set(descKnown, float64(e.KnownMembers))
	}
	if e.DBSizeBytes > 0 {
		set(descDBSize, float64(e.DBSizeBytes))
	}
	if e.QuotaBytes > 0 {
		set(descDBQuota, float64(e.QuotaBytes))
	}
}
