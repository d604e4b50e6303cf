package fitness

import (
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// DefaultPeriod and DefaultSize: a sample every 15 s, of which 100 are kept, the
// fewest that give a p99 a sample of its own (R-185-02, R-185-18).
const (
	DefaultPeriod = 15 * time.Second
	DefaultSize   = 100
)

// MaxWindow is the largest window that can be set: it goes into an entry whatever the
// numbers are. A window that is cut to fit an entry is never full, so its host stays
// unknown and says for ever that its window fills.
const MaxWindow = 500

// MaxSize is the most samples that an entry may hold.
const MaxSize = maxSamples

// Window is what one probe keeps: the last samples, oldest first.
type Window struct {
	Node string
	// BootID is of the probe's host, Counter the number of samples ever taken
	// for this entry: together the identity of its last state, from which a
	// reader sees that it has changed (safety rule 22).
	BootID  string
	Counter uint64
	Period  time.Duration
	// Size is how many samples a full window has.
	Size    int
	Samples []Sample
	// Members are the ids of the members that this host's etcd knows, sorted;
	// nil when not known (R-228-35).
	Members []fleet.MemberID
}

// Full says whether the window has as many samples as it keeps.
func (w *Window) Full() bool { return w.Size > 0 && len(w.Samples) >= w.Size }

// Last is the newest sample, nil when there is none.
func (w *Window) Last() *Sample {
	if len(w.Samples) == 0 {
		return nil
	}
	return &w.Samples[len(w.Samples)-1]
}

// Keep drops the oldest samples over size and gives back what they took; zero keeps
// them all.
func (w *Window) Keep(size int) {
	if over := len(w.Samples) - size; size > 0 && over > 0 {
		w.Samples = slices.Clone(w.Samples[over:])
	}
}

// Append adds a sample as Encode would keep it, counts it, and drops the oldest
// ones over Size. Where the host's clock was set back, or stood still, the older
// samples are moved so that the last of them is one period before the new one:
// only differences inside a window are used, and no sample is lost.
func (w *Window) Append(s Sample) {
	s = s.normal()
	if last := w.Last(); last != nil && !s.At.After(last.At) {
		by := last.At.Sub(s.At) + max(w.Period, resolutionAt)
		for i := range w.Samples {
			w.Samples[i].At = w.Samples[i].At.Add(-by)
		}
	}
	w.Samples = append(w.Samples, s)
	w.Counter++
	if over := len(w.Samples) - max(w.Size, 1); over > 0 {
		w.Samples = slices.Delete(w.Samples, 0, over)
	}
}
