package web

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// gained is what etcd's counters gained in all samples of this process's sight: a
// sample's own gains are those of one period, and no scraper is that punctual.
type gained struct {
	is           bool // there was a sample with gains
	wal, commit  tally
	trips        map[fleet.MemberID]*tally
	changes      uint64
	sendFailures uint64
	slowApplies  uint64
}

// tally is a histogram of all that was observed.
type tally struct {
	counts [fitness.MaxBuckets]uint64
	sum    float64 // seconds
}

func (t *tally) add(h *fitness.Histogram) {
	for i, n := range h.Counts {
		t.counts[i] += uint64(n)
	}
	t.sum += h.Sum.Seconds()
}

func (t *tally) metric(d *prometheus.Desc, bounds []time.Duration, labels ...string) prometheus.Metric {
	var n uint64
	buckets := make(map[float64]uint64, len(bounds))
	for i, count := range t.counts {
		n += count
		if i < len(bounds) {
			buckets[bounds[i].Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(d, n, t.sum, buckets, labels...)
}

// add takes in a pass. A host without etcd has none of it; a reading that was not
// taken once takes nothing away.
func (g *gained) add(pass *ProbePass) {
	s := pass.Sample
	missing := func(a fitness.Absence) bool { return a.Reading == fitness.ReadingEtcd }
	switch {
	case s == nil && pass.Records:
		return
	case s == nil, s.Etcd == nil && !slices.ContainsFunc(s.Absent, missing):
		*g = gained{}
		return
	case s.Etcd == nil || s.Etcd.Gains == nil:
		return
	}
	e := s.Etcd.Gains
	g.is = true
	g.wal.add(&e.WALFsync)
	g.commit.add(&e.BackendCommit)
	if g.trips == nil {
		g.trips = map[fleet.MemberID]*tally{}
	}
	for i := range e.RoundTrip {
		t := g.trips[e.RoundTrip[i].Peer]
		if t == nil {
			t = &tally{}
			g.trips[e.RoundTrip[i].Peer] = t
		}
		t.add(&e.RoundTrip[i].Histogram)
	}
	for id := range g.trips {
		if len(pass.Members) > 0 && !slices.Contains(pass.Members, id) {
			delete(g.trips, id) // a member that is gone; a swap leaves one behind
		}
	}
	g.changes += uint64(e.LeaderChanges)
	g.sendFailures += uint64(e.HeartbeatSendFailures)
	g.slowApplies += uint64(e.SlowApplies)
}

// link counts the connects to one voter.
type link struct{ made, failed uint64 }

// connected counts the connects of a pass. A voter that is none any more goes.
func (p *Probe) connected(pass *ProbePass) {
	if pass.Sample == nil {
		if !pass.Records {
			clear(p.links)
		}
		return
	}
	now := make(map[string]link, len(pass.Sample.Connect))
	for _, c := range pass.Sample.Connect {
		l := p.links[c.To]
		l.made++
		if c.Failed {
			l.failed++
		}
		now[c.To] = l
	}
	p.links = now
}

// counts collects both.
func (p *Probe) counts(ch chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for peer, l := range p.links {
		set(descConnects, l.made, peer)
		set(descNoConnect, l.failed, peer)
	}
	g := &p.gained
	if !g.is {
		return
	}
	ch <- g.wal.metric(descWAL, fitness.DiskBounds())
	ch <- g.commit.metric(descCommit, fitness.DiskBounds())
	for id, t := range g.trips {
		ch <- t.metric(descTrips, fitness.PeerBounds(), id.String())
	}
	set(descElection, g.changes)
	set(descSends, g.sendFailures)
	set(descApplies, g.slowApplies)
}
