package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
)

// hurried is the standard fleet with its bounds shortened, so that a scenario in
// which something never comes takes minutes and not an hour. A real k3s keeps its
// own learner stall and its own patience with a silent kubelet.
func hurried() cluster.Spec {
	spec := cluster.Standard()
	spec.Env = map[string]string{"K3S_STANDIN_LEARNER_STALL": "20s"}
	spec.HostSettings = map[string]any{"period": "5s"}
	for i := range spec.Hosts {
		spec.Hosts[i].Server = map[string]any{"kube-controller-manager-arg": []string{"node-monitor-grace-period=20s"}}
	}
	return spec
}

// bounds are the controller's, to match.
func (s *scenario) bounds() []string {
	stall := 20
	if s.Binaries.Real {
		stall = 300
	}
	return []string{
		"FLEET_ROLE_PERIOD_SECONDS=5", "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=45", "FLEET_ROLE_RUNNER_WAIT_SECONDS=20",
		"FLEET_ROLE_FINISH_SECONDS=90", "FLEET_ROLE_TAKE_OVER_SECONDS=5", fmt.Sprintf("FLEET_ROLE_LEARNER_STALL_SECONDS=%d", stall),
	}
}

// troubled is a scenario on a lent cluster of the hurried kind, with its writer on
// n2 and n3. out votes, in stands by: n1 and n4, whichever way the last one left them.
func troubled(t *testing.T, more ...string) (s *scenario, out, in string) {
	t.Helper()
	return troubledOn(t, "hurried", hurried, more...)
}

func troubledOn(t *testing.T, kind string, spec func() cluster.Spec, more ...string) (s *scenario, out, in string) {
	t.Helper()
	beside(t)
	c := shared.take(t, kind, spec)
	s = &scenario{Cluster: c}
	s = beginOn(t, c, append(s.bounds(), more...), "n2", "n3")
	members, err := s.Members(t.Context())
	s.must(err)
	if out, in = "n1", "n4"; slices.Contains(members.Voters(), "n4") {
		out, in = in, out
	}
	s.Logf("%s votes, %s stands by", out, in)
	return s, out, in
}

// long leaves a scenario to `make lab`, one of five minutes and more as a rule: what
// `make test` runs has to end within the time of one build.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: run by make lab, not by make test")
	}
}

// ask orders a swap and does not wait for it.
func (s *scenario) ask(out, in string) {
	s.t.Helper()
	o, err := s.CLI(s.t.Context(), "swap", out, in)
	s.must(err)
	if o.Code != fleet.ExitDone {
		s.t.Fatalf("swap %s %s: exit %d: %s%s", out, in, o.Code, o.Stdout, o.Stderr)
	}
	s.Logf("regrade swap %s %s is accepted", out, in)
}

// ends waits for the end of the pair's swap and checks how it ended.
func (s *scenario) ends(out, in string, want fleet.Outcome) *status.LastSwap {
	s.t.Helper()
	last := s.ended(out, in)
	for _, r := range last.Reasons {
		s.Logf("  %s: %s", r.Code, r.Sentence)
	}
	s.printSteps(last)
	if last.Outcome != want {
		s.t.Fatalf("the swap of %s for %s ended %s, want %s: %+v", out, in, last.Outcome, want, last.Reasons)
	}
	return last
}

// completed waits for the end of a swap that has to be completed, and checks the
// cluster it leaves.
func (s *scenario) completed(out, in string) {
	s.t.Helper()
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.checkAgent(out)
	s.end("n2", "n3", in)
}

// rolledBack waits for a rollback and checks that the members are exactly those
// of before, by id.
func (s *scenario) rolledBack(out, in string, before cluster.MemberList) *status.LastSwap {
	s.t.Helper()
	last := s.ends(out, in, fleet.OutcomeRolledBack)
	s.sameMembers(before)
	return last
}

