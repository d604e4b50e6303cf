package level

import (
	"errors"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// StepUp says who takes a step up.
type StepUp string

// Ways up. Manual is the default (R-112-07): who comes back may be killed again.
const (
	Manual    StepUp = "manual"
	Automatic StepUp = "automatic"
)

// Policy is the rule by which a host changes its level (R-112-04).
type Policy struct {
	// Over is what pressure is; at or above it for a whole Window a level is given up.
	Over Limits `json:"over"`
	// Calm is what a step up asks for. It is stricter than Over: what a level costs
	// has to fit in again.
	Calm Limits `json:"calm"`
	// Window is how long pressure has to last.
	Window time.Duration `json:"window"`
	// Cooldown is how long after a step none follows, and how long it has to be calm
	// before a step up. Longer than Window (R-112-04).
	Cooldown time.Duration `json:"cooldown"`
	StepUp   StepUp        `json:"step_up"`
	// Lowest is the level below which pressure moves nothing.
	Lowest fleet.Level `json:"lowest"`
	// Gap is the longest pause between two readings of one series: beyond it nobody
	// knows what happened meanwhile, and both windows begin anew.
	Gap time.Duration `json:"gap"`
}

// DefaultPolicy are two minutes of pressure, ten of calm.
func DefaultPolicy() Policy {
	return Policy{
		Over: DefaultLimits(), Calm: DefaultCalm(), Window: 2 * time.Minute, Cooldown: 10 * time.Minute,
		StepUp: Manual, Lowest: fleet.LevelEtcdOnly, Gap: time.Minute,
	}
}

// DefaultCalm is a quarter of the pressure, and the floor with room for what a full
// server uses beyond an etcd-only one (R-112-18).
func DefaultCalm() Limits {
	return Limits{SomeAvg60: 5, FullAvg60: 1, AvailableFloorBytes: 640 << 20}
}

// CalmLimits are Calm without what Over does not judge: a kernel without PSI has no calm of it.
func (p Policy) CalmLimits() Limits {
	l := p.Calm
	if p.Over.SomeAvg60 == 0 {
		l.SomeAvg60 = 0
	}
	if p.Over.FullAvg60 == 0 {
		l.FullAvg60 = 0
	}
	return l
}

// Check names every setting that makes no sense, and those that cannot go together.
func (p Policy) Check() error {
	var problems []error
	bad := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	for _, x := range []struct {
		key      string
		over, up float64
	}{
		{"some", p.Over.SomeAvg60, p.Calm.SomeAvg60},
		{"full", p.Over.FullAvg60, p.Calm.FullAvg60},
	} {
		switch {
		case !(x.over >= 0 && x.over <= 100): // not a NaN either
			bad(x.key, "%v is not between 0 and 100 %%", x.over)
		case !(x.up >= 0 && x.up <= 100):
			bad("calm-"+x.key, "%v is not between 0 and 100 %%", x.up)
		case x.over > 0 && (x.up <= 0 || x.up > x.over):
			bad("calm-"+x.key, "%v %% is not above 0 and at or under %s, %v %%: a host would step down by what it stepped up on", x.up, x.key, x.over)
		}
	}
	if p.Over == (Limits{}) {
		bad("some, full, floor", "all are 0: nothing would ever be pressure")
	}
	if p.Over.AvailableFloorBytes > 0 && p.Calm.AvailableFloorBytes < p.Over.AvailableFloorBytes {
		bad("calm-floor", "%s is less than floor, %s: a host would step down by what it stepped up on", MiB(p.Calm.AvailableFloorBytes), MiB(p.Over.AvailableFloorBytes))
	}
	if p.Window < 10*time.Second || p.Window > time.Hour {
		bad("window", "%s is not between 10s and 1h", p.Window)
	}
	if p.Cooldown <= p.Window {
		bad("cooldown", "%s is not longer than window, %s (R-112-04)", p.Cooldown, p.Window)
	}
	if p.Cooldown > 24*time.Hour {
		bad("cooldown", "%s is more than 24h", p.Cooldown)
	}
	if p.Gap <= 0 || p.Gap >= p.Window {
		bad("period", "readings up to %s apart give no window of %s", p.Gap, p.Window)
	}
	if p.StepUp != Manual && p.StepUp != Automatic {
		bad("step-up", "%q is neither manual nor automatic", p.StepUp)
	}
	if p.Lowest != fleet.LevelControlPlane && p.Lowest != fleet.LevelEtcdOnly {
		bad("lowest", "%q is neither control-plane nor etcd-only", p.Lowest)
	}
	return errors.Join(problems...)
}

// order are the levels from most to least.
var order = []fleet.Level{fleet.LevelFull, fleet.LevelControlPlane, fleet.LevelEtcdOnly}

// rank is a level's place among them, -1 for none.
func rank(l fleet.Level) int {
	for i, x := range order {
		if x == l {
			return i
		}
	}
	return -1
}

// Below says whether a level runs less than another.
func Below(l, than fleet.Level) bool { return rank(l) > rank(than) && rank(than) >= 0 }

// Toward is the level one step from here to there; here, when it is there.
func Toward(here, there fleet.Level) fleet.Level {
	a, b := rank(here), rank(there)
	switch {
	case a < 0 || b < 0 || a == b:
		return here
	case a < b:
		return order[a+1]
	}
	return order[a-1]
}
