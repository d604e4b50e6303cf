package web

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
)

func newTestProbe(now *clock) *Probe {
	return NewProbe("v1", "n1", time.Minute, func() int64 { return 7 }, now.Now)
}

func votersSample() *fitness.Sample {
	s := &fitness.Sample{
		Connect: []fitness.Connect{{To: "n2", Took: 3 * time.Millisecond}, {To: "n3", Failed: true}},
		Link:    fitness.Link{Kind: fitness.WiFi, Interface: "wlan0"},
		Memory:  &level.Reading{AvailableBytes: 3 << 30, TotalBytes: 4 << 30, Pressure: &level.Pressure{SomeAvg10: 12.5, FullAvg60: 1}},
		Etcd:    &fitness.Etcd{Member: 0xa1, HasLeader: true, KnownMembers: 3, ActivePeers: 2, DBSizeBytes: 1 << 20, QuotaBytes: 2 << 30, Gains: &fitness.Gains{LeaderChanges: 1, SlowApplies: 2}},
	}
	g := s.Etcd.Gains
	g.WALFsync.Counts[0], g.WALFsync.Counts[14], g.WALFsync.Sum = 8, 2, 20*time.Second
	g.BackendCommit.Counts[3], g.BackendCommit.Sum = 1, 6*time.Millisecond
	for i, id := range []fleet.MemberID{0xb2, 0xc3} {
		h := fitness.Histogram{Sum: time.Duration(i+1) * time.Millisecond}
		h.Counts[4] = 1
		g.RoundTrip = append(g.RoundTrip, fitness.PeerRoundTrip{Peer: id, Histogram: h})
	}
	return s
}

func votersPass() ProbePass {
	return ProbePass{
		Took: 20 * time.Millisecond, Records: true, Sample: votersSample(), Samples: 42, Members: []fleet.MemberID{0xa1, 0xb2, 0xc3},
		Faults:  []fitness.Absence{{Reading: fitness.ReadingConnect, Code: "Timeout"}},
		Written: at.Add(-30 * time.Second), EntryBytes: 2700, MapBytes: 9000,
	}
}

