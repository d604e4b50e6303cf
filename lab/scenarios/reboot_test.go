package scenarios

import (
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// moment is a row of design §4.1: when it has come, the host is rebooted, and
// what may start on it is looked at before anything else.
type moment struct {
	name string
	// out says whether the host rebooted is OUT; else it is IN.
	out bool
	// come waits for the moment and may break something that keeps it.
	come func(s *scenario, out, in string) (mend func())
	// server and agent are what may start after the reboot.
	server, agent bool
	// removed: the member is gone, and how far its host is with that is a race of
	// moments. While it is leaving its server may start, but not on a tombstone,
	// and its agent may not; afterwards it is the other way round.
	removed bool
	outcome fleet.Outcome
	// short: looked at in the short form, too. There a reboot has once cost a vote, or may.
	short bool
}

func moments() []moment {
	file := func(host func(out, in string) string, path string) func(*scenario, string, string) func() {
		return func(s *scenario, out, in string) func() {
			s.awaitFile(host(out, in), path)
			return nil
		}
	}
	outHost := func(out, _ string) string { return out }
	state := func(states ...string) func(*scenario, string, string) func() {
		return func(s *scenario, _, _ string) func() {
			s.awaitState(states...)
			return nil
		}
	}
	return []moment{
		{
			name: "step 1: nothing is changed on a host yet", agent: true, outcome: fleet.OutcomeCompleted,
			come: func(s *scenario, _, in string) func() {
				s.awaitState("wait")
				return func() { s.must(s.EndPod(s.t.Context(), "hold")) }
			},
		},
		{
			name: "promote: joining, before a datastore", agent: true, outcome: fleet.OutcomeRolledBack, short: true,
			come: func(s *scenario, _, in string) func() {
				s.awaitFile(in, fleet.FileJoining)
				// The member is added through port 2379: without it no datastore comes.
				mend, err := fault.DropPort(s.t.Context(), s.Host(in), cluster.EtcdPort)
				s.must(err)
				return func() { s.must(mend()) }
			},
		},
		{name: "the datastore exists", server: true, outcome: fleet.OutcomeCompleted, short: true, come: func(s *scenario, _, in string) func() {
			s.awaitRoleFile(in, fleet.RoleServer)
			return nil
		}},
		{name: "IN votes", server: true, outcome: fleet.OutcomeCompleted, come: state("settle", "drain-out")},
		{name: "step-down: leaving", out: true, server: true, outcome: fleet.OutcomeCompleted, short: true, come: file(outHost, fleet.FileLeaving)},
		{name: "the member is removed", out: true, outcome: fleet.OutcomeCompleted, come: state("remove", "finish"), removed: true},
		{name: "finish: the agent is starting", out: true, agent: true, outcome: fleet.OutcomeCompleted, come: func(s *scenario, out, _ string) func() {
			s.quickly(out+" to run an agent", func() bool {
				ps, err := s.Host(out).K3s()
				return err == nil && len(ps) == 1 && ps[0].K3sRole() == string(fleet.RoleAgent)
			})
			return nil
		}},
		{name: "clean-up", out: true, agent: true, outcome: fleet.OutcomeCompleted, come: func(s *scenario, out, _ string) func() {
			s.awaitFinished(out)
			return nil
		}},
	}
}

// Design §4.1, safety rules 10 to 13 and 18: for each row the host it names is
// rebooted there. One cluster, one swap a row, to and fro.
func Test_reboot_each_moment(t *testing.T) {
	beside(t)
	s := begin(t, cluster.Standard(), []string{}, "n2", "n3")
	out, in := "n1", "n4"
	for _, m := range moments() {
		if testing.Short() && !m.short {
			continue
		}
		began := time.Now()
		s.Logf("%s: %s out, %s in", m.name, out, in)
		s.rebootAt(m, out, in)
		last := s.ended(out, in)
		s.Logf("  %s after %.0f s", last.Outcome, time.Since(began).Seconds())
		if last.Outcome != m.outcome {
			t.Fatalf("%s: the swap ended %s, want %s: %+v", m.name, last.Outcome, m.outcome, last.Reasons)
		}
		voters := []string{"n2", "n3", out}
		if last.Outcome == fleet.OutcomeCompleted {
			voters[2] = in
			out, in = in, out
		}
		slices.Sort(voters)
		s.must(s.AwaitVoters(t.Context(), soon, voters...))
		s.must(s.AwaitNodesReady(t.Context(), 2*time.Minute, "n1", "n2", "n3", "n4"))
		if last.OutgoingPending || last.IncomingPending {
			t.Errorf("%s: the swap left a host pending", m.name)
		}
	}
	s.end("n2", "n3", out)
}

func (s *scenario) rebootAt(m moment, out, in string) {
	s.t.Helper()
	ctx := s.t.Context()
	if m.name == moments()[0].name {
		s.must(s.RunRunner(ctx, "hold", in))
	}
	o, err := s.CLI(ctx, "swap", out, in)
	s.must(err)
	if o.Code != fleet.ExitDone {
		s.t.Fatalf("swap %s %s: exit %d: %s%s", out, in, o.Code, o.Stdout, o.Stderr)
	}
	mend := m.come(s, out, in)
	name := in
	if m.out {
		name = out
	}
	h := s.Host(name)
	s.must(h.Crash(ctx, true))
	server, agent := m.server, m.agent
	if m.removed {
		leaving := s.exists(name, fleet.FileLeaving)
		server = leaving && !s.exists(name, fleet.DefaultDataDir+"/server/db/etcd/tombstone")
		agent = !leaving
	}
	for role, want := range map[fleet.Role]bool{fleet.RoleServer: server, fleet.RoleAgent: agent} {
		// Judged on the disk that the next boot will find.
		if got := s.mayStart(name, role); got != want {
			s.t.Errorf("%s: the %s of %s may start: %v, want %v", m.name, role, name, got, want)
		}
	}
	s.must(h.Boot(ctx))
	if !m.removed {
		// The units ask the rule at every start: what runs first is what may start.
		want := fleet.RoleAgent
		if server {
			want = fleet.RoleServer
		}
		s.quickly(name+" to run k3s again", func() bool {
			ps, err := h.K3s()
			return err == nil && len(ps) == 1 && ps[0].K3sRole() != ""
		})
		if ps, err := h.K3s(); err == nil && len(ps) == 1 && ps[0].K3sRole() != string(want) {
			s.t.Errorf("%s: %s runs a k3s %s after the reboot, want %s", m.name, name, ps[0].K3sRole(), want)
		}
	}
	if mend != nil {
		mend()
	}
}

func (s *scenario) exists(name, path string) bool {
	s.t.Helper()
	there, err := s.Host(name).Exists(path)
	s.must(err)
	return there
}

// mayStart asks the shipped start rule about the disk of a host that is down.
func (s *scenario) mayStart(name string, role fleet.Role) bool {
	s.t.Helper()
	_, err := s.Regrade(s.t.Context(), "host", "--root", s.Host(name).Path("/"), "role-is", string(role))
	return err == nil
}

// awaitFile waits, quickly, until a file is there.
func (s *scenario) awaitFile(name, path string) {
	s.t.Helper()
	s.quickly(name+" to have "+path, func() bool {
		there, err := s.Host(name).Exists(path)
		return err == nil && there
	})
}

func (s *scenario) awaitRoleFile(name string, want fleet.Role) {
	s.t.Helper()
	s.quickly(name+" to be a "+string(want), func() bool {
		raw, err := s.Host(name).ReadFile(fleet.FileRole)
		return err == nil && (string(raw) == string(want) || string(raw) == string(want)+"\n")
	})
}

func (s *scenario) awaitFinished(name string) {
	s.t.Helper()
	s.quickly(name+" to be finished", func() bool {
		r := s.report(name)
		return r.Step == fleet.StepFinishDemote && r.Phase == fleet.PhaseDone
	})
}

func (s *scenario) quickly(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(swapLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	s.t.Fatalf("waited in vain for %s", what)
}
