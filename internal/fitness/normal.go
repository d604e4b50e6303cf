package fitness

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/level"
)

// What an entry resolves. Times are rounded up and available memory down, so
// that rounding never moves a value across a limit to the fit side.
const (
	resolutionAt     = time.Millisecond
	resolutionTime   = 10 * time.Microsecond
	resolutionMemory = 1 << 10
	resolutionDB     = 4 << 10
	// significantBits are kept of a time: above 41 ms its error is up to one in two
	// thousand, upwards. 500 and 250 ms are kept as they are.
	significantBits = 12
	percentParts    = 100 // hundredths of a percent, as the kernel prints them
)

// Bounds of a sample: more than any fleet has, and little enough that no entry
// can make a reader large.
const (
	maxNames    = 32 // voters that one host connects to, peers, links, absences
	maxNameLen  = 253
	maxCodeLen  = 32
	maxSamples  = 1000
	maxReadings = 16 * maxSamples             // connects, round trips and absences: of nine voters in the largest window
	maxTime     = 4095 << 13 * resolutionTime // 335 s; has as few bits as a time may
	maxBytes    = 1 << 50
	maxCount    = 1 << 30
	maxKnown    = 1 << 16
	maxPeriod   = time.Hour
	minPeriod   = 100 * time.Millisecond
	maxInterval = 4095 << 30 * resolutionTime // 500 days
)

// readings are those of which a sample may have several.
func (s *Sample) readings() int {
	n := len(s.Connect) + len(s.Absent)
	if s.Etcd != nil && s.Etcd.Gains != nil {
		n += len(s.Etcd.Gains.RoundTrip)
	}
	return n
}

// normal is a sample as an entry keeps it: rounded, bounded, sorted. A value
// that makes no sense is taken for the worst that the reading can say.
func (s Sample) normal() Sample {
	s.At = s.At.UTC().Truncate(resolutionAt)
	s.Connect = normalConnects(s.Connect)
	switch s.Link.Kind {
	case Wired, WiFi, Unseen:
		s.Link.Interface = clip(s.Link.Interface, maxCodeLen)
	default:
		s.Link = Link{}
	}
	switch s.Restart {
	case RestartProbe, RestartEtcd, RestartHost:
	default:
		s.Restart = NoRestart
	}
	if s.Memory != nil {
		m := normalMemory(*s.Memory)
		s.Memory = &m
	}
	if s.Etcd != nil {
		e := normalEtcd(*s.Etcd)
		s.Etcd = &e
	}
	if s.Fsync != nil {
		f := *s.Fsync
		f.Count = min(max(f.Count, 0), maxCount)
		f.P50, f.P99, f.Max = upTime(f.P50), upTime(f.P99), upTime(f.Max)
		s.Fsync = &f
	}
	s.Absent = normalAbsent(s.Absent)
	return s
}

func normalConnects(in []Connect) []Connect {
	if len(in) == 0 {
		return nil
	}
	out := make([]Connect, 0, len(in))
	for _, c := range in {
		if c.Failed || c.Took < 0 {
			c.Failed, c.Took = true, 0
		}
		if !c.Failed || c.Why != Refused && c.Why != Unanswered {
			c.Why = ""
		}
		c.To, c.Took = clip(c.To, maxNameLen), upTime(c.Took)
		if c.To != "" {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b Connect) int { return cmp.Compare(a.To, b.To) })
	out = slices.CompactFunc(out, func(a, b Connect) bool { return a.To == b.To })
	if len(out) == 0 {
		return nil
	}
	return out[:min(len(out), maxNames)]
}

func normalMemory(m level.Reading) level.Reading {
	m.AvailableBytes = min(m.AvailableBytes, maxBytes) / resolutionMemory * resolutionMemory
	m.TotalBytes = min(m.TotalBytes, maxBytes) / resolutionMemory * resolutionMemory
	if m.TotalBytes == 0 {
		m.AvailableBytes = 0
	}
	if p := m.Pressure; p != nil {
		if math.IsNaN(p.SomeAvg10 + p.SomeAvg60 + p.FullAvg10 + p.FullAvg60) {
			m.Pressure = nil
		} else {
			m.Pressure = &level.Pressure{SomeAvg10: percent(p.SomeAvg10), SomeAvg60: percent(p.SomeAvg60), FullAvg10: percent(p.FullAvg10), FullAvg60: percent(p.FullAvg60)}
		}
	}
	return m
}