// Issue 4: the probe's metrics are what it measured last, and how it fares.
func TestAProbesMetricsAreItsReadings(t *testing.T) {
	now := &clock{at}
	p := newTestProbe(now)
	p.Passed(votersPass())
	now.now = at.Add(5 * time.Second)
	const want = `
# HELP regrade_probe_api_requests_total Requests sent to API servers.
# TYPE regrade_probe_api_requests_total counter
regrade_probe_api_requests_total{node="n1"} 7
# HELP regrade_probe_connect_failures_total Those that failed.
# TYPE regrade_probe_connect_failures_total counter
regrade_probe_connect_failures_total{node="n1",peer="n2"} 0
regrade_probe_connect_failures_total{node="n1",peer="n3"} 1
# HELP regrade_probe_connect_seconds Time of the last connect to a voter's peer port; absent when it failed.
# TYPE regrade_probe_connect_seconds gauge
regrade_probe_connect_seconds{node="n1",peer="n2"} 0.003
# HELP regrade_probe_entry_age_seconds How long ago this process wrote its entry; absent before the first time.
# TYPE regrade_probe_entry_age_seconds gauge
regrade_probe_entry_age_seconds{node="n1"} 35
# HELP regrade_probe_entry_bytes Bytes of the entry written last.
# TYPE regrade_probe_entry_bytes gauge
regrade_probe_entry_bytes{node="n1"} 2700
# HELP regrade_probe_entry_overdue 1 while the entry is due and could not be written, or removed.
# TYPE regrade_probe_entry_overdue gauge
regrade_probe_entry_overdue{node="n1"} 0
# HELP regrade_probe_etcd_has_leader 1 while the member knows a leader.
# TYPE regrade_probe_etcd_has_leader gauge
regrade_probe_etcd_has_leader{node="n1"} 1
# HELP regrade_probe_etcd_member_info 1 for the id of the host's own member.
# TYPE regrade_probe_etcd_member_info gauge
regrade_probe_etcd_member_info{member="a1",node="n1"} 1
# HELP regrade_probe_faults_total Readings that could not be taken and connects that failed, by code.
# TYPE regrade_probe_faults_total counter
regrade_probe_faults_total{code="Timeout",node="n1",reading="connect"} 1
# HELP regrade_probe_link_info 1 for the link of the default route.
# TYPE regrade_probe_link_info gauge
regrade_probe_link_info{interface="wlan0",kind="wifi",node="n1"} 1
# HELP regrade_probe_memory_available_bytes Available memory of the host.
# TYPE regrade_probe_memory_available_bytes gauge
regrade_probe_memory_available_bytes{node="n1"} 3.221225472e+09
# HELP regrade_probe_memory_pressure_ratio Share of the time in which some or all tasks waited for memory.
# TYPE regrade_probe_memory_pressure_ratio gauge
regrade_probe_memory_pressure_ratio{average="10s",node="n1",tasks="full"} 0
regrade_probe_memory_pressure_ratio{average="10s",node="n1",tasks="some"} 0.125
regrade_probe_memory_pressure_ratio{average="60s",node="n1",tasks="full"} 0.01
regrade_probe_memory_pressure_ratio{average="60s",node="n1",tasks="some"} 0
# HELP regrade_probe_pass_age_seconds How long ago the last pass ended.
# TYPE regrade_probe_pass_age_seconds gauge
regrade_probe_pass_age_seconds{node="n1"} 5
# HELP regrade_probe_window_samples Samples in the window.
# TYPE regrade_probe_window_samples gauge
regrade_probe_window_samples{node="n1"} 42
`
	var names []string
	for line := range strings.Lines(want) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "TYPE" {
			names = append(names, f[2])
		}
	}
	if err := testutil.GatherAndCompare(p.registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// Each metric that is named is there with its labels, and none else.
func TestAProbesMetricsAreThoseThatAreNamed(t *testing.T) {
	p := newTestProbe(&clock{at})
	pass := votersPass()
	pass.Fsync = &fitness.Fsync{Count: 1000, P99: time.Millisecond} // no host has both
	p.Passed(pass)
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	all, controllers := ProbeMetrics(), Metrics()
	for _, f := range families {
		want, known := all[f.GetName()]
		if !known {
			t.Errorf("%s is not among ProbeMetrics", f.GetName())
		}
		if controllers[f.GetName()] != nil {
			t.Errorf("%s is a metric of the controller, too", f.GetName())
		}
		delete(all, f.GetName())
		var have []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			have = append(have, l.GetName())
		}
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s has the labels %v, ProbeMetrics says %v", f.GetName(), have, want)
		}
	}
	for name := range all {
		t.Errorf("%s is named and was not seen", name)
	}
}

