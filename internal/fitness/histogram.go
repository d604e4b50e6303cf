package fitness

import "time"

// MaxBuckets is how many buckets the longest of etcd's histograms has, the one
// without an upper bound included.
const MaxBuckets = 17

// Histogram is a number of observations by bucket, each observation counted
// once: in the bucket of the first bound that it is at or under (etcd's pages
// are cumulative, this is not). The bucket after the last bound holds the rest.
type Histogram struct {
	Counts [MaxBuckets]uint32
	Sum    time.Duration // of all observations
}

// DiskBounds are the upper bounds of etcd's WAL fsync and backend commit
// histograms: 1 ms doubled, 14 of them (k3s-facts §11.4).
func DiskBounds() []time.Duration { return diskBounds[:] }

// PeerBounds are those of its peer round trips: 0.1 ms doubled, 16 of them.
func PeerBounds() []time.Duration { return peerBounds[:] }

// diskBuckets is how many buckets a disk's histogram has.
const diskBuckets = 15

var diskBounds, peerBounds = func() (d [14]time.Duration, p [16]time.Duration) {
	for i := range d {
		d[i] = time.Millisecond << i
	}
	for i := range p {
		p[i] = 100 * time.Microsecond << i
	}
	return d, p
}()

// Total is the number of observations.
func (h *Histogram) Total() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += uint64(c)
	}
	return n
}

// Mean is the mean of the observations, false when there is none.
func (h *Histogram) Mean() (time.Duration, bool) {
	n := h.Total()
	if n == 0 {
		return 0, false
	}
	return h.Sum / time.Duration(n), true
}

// P99 is the bucket that the observation at rank ⌈0.99 n⌉ is in: above is its lower
// bound, atMost its upper one, zero for the last bucket, which has none. Zero both for
// no observations.
func (h *Histogram) P99(bounds []time.Duration) (above, atMost time.Duration) {
	n := h.Total()
	if n == 0 {
		return 0, 0
	}
	rank, seen := (n*99+99)/100, uint64(0)
	for i, bound := range bounds {
		if seen += uint64(h.Counts[i]); seen >= rank {
			return above, bound
		}
		above = bound
	}
	return above, 0
}
