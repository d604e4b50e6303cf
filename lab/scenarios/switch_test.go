package scenarios

import (
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/host"
)

// slower is how much longer a Docker host may take for what a native host does in
// the same run (issue 5).
const slower = 5 * time.Second

// switched is what one swap took on a host.
type switched struct {
	// gap is how long the host had no k3s when its role changed.
	gap time.Duration
	// steps are the steps of the swap that are the host's.
	steps time.Duration
}

func (s switched) String() string {
	return fmt.Sprintf("%.1f s without k3s, %.0f s in its steps", s.gap.Seconds(), s.steps.Seconds())
}

// promotion and demotion are read from a swap that has ended.
func (s *scenario) promotion(last *status.LastSwap) switched {
	return switched{s.gap(last.In, "agent", "server", last), stepTime(last, "promote")}
}

func (s *scenario) demotion(last *status.LastSwap) switched {
	return switched{s.gap(last.Out, "server", "agent", last), stepTime(last, "step-down") + stepTime(last, "finish")}
}

// gap is the time between the last process of one role and the first of the next.
func (s *scenario) gap(name, from, to string, last *status.LastSwap) time.Duration {
	s.t.Helper()
	var ended time.Time
	for _, c := range s.changesOf(name) {
		switch {
		case c.At.Before(last.Steps[0].At):
		case c.Role == from:
			ended = time.Time{}
		case c.Role == "":
			ended = c.At
		case c.Role == to && ended.IsZero():
			return 0 // one look saw the old one, the next the new one
		case c.Role == to:
			return c.At.Sub(ended)
		}
	}
	s.t.Errorf("%s was not seen to change from %s to %s: %v", name, from, to, s.changesOf(name))
	return 0
}

func (s *scenario) changesOf(name string) []host.RoleChange {
	var out []host.RoleChange
	for _, c := range s.watch.Changes() {
		if c.Host == name {
			out = append(out, c)
		}
	}
	return out
}

func stepTime(last *status.LastSwap, name string) time.Duration {
	var sum time.Duration
	for i, step := range last.Steps {
		until := last.EndedAt
		if i+1 < len(last.Steps) {
			until = last.Steps[i+1].At
		}
		if step.Step == name {
			sum += until.Sub(step.At)
		}
	}
	return sum
}