func (s *scenario) sameMembers(before cluster.MemberList) {
	s.t.Helper()
	after := s.members()
	if after.String() != before.String() {
		s.t.Errorf("the members were %s and are %s", before, after)
	}
}

func (s *scenario) members() cluster.MemberList {
	s.t.Helper()
	var list cluster.MemberList
	s.eventually(soon, "a member list", func(ctx context.Context) (bool, string) {
		var err error
		list, err = s.Members(ctx)
		return err == nil, fmt.Sprint(err)
	})
	return list
}

// memberOf is the member of a node, nil when it has none. One that never started
// has no name and is known by its address.
func (s *scenario) memberOf(list cluster.MemberList, node string) *cluster.Member {
	address := s.Host(node).IP().String()
	for i, m := range list.Members {
		if m.Node() == node || strings.Contains(m.PeerURL, "//"+address+":") {
			return &list.Members[i]
		}
	}
	return nil
}

// untilMember looks at the member list, as often as it can, until the node's
// member is as wanted.
func (s *scenario) untilMember(node, what string, wanted func(m *cluster.Member) bool) {
	s.t.Helper()
	var list cluster.MemberList
	for deadline := time.Now().Add(swapLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		if list, err = s.MembersAt(s.t.Context(), s.Host("n2")); err == nil && wanted(s.memberOf(list, node)) {
			s.Logf("%s is %s", node, what)
			return
		}
	}
	s.t.Fatalf("%s did not become %s: %s", node, what, list)
}

func listed(m *cluster.Member) bool  { return m != nil }
func learner(m *cluster.Member) bool { return m != nil && m.Learner && m.Name != "" }
func voter(m *cluster.Member) bool   { return m != nil && !m.Learner }

// waitsFor waits until the published decision names a node and, in a code or a
// sentence, a word.
func (s *scenario) waitsFor(node, word string) {
	s.t.Helper()
	s.eventually(3*time.Minute, fmt.Sprintf("a wait that names %s and %q", node, word), func(context.Context) (bool, string) {
		next := s.status().Next
		for _, w := range next.Waits {
			if (w.Node == node || strings.Contains(w.Sentence, node)) && (strings.Contains(w.Sentence, word) || strings.Contains(w.Code, word)) {
				s.Logf("%s: %s; %s: %s", next.State, next.Sentence, w.Code, w.Sentence)
				return true, ""
			}
		}
		return false, fmt.Sprintf("%s: %s %+v", next.State, next.Sentence, next.Waits)
	})
}

// neverAMember checks for a while that no list has a member of the node.
func (s *scenario) neverAMember(node string, during time.Duration) {
	s.t.Helper()
	s.must(cluster.Never(s.t.Context(), during, node+" is a member again", func(ctx context.Context) (bool, string) {
		list, err := s.MembersAt(ctx, s.Host("n2"))
		if err != nil {
			return false, ""
		}
		return s.memberOf(list, node) != nil, list.String()
	}))
}

// back waits until a host is Ready, an agent, and an agent only.
func (s *scenario) backAsAgent(name string) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.AwaitNodesReady(ctx, 2*time.Minute, name))
	s.must(s.AwaitRole(ctx, soon, s.Host(name), cluster.Agent))
}

// checkNoMarks waits until nothing of a swap and nothing of a server is on an
// agent's Node.
func (s *scenario) checkNoMarks(name string) {
	s.t.Helper()
	s.eventually(2*time.Minute, name+" to be clean", func(context.Context) (bool, string) {
		ps := marks(s.node(name), false)
		return len(ps) == 0, strings.Join(ps, "; ")
	})
}

// reaches waits until the swap asked for is in a state, or past its end.
func (s *scenario) reaches(state string) bool {
	s.t.Helper()
	for deadline := time.Now().Add(swapLimit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if s.status().Next.State == state {
			return true
		}
		if !s.leaseHeldOrNew() {
			return false
		}
	}
	s.t.Fatalf("the swap neither came to %s nor ended", state)
	return false
}
