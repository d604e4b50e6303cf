// Package level decides how much of a server a host runs: full, control-plane or
// etcd-only (R-112-01). A level never changes the vote (R-112-03). The memory rule is
// shared with the fitness verdict: one function, so that a host that would step down
// is never called fit (R-185-17).
package level

import "fmt"

// Reading is what a host says of its memory at one moment.
type Reading struct {
	// Pressure is nil where the kernel has no PSI.
	Pressure *Pressure
	// AvailableBytes and TotalBytes are MemAvailable and MemTotal. A total of
	// zero means that neither is known.
	AvailableBytes, TotalBytes uint64
}

// Pressure are the memory averages of /proc/pressure/memory in percent of time,
// 0 to 100: some task, or every task, stood still for want of memory.
type Pressure struct {
	SomeAvg10, SomeAvg60, FullAvg10, FullAvg60 float64
}

// Limits of the memory rule. A limit of zero is not judged.
type Limits struct {
	// SomeAvg60 and FullAvg60 are percent; at or above one of them is over.
	SomeAvg60, FullAvg60 float64
	// AvailableFloorBytes: less available memory than this is over.
	AvailableFloorBytes uint64
}

// DefaultLimits: a fifth of a minute in which somebody waited for memory, a
// twentieth in which everybody did, or less left than an etcd-only server uses
// twice over (R-112-18).
func DefaultLimits() Limits {
	return Limits{SomeAvg60: 20, FullAvg60: 5, AvailableFloorBytes: 256 << 20}
}

// Reason is one limit that a reading breaks, or that could not be judged.
type Reason struct {
	Code     string
	Sentence string
	// Measured and Limit are percent, or bytes for CodeAvailable.
	Measured, Limit float64
}

// Codes of the memory rule.
const (
	CodePressureSome = "MemoryPressureSome"
	CodePressureFull = "MemoryPressureFull"
	CodeAvailable    = "MemoryAvailable"
	CodeNoPressure   = "MemoryPressureUnknown"
	CodeNoAvailable  = "MemoryAvailableUnknown"
)

// Over says whether memory is over the limits, and which: memory pressure, or
// too little available memory (R-112-04). The sixty-second averages are judged;
// those of ten seconds follow a single large program. A value that is missing
// is never over: Missing names it.
func Over(r Reading, l Limits) (bool, []Reason) {
	var rs []Reason
	if p := r.Pressure; p != nil {
		if l.SomeAvg60 > 0 && p.SomeAvg60 >= l.SomeAvg60 {
			rs = append(rs, Reason{CodePressureSome, fmt.Sprintf("some task waited for memory %.2f %% of the last minute, the limit is %.2f %%", p.SomeAvg60, l.SomeAvg60), p.SomeAvg60, l.SomeAvg60})
		}
		if l.FullAvg60 > 0 && p.FullAvg60 >= l.FullAvg60 {
			rs = append(rs, Reason{CodePressureFull, fmt.Sprintf("every task waited for memory %.2f %% of the last minute, the limit is %.2f %%", p.FullAvg60, l.FullAvg60), p.FullAvg60, l.FullAvg60})
		}
	}
	if l.AvailableFloorBytes > 0 && r.TotalBytes > 0 && r.AvailableBytes < l.AvailableFloorBytes {
		rs = append(rs, Reason{CodeAvailable, fmt.Sprintf("%s of memory are available, the floor is %s", MiB(r.AvailableBytes), MiB(l.AvailableFloorBytes)), float64(r.AvailableBytes), float64(l.AvailableFloorBytes)})
	}
	return len(rs) > 0, rs
}

// Missing names what the limits ask for and the reading does not have. It is
// unknown then, which is not the same as well.
func Missing(r Reading, l Limits) []Reason {
	var rs []Reason
	if r.Pressure == nil && (l.SomeAvg60 > 0 || l.FullAvg60 > 0) {
		rs = append(rs, Reason{Code: CodeNoPressure, Sentence: "the memory pressure is not known"})
	}
	if r.TotalBytes == 0 && l.AvailableFloorBytes > 0 {
		rs = append(rs, Reason{Code: CodeNoAvailable, Sentence: "the available memory is not known"})
	}
	return rs
}

// MiB prints a number of bytes for people.
func MiB(b uint64) string { return fmt.Sprintf("%d MiB", b>>20) }
