package scenarios

import (
	"bytes"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
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
		restart func(name string)
	}{
		{"the engine is restarted", func(name string) {
			_, err := s.Host(name).Systemctl(ctx, "restart", "docker")
			s.must(err)
			s.must(s.AwaitEngine(ctx, s.Host(name)))
		}},
		{"the host is rebooted", func(name string) {
			s.must(s.Host(name).Shutdown(ctx))
			s.must(s.Host(name).Boot(ctx))
			s.must(s.AwaitEngine(ctx, s.Host(name)))
		}},
	} {
		s.Logf("after every effect %s", way.name)
		seen := map[string]string{out: s.deciding(out), in: s.deciding(in)}
		restarts := map[string]int{}
		began := time.Now()
		s.ask(out, in)
		for s.leaseHeldOrNew() {
			for _, name := range []string{out, in} {
				if now := s.deciding(name); now != seen[name] {
					// What comes up may decide anew, and that is an effect too: it is seen at the next look.
					seen[name] = now
					way.restart(name)
					restarts[name]++
				}
			}
		}
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
