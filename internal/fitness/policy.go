package fitness

import (
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/level"
)

// Policy is what an operator may set. Limits are derived from it, never kept
// beside it (R-185-26). A limit of zero is not judged, and nothing is missed where
// no limit asks for it.
type Policy struct {
	// Period and Size are how often a probe samples and how many samples are
	// judged. A probe is silent after three periods, a window that holds fewer
	// samples is not full.
	Period time.Duration
	Size   int
	// ElectionTimeout is etcd's; k3s sets 5 s (k3s-facts §11.1).
	ElectionTimeout time.Duration
	// FailedConnects is the ratio, 0 to 1, above which a link is bad.
	FailedConnects float64
	// WALFsync and BackendCommit are the limits of a p99; a standby's own
	// fdatasync is held to WALFsync (R-185-16, etcd's guidance).
	WALFsync, BackendCommit time.Duration
	Memory                  level.Limits
	// MemoryOver is the ratio of a window's samples from which memory is over, and
	// MemoryEntry the most that a standby may have.
	MemoryOver, MemoryEntry float64
	// QuotaBytes is etcd's storage quota where no voter's page says it: its
	// default is 2 GiB.
	QuotaBytes uint64
	WiFi       WiFiRule
}

// WiFiRule is what a default route by Wi-Fi means.
type WiFiRule string

// Rules. Avoid is the default: such a standby is not brought in, nor one that was on
// Wi-Fi within its window, and such a voter is reported and stays. With Unfit it is thrown out as well.
const (
	WiFiIgnore WiFiRule = "ignore"
	WiFiAvoid  WiFiRule = "avoid"
	WiFiUnfit  WiFiRule = "unfit"
)

// ParseWiFiRule reads a setting.
func ParseWiFiRule(s string) (WiFiRule, error) {
	switch r := WiFiRule(s); r {
	case WiFiIgnore, WiFiAvoid, WiFiUnfit:
		return r, nil
	}
	return "", fmt.Errorf("Wi-Fi rule %q: want %s, %s or %s", s, WiFiIgnore, WiFiAvoid, WiFiUnfit)
}

// DefaultPolicy are the limits of design §3.
func DefaultPolicy() Policy {
	return Policy{
		Period:          DefaultPeriod,
		Size:            DefaultSize,
		ElectionTimeout: 5 * time.Second,
		FailedConnects:  0.01,
		WALFsync:        10 * time.Millisecond,
		BackendCommit:   25 * time.Millisecond,
		Memory:          level.DefaultLimits(),
		MemoryOver:      0.5,
		MemoryEntry:     0.1,
		QuotaBytes:      2 << 30,
		WiFi:            WiFiAvoid,
	}
}

// LinkLimit is the network time above which a link between voters is bad: a
// tenth of the election timeout (R-185-15; etcd wants ten round trips in one).
func (p Policy) LinkLimit() time.Duration { return p.ElectionTimeout / 10 }

// LinkEntry is the most that a standby may measure to a voter that would stay:
// a twentieth. Between the two limits nothing changes: that is the hysteresis.
func (p Policy) LinkEntry() time.Duration { return p.ElectionTimeout / 20 }

// Lasting says whether so many samples beyond a limit, so far apart, are more
// than chance or one bad moment: of a window of 100 four, over a quarter of it.
// Where one connect in a hundred is slow, as a fit link may have it, four in a
// window come once in fifty windows. Of a link's connects slow and failed ones count
// together. A verdict does not wait for it, a swap does.
func (p Policy) Lasting(samples int, spread time.Duration) bool {
	return samples >= p.fewest() && spread >= p.spread()
}

func (p Policy) fewest() int { return 2 + p.Size/50 }

func (p Policy) spread() time.Duration { return time.Duration(p.Size/4) * p.Period }

// SilentPeriods is how many periods make a probe silent (R-185-20).
const SilentPeriods = 3

// What a reading needs to be judged.
const (
	// enough is the share of a window that a reading must have been taken in.
	enough = 0.9
	// staleWindows: samples older than this many windows, counted back from the
	// newest, are not judged; a probe that was off for hours starts anew.
	staleWindows = 1.5
	// fewestTrips are needed for a mean of etcd's round trips. It makes one about
	// every 30 s to each peer (k3s-facts §11.4).
	fewestTrips = 3
)
