package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// Issue 5, bad input on Docker hosts: a role file that says nothing, a container
// name that somebody has taken, an engine that stops answering in the middle of a
// step. Each is named, nothing is lost, and the host runs exactly one role.
func Test_bad_docker(t *testing.T) {
	long(t)
	s, out, in := troubledDocker(t, "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=120", "FLEET_ROLE_FINISH_SECONDS=120")
	s.leaderDies = true
	ctx := t.Context()
	pids := map[string]int{out: s.k3sPID(t, out), in: s.k3sPID(t, in)}

	s.Logf("the role file of %s is damaged", in)
	s.must(s.Host(in).WriteFile(fleet.FileRole, []byte("\x00\x00sever\n"), 0o644))
	s.awaitRefusal(in, out, in, "role")
	s.untouched(t, pids)
	s.must(s.Host(in).WriteFile(fleet.FileRole, []byte("agent\n"), 0o644))
	s.awaitReports()

	s.Logf("another container has the name of the agent's on %s", out)
	s.docker(out, "rm", cluster.AgentContainer)
	s.docker(out, "create", "--name", cluster.AgentContainer, cluster.RegradeImage)
	s.awaitRefusal(out, out, in, cluster.AgentContainer)
	s.untouched(t, pids)
	s.docker(out, "rm", cluster.AgentContainer)
	s.compose(out, "--profile", "server", "--profile", "agent", "up", "--no-start", "--no-recreate")
	s.untouched(t, pids)
	s.awaitReports()

	s.Logf("the engine of either host stops answering in the middle of its step")
	s.ask(out, in)
	s.awaitFile(in, fleet.FileJoining)
	s.hangEngine(in, 30*time.Second)
	s.awaitFile(out, fleet.FileLeaving)
	s.hangEngine(out, 30*time.Second)
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.checkAgent(out)
	s.must(s.AwaitNodesReady(ctx, soon, in))
	s.end("n2", "n3", in)
}

// awaitRefusal waits until a host says of itself what is wrong, and checks that a
// swap is refused for it.
func (s *scenario) awaitRefusal(name, out, in, word string) {
	s.t.Helper()
	s.eventually(soon, name+" to say "+word, func(context.Context) (bool, string) {
		r := s.report(name)
		for _, p := range []*status.Preflight{r.Preflight, r.AsAgent} {
			if p != nil && strings.Contains(fmt.Sprintf("%+v", *p), word) {
				return true, ""
			}
		}
		return strings.Contains(r.Message, word), fmt.Sprintf("%+v %+v %s", r.Preflight, r.AsAgent, r.Message)
	})
	s.refuses(s.t, fleet.ExitFailed, out, in, word)
}

// hangEngine stops the engine's process for a while: nobody is answered, and what
// it has started runs on.
func (s *scenario) hangEngine(name string, during time.Duration) {
	s.t.Helper()
	resume, err := fault.Pause(s.Host(name), "docker.service")
	s.must(err)
	s.Logf("the engine of %s hangs", name)
	time.Sleep(during)
	next := s.status().Next
	s.Logf("%s: %s %+v", next.State, next.Sentence, next.Waits)
	s.must(resume())
}
