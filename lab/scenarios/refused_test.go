package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// refusing is a fleet with standbys that lack something: n5 is not staged, n6
// holds an agent's token, n7 has another flannel backend.
func refusing() cluster.Spec {
	spec := cluster.Standard()
	spec.Hosts = append(spec.Hosts,
		cluster.HostSpec{Name: "n5", Role: cluster.Agent, Standby: true, Unstaged: true},
		cluster.HostSpec{Name: "n6", Role: cluster.Agent, Standby: true, Server: map[string]any{"token": cluster.AgentToken}},
		cluster.HostSpec{Name: "n7", Role: cluster.Agent, Standby: true, Server: map[string]any{"flannel-backend": "vxlan"}},
	)
	return spec
}

// One cluster, several promises: nothing of a refused swap is seen on any host
// or Node, and a fleet that refused can still swap afterwards.
func Test_swap_refused(t *testing.T) {
	beside(t)
	s := begin(t, refusing(), []string{"FLEET_ROLE_RUNNER_WAIT_SECONDS=20"}, "n2", "n3")
	ctx := t.Context()

	// R-E2-04: exit status 2 for a request that is wrong in itself.
	t.Run("wrong_requests", func(t *testing.T) {
		for name, args := range map[string][]string{
			"an unknown node":    {"swap", "n1", "nobody"},
			"one node twice":     {"swap", "n1", "n1"},
			"one node only":      {"swap", "n1"},
			"an unknown setting": {"swap", "n1", "n4", "--no-such-flag"},
		} {
			o, err := s.CLI(ctx, args...)
			if err != nil || o.Code != fleet.ExitRefused {
				t.Errorf("%s: exit %d, %v: %s%s", name, o.Code, err, o.Stdout, o.Stderr)
			}
		}
		s.patchNode("n4", map[string]any{keys.Pinned(): "true"}, nil)
		s.refuses(t, fleet.ExitRefused, "n1", "n4", "pinned")
		s.patchNode("n4", map[string]any{keys.Pinned(): nil, keys.Eligible(): "maybe"}, nil)
		s.refuses(t, fleet.ExitRefused, "n1", "n4", "eligible")
		s.patchNode("n4", map[string]any{keys.Eligible(): "true"}, nil)
	})

	// R-228-15, R-I-34, safety rule 17.
	t.Run("standby_not_staged", func(t *testing.T) { s.refuses(t, fleet.ExitFailed, "n1", "n5", "server.yaml") })
	t.Run("wrong_token", func(t *testing.T) { s.refuses(t, fleet.ExitFailed, "n1", "n6", "token") })
	t.Run("wrong_flags", func(t *testing.T) { s.refuses(t, fleet.ExitFailed, "n1", "n7", "flannel-backend") })

	// R-E2-45, R-I-38.
	t.Run("voter_paused", func(t *testing.T) {
		// n2 answers nobody for a while; a follower that is gone costs no election.
		s.must(s.MoveLeader(ctx, s.Host("n3")))
		s.writeThrough("n3")
		mend, err := fault.Pause(s.Host("n2"), cluster.ServerUnit)
		s.must(err)
		s.refuses(t, fleet.ExitFailed, "n1", "n4", "n2")
		s.must(mend())
		s.must(s.AwaitNodesReady(ctx, soon, "n2"))
		s.writeThrough("n2", "n3")
	})

	// Safety rule 20.
	t.Run("budget_blocks", func(t *testing.T) {
		s.must(s.RunPod(ctx, cluster.PodSpec{Name: "guarded", Node: "n4", Owner: true}))
		s.must(s.Budget(ctx, "guard", "guarded"))
		s.refuses(t, fleet.ExitFailed, "n1", "n4", "guarded")
		s.must(s.DeleteBudget(ctx, "guard"))
		s.must(s.EndPod(ctx, "guarded"))
	})

	t.Run("job_running", s.jobRunning)
	s.end("n2", "n3", "n4")
}

