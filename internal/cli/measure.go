package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fitness"
)

// words of each kind of measure, and how its value is written.
var kinds = map[fitness.Kind]struct {
	words string
	value func(float64) string
	// floor: less is worse.
	floor bool
}{
	fitness.ConnectP99:       {"connect p99 to", seconds, false},
	fitness.ConnectFailed:    {"connects failed to", percent, false},
	fitness.RoundTripMean:    {"round trip to", seconds, false},
	fitness.WALFsyncP99:      {"WAL fsync p99", seconds, false},
	fitness.BackendCommitP99: {"backend commit p99", seconds, false},
	fitness.FsyncP99:         {"fdatasync p99", seconds, false},
	fitness.MemoryOver:       {"memory over its limit", percent, false},
	fitness.MemoryAvailable:  {"memory available", mebibytes, true},
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g us", float64(d)/float64(time.Microsecond))
}

func percent(r float64) string { return fmt.Sprintf("%.3g %%", 100*r) }

func mebibytes(b float64) string {
	const mib = 1 << 20
	if b >= 1<<30 {
		return fmt.Sprintf("%.3g GiB", b/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", b/mib)
}

// measureName is a measure in words, with its peer.
func measureName(m fitness.Measure) string {
	k, known := kinds[m.Kind]
	if !known {
		return strings.TrimSpace(string(m.Kind) + " " + m.Peer) // of a newer controller
	}
	return strings.TrimSpace(k.words + " " + m.Peer)
}

// measureValue is its value; of a histogram's bucket both edges.
func measureValue(m fitness.Measure) string {
	value := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	if k, known := kinds[m.Kind]; known {
		value = k.value
	}
	switch {
	case m.Open:
		return "over " + value(m.Lower)
	case m.Lower != m.Upper:
		return value(m.Lower) + " to " + value(m.Upper)
	}
	return value(m.Upper)
}

func measureLimit(m fitness.Measure) string {
	k, known := kinds[m.Kind]
	if !known {
		return fmt.Sprintf("%.3g", m.Limit)
	}
	if k.floor {
		return "at least " + k.value(m.Limit)
	}
	return k.value(m.Limit)
}

// marginColour: within the limit, close to it, beyond it.
func marginColour(margin float64) colour {
	switch {
	case margin > 1:
		return red
	case margin > 0.7:
		return yellow
	}
	return green
}

func verdictColour(f fitness.Fitness) colour {
	switch f {
	case fitness.Fit:
		return green
	case fitness.Unfit:
		return red
	}
	return yellow
}

// worst is the measure of a kind with the greatest margin.
func worst(v *fitness.Verdict, kind fitness.Kind) (fitness.Measure, bool) {
	var out fitness.Measure
	found := false
	for _, m := range v.Measures {
		if m.Kind == kind && (!found || m.Margin > out.Margin) {
			out, found = m, true
		}
	}
	return out, found
}

// series are the values of a measure over the window, oldest first, NaN where
// a sample has none. They are of the samples, so that a bar shows when it was.
func series(w *fitness.Window, m fitness.Measure) []float64 {
	out := make([]float64, len(w.Samples))
	for i := range w.Samples {
		out[i] = ofSample(&w.Samples[i], m)
	}
	return out
}

func ofSample(s *fitness.Sample, m fitness.Measure) float64 {
	switch m.Kind {
	case fitness.ConnectP99, fitness.ConnectFailed:
		for _, c := range s.Connect {
			switch {
			case c.To != m.Peer:
			case m.Kind == fitness.ConnectFailed:
				return one(c.Failed)
			case c.Failed:
				return math.NaN()
			default:
				return c.Took.Seconds()
			}
		}
	case fitness.MemoryAvailable:
		if s.Memory != nil && s.Memory.TotalBytes > 0 {
			return float64(s.Memory.AvailableBytes)
		}
	case fitness.FsyncP99:
		if s.Fsync != nil {
			return s.Fsync.P99.Seconds()
		}
	case fitness.WALFsyncP99, fitness.BackendCommitP99:
		if s.Etcd != nil && s.Etcd.Gains != nil {
			h := s.Etcd.Gains.WALFsync
			if m.Kind == fitness.BackendCommitP99 {
				h = s.Etcd.Gains.BackendCommit
			}
			return highest(h)
		}
	}
	return math.NaN()
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// highest is the upper edge of the highest bucket that a histogram has
// something in, NaN for an empty one.
func highest(h fitness.Histogram) float64 {
	bounds := fitness.DiskBounds()
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] > 0 {
			return bounds[min(i, len(bounds)-1)].Seconds()
		}
	}
	return math.NaN()
}
