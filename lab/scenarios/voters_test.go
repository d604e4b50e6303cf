package scenarios

import (
	"context"
	"time"
)

// watchVoters looks at the member list all the time, through the first of the hosts that answers, until the test calls
// what it gives: then there must never have been fewer voters than the target. The longest time without a linearizable
// list is printed.
func (s *scenario) watchVoters(via ...string) (check func()) {
	s.t.Helper()
	const target = 3
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	looks, fewest, list, silent := 0, 0, "", time.Duration(0)
	look := func() bool {
		for _, n := range via {
			if !s.Host(n).Up() {
				continue
			}
			l, err := s.MembersAt(ctx, s.Host(n))
			if err != nil {
				continue
			}
			if n := len(l.Voters()); looks == 0 || n < fewest {
				fewest, list = n, l.String()
			}
			looks++
			return true
		}
		return false
	}
	go func() {
		defer close(done)
		for last := time.Now(); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			if look() {
				silent = max(silent, time.Since(last))
				last = time.Now()
			}
		}
	}()
	return func() {
		s.t.Helper()
		cancel()
		<-done
		s.Logf("the list was read %d times, %d voters at least, %.1f s at most without one", looks, fewest, silent.Seconds())
		if looks == 0 || fewest < target {
			s.t.Errorf("fewer voters than the target of %d: %s", target, list)
		}
	}
}