// percent in hundredths, rounded up; the small number takes the error of a
// decimal fraction in binary off first.
func percent(p float64) float64 { return float64(parts(p)) / percentParts }

func parts(p float64) uint64 {
	return uint64(math.Ceil(min(max(p, 0), 100)*percentParts - 1e-6))
}

func normalEtcd(e Etcd) Etcd {
	e.KnownMembers = min(max(e.KnownMembers, 0), maxKnown)
	e.ActivePeers = min(max(e.ActivePeers, 0), maxKnown)
	e.DBSizeBytes = (min(e.DBSizeBytes, maxBytes) + resolutionDB - 1) / resolutionDB * resolutionDB
	e.QuotaBytes = min(e.QuotaBytes, maxBytes) / resolutionMemory * resolutionMemory
	if e.Gains != nil {
		g := *e.Gains
		g.WALFsync, g.BackendCommit = g.WALFsync.normal(diskBuckets), g.BackendCommit.normal(diskBuckets)
		g.LeaderChanges, g.HeartbeatSendFailures, g.SlowApplies = min(g.LeaderChanges, maxCount), min(g.HeartbeatSendFailures, maxCount), min(g.SlowApplies, maxCount)
		var trips []PeerRoundTrip
		for _, t := range g.RoundTrip {
			t.Histogram = t.Histogram.normal(MaxBuckets)
			if t.Histogram.Total() > 0 {
				trips = append(trips, t)
			}
		}
		slices.SortStableFunc(trips, func(a, b PeerRoundTrip) int { return cmp.Compare(a.Peer, b.Peer) })
		trips = slices.CompactFunc(trips, func(a, b PeerRoundTrip) bool { return a.Peer == b.Peer })
		g.RoundTrip = trips[:min(len(trips), maxNames)]
		if len(g.RoundTrip) == 0 {
			g.RoundTrip = nil
		}
		e.Gains = &g
	}
	return e
}

// normal keeps the first buckets; what is beyond is in the last of them.
func (h Histogram) normal(buckets int) Histogram {
	for i := range h.Counts {
		if i >= buckets {
			h.Counts[buckets-1] = min(h.Counts[buckets-1]+min(h.Counts[i], maxCount), maxCount)
			h.Counts[i] = 0
		}
		h.Counts[i] = min(h.Counts[i], maxCount)
	}
	h.Sum = upTo(h.Sum, maxInterval)
	if h.Total() == 0 {
		h.Sum = 0
	}
	return h
}

func normalAbsent(in []Absence) []Absence {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	for i := range out {
		out[i].Reading, out[i].Code = Reading(clip(string(out[i].Reading), maxCodeLen)), clip(out[i].Code, maxCodeLen)
	}
	slices.SortStableFunc(out, func(a, b Absence) int {
		return cmp.Or(cmp.Compare(a.Reading, b.Reading), cmp.Compare(a.Code, b.Code))
	})
	out = slices.Compact(out)
	return out[:min(len(out), maxNames)]
}

func upTime(d time.Duration) time.Duration { return upTo(d, maxTime) }

func upTo(d, most time.Duration) time.Duration {
	units := uint64((min(max(d, 0), most) + resolutionTime - 1) / resolutionTime)
	if drop := bits.Len64(units) - significantBits; drop > 0 {
		units = (units + 1<<drop - 1) >> drop << drop
	}
	return min(time.Duration(units)*resolutionTime, most)
}

// clip bounds a word and keeps what is printed as itself in JSON and on a
// terminal.
func clip(s string, most int) string {
	b := make([]byte, 0, min(len(s), most))
	for i := 0; i < len(s) && len(b) < most; i++ {
		if c := s[i]; c > ' ' && c < 0x7f && c != '"' && c != '\\' {
			b = append(b, c)
		}
	}
	return string(b)
}
