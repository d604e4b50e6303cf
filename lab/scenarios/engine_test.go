package scenarios

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

func trimmed(raw []byte) []byte { return bytes.TrimSpace(raw) }

// Safety rules 10, 11 and 18 on Docker hosts: in one swap the engine of a host is
// restarted after every effect on it, in another the host is: all its containers
// stop and the engine decides what comes back. The role file decides what becomes
// k3s, never both, and the swap goes on.
func Test_engine_restarted(t *testing.T) {
	long(t)
	// The bounds of a real fleet: it is not the time that is tried here.
	s, out, in := troubledDocker(t, "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=300", "FLEET_ROLE_FINISH_SECONDS=300")
	s.leaderDies = true
	ctx := t.Context()
	for _, way := range []struct {
		name    string
		restart func(h *host.Host) error
	}{
		{"the engine is restarted", func(h *host.Host) error {
			_, err := h.Systemctl(ctx, "restart", "docker")
			return err
		}},
		{"the host is rebooted", func(h *host.Host) error {
			return errors.Join(h.Shutdown(ctx), h.Boot(ctx))
		}},
	} {
		s.Logf("after every effect %s", way.name)
		restarts := map[string]int{}
		var mu sync.Mutex
		// Each host has its own, so that no effect on one passes while the other is restarted.
		watch, ended := context.WithCancel(ctx)
		var hosts sync.WaitGroup
		for _, name := range []string{out, in} {
			seen := s.deciding(name)
			hosts.Go(func() {
				for watch.Err() == nil {
					now := s.deciding(name)
					if now == seen {
						time.Sleep(5 * time.Millisecond)
						continue
					}
					// What comes up may decide anew, and that is an effect too: it is seen at the next look.
					seen = now
					if err := errors.Join(way.restart(s.Host(name)), s.AwaitEngine(ctx, s.Host(name))); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					restarts[name]++
					mu.Unlock()
				}
			})
		}
		began := time.Now()
		s.ask(out, in)
		for s.leaseHeldOrNew() {
			time.Sleep(200 * time.Millisecond)
		}
		ended()
		hosts.Wait()
		s.Logf("restarts: %v in %.0f s", restarts, time.Since(began).Seconds())
		if restarts[out] < 4 || restarts[in] < 4 {
			t.Errorf("too few restarts to prove anything: %v", restarts)
		}
		s.ends(out, in, fleet.OutcomeCompleted)
		s.backAsAgent(out)
		s.checkAgent(out)
		s.must(s.AwaitNodesReady(ctx, 2*time.Minute, out, in))
		s.must(s.AwaitVoters(ctx, soon, "n2", "n3", in))
		out, in = in, out
	}
	s.end("n2", "n3", out)
}
