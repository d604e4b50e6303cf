package sensor

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// DefaultMetricsURL is where k3s lets etcd show its metrics, on loopback and
// without TLS (k3s-facts §11.3).
const DefaultMetricsURL = "http://127.0.0.1:2381/metrics"

// Etcd reads a member's metrics page again and again, and says what its counters
// gained.
type Etcd struct {
	URL    string
	Client *http.Client

	before *Metrics
	at     time.Time // of before
}

// EtcdReading is one reading of a member.
type EtcdReading struct {
	fitness.Etcd
	// Members are the ids of the members it knows.
	Members []fleet.MemberID
	// Restarted says that there are no gains because etcd began anew, or is seen
	// for the first time.
	Restarted bool
}

// ReadEtcd takes one reading.
func ReadEtcd(ctx context.Context, c *http.Client, url string) (Metrics, error) {
	page, err := Page(ctx, c, url)
	if err != nil {
		return Metrics{}, err
	}
	m, err := ParseMetrics(page)
	if m.Started > 0 {
		m.Age = time.Since(time.Unix(0, 0).Add(time.Duration(min(m.Started, maxSum) * float64(time.Second))))
	}
	return m, err
}

// Read gives the gauges, and the gains since the reading before. After a reading
// that failed the gains are those since the last one that did not: nothing is
// lost.
func (e *Etcd) Read(ctx context.Context) (EtcdReading, error) {
	now, err := ReadEtcd(ctx, e.Client, e.URL)
	if err != nil {
		return EtcdReading{}, err
	}
	before, since := e.before, time.Since(e.at)
	e.before, e.at = &now, time.Now()
	r := EtcdReading{Etcd: now.Etcd, Members: now.Members}
	if before == nil || !now.goesOn(*before, since) {
		r.Restarted = true
		return r, nil
	}
	r.Gains = gains(*before, now)
	return r, nil
}

// Forget is for a host that is a member no more: what it does next is a new life.
func (e *Etcd) Forget() { e.before = nil }

// ageSlack is what the age of a process may be off: the kernel's idea of when it
// booted is rounded to seconds.
const ageSlack = 5 * time.Second

// goesOn says whether a page is of the same life of the same member as one that
// was read so long ago by the monotonic clock: its process has aged by that much
// at least, and no counter went back. A wall clock that was set moves the start
// that the page tells and the present alike, so ages are compared and not
// starts. A single series that is gone was taken away by etcd itself, when a
// member was removed.
func (m Metrics) goesOn(before Metrics, ago time.Duration) bool {
	if m.Member != before.Member {
		return false
	}
	if m.Age > 0 && before.Age > 0 && m.Age < before.Age+ago-ageSlack {
		return false
	}
	if m.LeaderChanges < before.LeaderChanges || m.SendFailures < before.SendFailures || m.SlowApplies < before.SlowApplies {
		return false
	}
	if !m.WALFsync.goesOn(before.WALFsync) || !m.BackendCommit.goesOn(before.BackendCommit) {
		return false
	}
	for id, h := range before.RoundTrip {
		if now, ok := m.RoundTrip[id]; ok && !now.goesOn(h) {
			return false
		}
	}
	return true
}

func (c counted) goesOn(before counted) bool {
	for i := range c.counts {
		if c.counts[i] < before.counts[i] {
			return false
		}
	}
	return c.sum >= before.sum
}

func gains(before, now Metrics) *fitness.Gains {
	g := &fitness.Gains{
		WALFsync: gain(now.WALFsync, before.WALFsync), BackendCommit: gain(now.BackendCommit, before.BackendCommit),
		LeaderChanges:         small(now.LeaderChanges - before.LeaderChanges),
		HeartbeatSendFailures: small(now.SendFailures - before.SendFailures),
		SlowApplies:           small(now.SlowApplies - before.SlowApplies),
	}
	for id, h := range now.RoundTrip {
		if d := gain(h, before.RoundTrip[id]); d.Total() > 0 {
			g.RoundTrip = append(g.RoundTrip, fitness.PeerRoundTrip{Peer: id, Histogram: d})
		}
	}
	slices.SortFunc(g.RoundTrip, func(a, b fitness.PeerRoundTrip) int {
		if a.Peer < b.Peer {
			return -1
		}
		return 1
	})
	return g
}

func gain(now, before counted) (h fitness.Histogram) {
	for i := range h.Counts {
		h.Counts[i] = uint32(min(now.counts[i]-before.counts[i], math.MaxUint32))
	}
	h.Sum = time.Duration(min(max(now.sum-before.sum, 0), maxSum) * float64(time.Second))
	return h
}

// maxSum is what a time.Duration holds, in seconds, with room to spare.
const maxSum = 9e9

func small(v float64) uint32 { return uint32(min(max(v, 0), math.MaxUint32)) }
