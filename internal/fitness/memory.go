package fitness

import (
	"fmt"

	"github.com/exadev/regrade/internal/level"
)

// judgeMemory: the level's own rule, over as much of the window as the policy
// says (R-185-17); a standby also needs more available memory than etcd's quota,
// and less pressure than makes a voter unfit.
func (h *host) judgeMemory(p Policy, quota uint64) {
	if p.Memory == (level.Limits{}) && (h.Votes || quota == 0) {
		return
	}
	read, amounts := 0, 0
	var over beyond
	var last, missing []level.Reason
	lows := newLowest(h.left() + 1)
	for i := range h.samples {
		m := h.samples[i].Memory
		if m == nil {
			continue
		}
		if gone := level.Missing(*m, p.Memory); len(gone) == 0 {
			read++
		} else {
			missing = gone
		}
		if is, why := level.Over(*m, p.Memory); is {
			over.hit(h.samples[i].At)
			last = why
		}
		if m.TotalBytes > 0 {
			amounts++
			lows.add(m.AvailableBytes)
		}
	}
	// What is over is over, though another value is missing beside it.
	if over.n < h.wanted() && read < h.wanted() {
		how := fmt.Sprintf("was whole in %d of %d samples, %d are wanted", read, len(h.samples), h.wanted())
		if missing != nil {
			how += "; last: " + missing[0].Sentence
		}
		h.gap(ReadingMemory, how)
		return
	}
	limit, weight := p.MemoryOver, Ground
	if !h.Votes {
		limit = p.MemoryEntry
	}
	ratio := float64(over.n) / float64(len(h.samples))
	m := h.measure(over.of(exact(MemoryOver, ratio, limit, len(h.samples))))
	if over.n > 0 && (ratio >= p.MemoryOver || !h.Votes && ratio > limit) {
		if ratio < p.MemoryOver {
			weight = Bar
		}
		h.v.add(Reason{Code: CodeMemoryOver, Weight: weight, Lasting: over.lasting(p), Measure: m, Sentence: fmt.Sprintf("memory on %s was over in %d of %d samples, the limit is %.0f %%; last: %s", h.Node, over.n, len(h.samples), limit*100, last[len(last)-1].Sentence)})
	}
	if h.Votes || amounts == 0 || quota == 0 {
		return
	}
	least := lows.kth()
	q := Measure{Kind: MemoryAvailable, Lower: float64(least), Upper: float64(least), Limit: float64(quota), Samples: amounts, Margin: float64(quota) / float64(max(least, 1))}
	if r := h.measure(q); least <= quota {
		h.v.add(Reason{Code: CodeBelowQuota, Weight: Bar, Measure: r, Sentence: fmt.Sprintf("%s has %s of memory available, a newcomer needs more than etcd's storage quota of %s", h.Node, level.MiB(least), level.MiB(quota))})
	}
}

// quotaOf is the largest storage quota that a voter's page names, or the one of
// the policy.
func quotaOf(hs []*host, p Policy) uint64 {
	var quota uint64
	for _, h := range hs {
		if !h.Votes || h.samples == nil {
			continue
		}
		for i := len(h.samples) - 1; i >= 0; i-- {
			if e := h.samples[i].Etcd; e != nil {
				quota = max(quota, e.QuotaBytes)
				break
			}
		}
	}
	if quota == 0 {
		return p.QuotaBytes
	}
	return quota
}

// lowest keeps the k lowest values, ascending.
type lowest struct{ v []uint64 }

func newLowest(k int) *lowest { return &lowest{v: make([]uint64, 0, k)} }

func (l *lowest) add(x uint64) {
	if len(l.v) == cap(l.v) {
		if x >= l.v[len(l.v)-1] {
			return
		}
		l.v = l.v[:len(l.v)-1]
	}
	i := len(l.v)
	for i > 0 && l.v[i-1] > x {
		i--
	}
	l.v = l.v[:len(l.v)+1]
	copy(l.v[i+1:], l.v[i:])
	l.v[i] = x
}

func (l *lowest) kth() uint64 { return l.v[len(l.v)-1] }