// refuses asks for a swap and checks that the answer names what is wrong and
// that nothing at all has changed.
func (s *scenario) refuses(t *testing.T, code int, out, in, word string) {
	t.Helper()
	pids := map[string]int{out: s.k3sPID(t, out), in: s.k3sPID(t, in)}
	o, err := s.CLI(t.Context(), "swap", out, in)
	s.must(err)
	said := o.Stdout + o.Stderr
	s.Logf("swap %s %s: exit %d: %s", out, in, o.Code, strings.TrimSpace(said))
	if o.Code != code {
		t.Errorf("swap %s %s: exit %d, want %d: %s", out, in, o.Code, code, said)
	}
	if !strings.Contains(said, word) {
		t.Errorf("swap %s %s: the answer does not name %q: %s", out, in, word, said)
	}
	if holder, err := s.leaseHolder(t.Context()); err != nil || holder != "" {
		t.Errorf("the Lease is held by %q (%v)", holder, err)
	}
	for _, name := range []string{out, in} {
		n := s.node(name)
		for _, key := range append(keys.SwapAnnotations(), keys.Cordoned()) {
			if _, ok := n.Annotations[key]; ok {
				t.Errorf("%s carries %s", name, key)
			}
		}
		if n.Spec.Unschedulable {
			t.Errorf("%s is cordoned", name)
		}
		if pid := s.k3sPID(t, name); pid != pids[name] {
			t.Errorf("k3s on %s was process %d and is %d", name, pids[name], pid)
		}
	}
}

// k3sPID is the process of the one k3s that runs on the host.
func (s *scenario) k3sPID(t *testing.T, name string) int {
	t.Helper()
	ps, err := s.Host(name).K3s()
	s.must(err)
	if len(ps) != 1 {
		t.Fatalf("%d k3s processes on %s", len(ps), name)
	}
	return ps[0].PID
}

// jobRunning: jobs on either host are waited for before anything is switched
// and are never cut; past the runner wait the swap is abandoned with nothing
// changed (R-I-07, R-N-15, R-228-13, R-228-45, safety rule 20).
func (s *scenario) jobRunning(t *testing.T) {
	ctx := t.Context()
	s.must(s.RunRunner(ctx, "job-in", "n4"))
	s.must(s.RunRunner(ctx, "job-out", "n1"))
	pids := map[string]int{"n1": s.k3sPID(t, "n1"), "n4": s.k3sPID(t, "n4")}

	o := s.swap("n1", "n4")
	last := s.ended("n1", "n4")
	if o.Code != fleet.ExitFailed || last.Outcome != fleet.OutcomeAbandoned {
		t.Fatalf("exit %d, outcome %s: want an abandoned swap", o.Code, last.Outcome)
	}
	s.untouched(t, pids, "job-in", "job-out")
	for _, name := range []string{"n1", "n4"} {
		n := s.node(name)
		if ps := marks(n, name == "n1"); len(ps) > 0 {
			t.Errorf("the abandoned swap left %v", ps)
		}
	}

	// The same again with an hour to wait.
	s.must(s.controller.Stop())
	s.controller.Env = nil
	s.must(s.controller.Start(ctx))
	done := make(chan cluster.Outcome, 1)
	go func() {
		o, _ := s.CLI(ctx, "swap", "n1", "n4", "--wait", "--timeout", swapLimit.String())
		done <- o
	}()
	s.awaitState("wait")
	s.stays("wait", 6*time.Second)
	s.untouched(t, pids, "job-in", "job-out")
	s.must(s.EndPod(ctx, "job-in"))
	s.stays("wait", 6*time.Second)
	s.untouched(t, pids, "job-out")
	s.must(s.EndPod(ctx, "job-out"))
	if o := <-done; o.Code != fleet.ExitDone {
		t.Fatalf("the swap ended with exit status %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	s.printSteps(s.ended("n1", "n4"))
}

func (s *scenario) untouched(t *testing.T, pids map[string]int, pods ...string) {
	t.Helper()
	for name, pid := range pids {
		if now := s.k3sPID(t, name); now != pid {
			t.Errorf("k3s on %s was process %d and is %d", name, pid, now)
		}
	}
	for _, p := range pods {
		if there, err := s.PodIsThere(t.Context(), p); err != nil || !there {
			t.Errorf("the job %s was cut (%v)", p, err)
		}
	}
}

// awaitState waits until the controller says that the swap is in a state.
func (s *scenario) awaitState(states ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(swapLimit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if st := s.status(); slices.Contains(states, st.Next.State) {
			return
		}
	}
	st := s.status()
	s.t.Fatalf("the swap did not come to %v; it is in %s: %s %+v", states, st.Next.State, st.Next.Sentence, st.Next.Waits)
}

// stays checks that the swap keeps its state.
func (s *scenario) stays(state string, during time.Duration) {
	s.t.Helper()
	for deadline := time.Now().Add(during); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		if st := s.status(); st.Next.State != state {
			s.t.Fatalf("the swap left %s for %s: %s", state, st.Next.State, st.Next.Sentence)
		}
	}
}
