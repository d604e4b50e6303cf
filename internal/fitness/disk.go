package fitness

import (
	"fmt"
	"math"
	"time"
)

// total is a histogram over a window.
type total struct {
	counts [MaxBuckets]uint64
	sum    time.Duration
	n      uint64
	slow   beyond
}

// addOf adds a sample's gain and notes it where it is slow by itself.
func (t *total) addOf(h *Histogram, limit time.Duration, at time.Time) {
	t.add(h)
	var one total
	if one.add(h); one.n > 0 && limit > 0 && one.p99(DiskBounds()).lower >= limit {
		t.slow.hit(at)
	}
}

func (t *total) add(h *Histogram) {
	for i, c := range h.Counts {
		t.counts[i] += uint64(c)
		t.n += uint64(c)
	}
	t.sum += h.Sum
}

// interval is where a value lies: above lower, at or under upper unless open.
type interval struct {
	lower, upper time.Duration
	open         bool
}

func (i interval) String() string {
	if i.open {
		return "above " + short(i.lower)
	}
	return fmt.Sprintf("between %s and %s", short(i.lower), short(i.upper))
}

// p99 is the bucket of the observation at rank ⌈0.99 n⌉. Buckets are powers of
// two: where in it the value lies is not known.
func (t *total) p99(bounds []time.Duration) interval {
	rank := (t.n*99 + 99) / 100
	var below uint64
	var lower time.Duration
	for i, bound := range bounds {
		if below += t.counts[i]; below >= rank {
			return interval{lower: lower, upper: bound}
		}
		lower = bound
	}
	return interval{lower: lower, upper: lower, open: true}
}

// judgeDisk: of a voter what its etcd measured, of any other host its own
// fdatasync, or etcd's histograms where it has voted lately (design §3, disk).
func (h *host) judgeDisk(p Policy) {
	var wal, commit total
	pages := 0
	var own *Fsync
	for i := range h.samples {
		s := &h.samples[i]
		if s.Fsync != nil {
			own = s.Fsync
		}
		if s.Etcd == nil {
			continue
		}
		pages++
		if g := s.Etcd.Gains; g != nil {
			wal.addOf(&g.WALFsync, p.WALFsync, s.At)
			commit.addOf(&g.BackendCommit, p.BackendCommit, s.At)
		}
	}
	if p.WALFsync <= 0 && p.BackendCommit <= 0 {
		return
	}
	if h.Votes {
		if h.gapUnless(pages, ReadingEtcd) {
			h.judgeHistogram(p, &wal, WALFsyncP99, CodeWALFsync, "WAL fsyncs", p.WALFsync)
			h.judgeHistogram(p, &commit, BackendCommitP99, CodeBackendCommit, "backend commits", p.BackendCommit)
		}
		return
	}
	switch {
	case p.WALFsync <= 0:
	case own != nil && own.Count > 0:
		m := h.measure(exact(FsyncP99, own.P99.Seconds(), p.WALFsync.Seconds(), own.Count))
		if own.P99 > p.WALFsync {
			h.v.add(Reason{Code: CodeFsync, Weight: Bar, Measure: m, Sentence: fmt.Sprintf("the p99 of %d fdatasyncs on %s is %s, at most %s are asked of a newcomer", own.Count, h.Node, than(own.P99, p.WALFsync), short(p.WALFsync))})
		}
	case wal.n > 0:
		h.judgeHistogram(p, &wal, WALFsyncP99, CodeWALFsync, "WAL fsyncs", p.WALFsync)
		h.judgeHistogram(p, &commit, BackendCommitP99, CodeBackendCommit, "backend commits", p.BackendCommit)
	default:
		h.gap(ReadingFsync, "was not taken in the window, once is wanted")
	}
}

// judgeHistogram: a voter is unfit only where the lower edge of the interval is
// at or above the limit; a newcomer is fit only where the upper one is at or
// under it.
func (h *host) judgeHistogram(p Policy, t *total, kind Kind, code, what string, limit time.Duration) {
	if limit <= 0 {
		return
	}
	if t.n < uint64(h.size) {
		h.v.add(Reason{Code: CodeFewTimes, Weight: Gap, Sentence: fmt.Sprintf("the etcd of %s made %d %s in the window, a p99 needs %d", h.Node, t.n, what, h.size)})
		return
	}
	at := t.p99(DiskBounds())
	m := Measure{Kind: kind, Lower: at.lower.Seconds(), Upper: at.upper.Seconds(), Open: at.open, Limit: limit.Seconds(), Samples: int(min(t.n, math.MaxInt32))}
	edge := at.lower
	if !h.Votes {
		edge = at.upper
	}
	m.Margin = share(edge, limit)
	r := Reason{Measure: h.measure(t.slow.of(m)), Code: code, Weight: Ground, Lasting: t.slow.lasting(p)}
	switch {
	case h.Votes && at.lower >= limit:
		r.Sentence = fmt.Sprintf("the p99 of %d %s on %s is %s, the limit is %s", t.n, what, h.Node, at, short(limit))
	case h.Votes && (at.open || at.upper > limit):
		r.Code, r.Weight = CodeUncertain, Note
		r.Sentence = fmt.Sprintf("the p99 of %d %s on %s is %s: whether that is above the limit of %s cannot be told, so it is not", t.n, what, h.Node, at, short(limit))
	case !h.Votes && (at.open || at.upper > limit):
		r.Weight = Bar
		r.Sentence = fmt.Sprintf("the p99 of %d %s on %s was %s while it voted, at most %s are asked of a newcomer", t.n, what, h.Node, at, short(limit))
	default:
		return
	}
	h.v.add(r)
}

func share(d, limit time.Duration) float64 {
	if limit <= 0 {
		return 0
	}
	return float64(d) / float64(limit)
}

// exact is a measure whose higher values are worse.
func exact(kind Kind, value, limit float64, samples int) Measure {
	m := Measure{Kind: kind, Lower: value, Upper: value, Limit: limit, Samples: samples}
	if limit > 0 {
		m.Margin = value / limit
	}
	return m
}