func TestWhatEtcdGainedAddsUp(t *testing.T) {
	p := newTestProbe(&clock{at})
	p.Passed(votersPass())
	missed := votersPass() // one reading of etcd is not taken
	missed.Sample.Etcd, missed.Sample.Absent = nil, []fitness.Absence{{Reading: fitness.ReadingEtcd, Code: "Timeout"}}
	p.Passed(missed)
	swapped := votersPass() // c3 is no member any more, n3 no voter
	swapped.Members, swapped.Sample.Connect = []fleet.MemberID{0xa1, 0xb2}, swapped.Sample.Connect[:1]
	swapped.Sample.Etcd.Gains.RoundTrip = swapped.Sample.Etcd.Gains.RoundTrip[:1]
	p.Passed(swapped)
	const want = `
# HELP regrade_probe_connects_total Connects to a voter's peer port.
# TYPE regrade_probe_connects_total counter
regrade_probe_connects_total{node="n1",peer="n2"} 3
# HELP regrade_probe_etcd_leader_changes_total Leader changes that etcd saw, as gained from sample to sample.
# TYPE regrade_probe_etcd_leader_changes_total counter
regrade_probe_etcd_leader_changes_total{node="n1"} 2
# HELP regrade_probe_wal_fsync_seconds etcd's WAL fsyncs, as gained from sample to sample.
# TYPE regrade_probe_wal_fsync_seconds histogram
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.001"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.002"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.004"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.008"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.016"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.032"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.064"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.128"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.256"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="0.512"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="1.024"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="2.048"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="4.096"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="8.192"} 16
regrade_probe_wal_fsync_seconds_bucket{node="n1",le="+Inf"} 20
regrade_probe_wal_fsync_seconds_sum{node="n1"} 40
regrade_probe_wal_fsync_seconds_count{node="n1"} 20
`
	if err := testutil.GatherAndCompare(p.registry, strings.NewReader(want), "regrade_probe_connects_total", "regrade_probe_etcd_leader_changes_total", "regrade_probe_wal_fsync_seconds"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(p.registry, "regrade_probe_round_trip_seconds"); n != 1 || err != nil {
		t.Errorf("round trips to %d members, %v: one has gone", n, err)
	}
	// It goes out: what it was as a voter is no reading of the standby.
	p.Passed(ProbePass{Records: true, Sample: &fitness.Sample{}, Fsync: &fitness.Fsync{Count: 1000, P99: 4 * time.Millisecond}})
	for name, want := range map[string]int{
		"regrade_probe_wal_fsync_seconds": 0, "regrade_probe_round_trip_seconds": 0, "regrade_probe_etcd_has_leader": 0, "regrade_probe_fsync_p99_seconds": 1,
	} {
		if n, err := testutil.GatherAndCount(p.registry, name); n != want || err != nil {
			t.Errorf("%d of %s, %v: want %d", n, name, err, want)
		}
	}
}

func TestAProbesHealthIsOfItsPasses(t *testing.T) {
	now := &clock{at}
	p := newTestProbe(now)
	h := p.Pages().Handler()
	if code, body := get(t, h, "/readyz"); code != 503 || body != "no pass has seen the Nodes yet" {
		t.Errorf("before the first pass: %d %q", code, body)
	}
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Errorf("before the first pass: %d, it has just started", code)
	}
	p.Passed(votersPass())
	if code, body := get(t, h, "/readyz"); code != 200 || body != "ok" {
		t.Errorf("after a pass: %d %q", code, body)
	}
	now.now = at.Add(30 * time.Second)
	failed := votersPass()
	failed.Err, failed.Overdue = errors.New("patch ConfigMap: forbidden"), true
	p.Passed(failed)
	if code, body := get(t, h, "/readyz"); code != 503 || !strings.Contains(body, "forbidden") {
		t.Errorf("its entry is due and refused: %d %q", code, body)
	}
	now.now = at.Add(80 * time.Second)
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Errorf("passes without the API: %d, a restart would mend nothing", code)
	}
	p.Passed(ProbePass{}) // the host is no candidate any more
	if code, body := get(t, h, "/readyz"); code != 200 {
		t.Errorf("a host that records nothing: %d %q", code, body)
	}
	now.now = at.Add(141 * time.Second)
	if code, body := get(t, h, "/healthz"); code != 503 || body != "no pass for 1m1s" {
		t.Errorf("without passes: %d %q", code, body)
	}
}

// A scrape comes while a pass is taken in; the race detector has the last word.
func TestAProbeIsScrapedWhileItPasses(t *testing.T) {
	p := newTestProbe(&clock{at})
	h := p.Pages().Handler()
	var all sync.WaitGroup
	all.Go(func() {
		for range 50 {
			p.Passed(votersPass())
		}
	})
	for range 50 {
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			if code, body := get(t, h, path); code != 200 && path != "/readyz" {
				t.Fatalf("%s: %d %s", path, code, body)
			}
		}
	}
	all.Wait()
}
