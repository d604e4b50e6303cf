package scenarios

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
)

// What strikes several at once. Each swap ends by itself, with three voters or more at any moment.

// The controller and the daemons of both hosts are killed, or stand still, at the same moment, again and again at random
// moments of one swap and of the way back.
func Test_killed_together(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	seed := uint64(time.Now().UnixNano())
	s.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	upTo := func(d time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(d)))) }
	mend := s.withoutStartLimit(out, in)
	for range 2 {
		check := s.watchVoters("n2", "n3")
		s.ask(out, in)
		kills, stops := 0, 0
		for s.leaseHeldOrNew() && kills+stops < 14 {
			time.Sleep(500 * time.Millisecond)
			upTo(4 * time.Second)
			if r.IntN(2) == 0 {
				kills++
				s.signalDaemons(syscall.SIGKILL, out, in)
				s.must(s.controller.Kill())
				upTo(2500 * time.Millisecond)
				s.must(s.controller.Start(t.Context()))
				continue
			}
			stops++
			s.must(s.controller.Pause())
			s.signalDaemons(syscall.SIGSTOP, out, in)
			time.Sleep(500 * time.Millisecond)
			upTo(9 * time.Second)
			first, second := func() { s.must(s.controller.Continue()) }, func() { s.signalDaemons(syscall.SIGCONT, out, in) }
			if r.IntN(2) == 0 {
				first, second = second, first
			}
			first()
			upTo(1500 * time.Millisecond)
			second()
		}
		s.Logf("killed together %d times, stood still together %d times", kills, stops)
		out, in = s.wentEitherWay(s.ended(out, in), out, in)
		check()
	}
	mend()
	s.end("n2", "n3", out)
}

// Both hosts of the swap lose their power at once: as the candidate joins, as its role file is written, as the outgoing
// host is about to leave, as its removal is asked for.
func Test_both_hosts_down(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.outage = true
	for _, when := range []string{"the candidate joins", "its role file says server", "the outgoing host leaves", "its removal is asked for"} {
		before := s.members()
		check := s.watchVoters("n2", "n3")
		s.ask(out, in)
		switch when {
		case "the candidate joins":
			s.awaitFile(in, fleet.FileJoining)
		case "its role file says server":
			s.awaitRoleFile(in, fleet.RoleServer)
		case "the outgoing host leaves":
			s.awaitFile(out, fleet.FileLeaving)
		default:
			s.reaches("remove")
		}
		s.cut(out, in)
		time.Sleep(3 * time.Second)
		s.bootAll(in, out)
		s.awaitAnswer(3 * time.Minute)
		last := s.ended(out, in)
		s.Logf("%s: %s %+v", when, last.Outcome, last.Reasons)
		if last.Outcome == fleet.OutcomeRolledBack {
			s.sameMembers(before)
		}
		out, in = s.wentEitherWay(last, out, in)
		check()
	}
	s.end("n2", "n3", out)
}

// One of the two hosts hears nothing of the other while both see everybody else, from the moment on that the candidate
// joins, for a minute and a half: once the one, once the other.
func Test_one_way_cut(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	for _, outDeaf := range []bool{true, false} {
		deaf, mute := in, out
		if outDeaf {
			deaf, mute = out, in
		}
		before := s.members()
		check := s.watchVoters("n2", "n3")
		s.must(s.MoveLeader(t.Context(), s.Host("n2")))
		s.ask(out, in)
		s.awaitFile(in, fleet.FileJoining)
		s.must(s.Host(deaf).SetRules(t.Context(), "one-way", []string{"-s", s.Host(mute).IP().String(), "-j", "DROP"}))
		s.Logf("%s hears nothing of %s", deaf, mute)
		for end := time.Now().Add(90 * time.Second); time.Now().Before(end) && s.leaseHeldOrNew(); time.Sleep(time.Second) {
		}
		next := s.status().Next
		s.Logf("status: %s %s: %+v", next.State, next.Sentence, next.Waits)
		s.must(s.Host(deaf).SetRules(t.Context(), "one-way"))
		last := s.ended(out, in)
		if last.Outcome != fleet.OutcomeCompleted {
			s.sameMembers(before)
		}
		out, in = s.wentEitherWay(last, out, in)
		check()
	}
	s.end("n2", "n3", out)
}

// The role files of both hosts are damaged as the candidate joins. The outgoing host refuses to step down, the newcomer is taken
// back, and the swap ends with nothing done by hand: a host that was never touched has no way back to go.
func Test_damaged_role_files(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.leaderDies = true
	check := s.watchVoters("n2", "n3")
	s.ask(out, in)
	s.awaitState("promote")
	s.must(s.Host(in).WriteFile(fleet.FileRole, nil, 0o644))
	s.must(s.Host(out).WriteFile(fleet.FileRole, []byte("serv"), 0o644))
	last := s.ended(out, in)
	s.Logf("%s: %+v", last.Outcome, last.Reasons)
	if last.Outcome != fleet.OutcomeRolledBack {
		t.Errorf("the swap ended %s", last.Outcome)
	}
	s.printSteps(last)
	if role := s.role(out); role != "server\n" {
		s.eventually(soon, out+"'s role file to be named in the status", func(context.Context) (bool, string) {
			for _, h := range s.status().Hosts {
				if h.Name == out && named(h.Reasons, "role") {
					return true, ""
				}
			}
			return false, role
		})
		s.must(s.Host(out).WriteFile(fleet.FileRole, []byte("server\n"), 0o644))
	}
	s.awaitReports()
	s.wentEitherWay(last, out, in)
	check()
	s.end("n2", "n3", out)
}

// wentEitherWay checks the hosts of a swap that may have ended either way, and says which one votes now, and which stands by.
func (s *scenario) wentEitherWay(last *status.LastSwap, out, in string) (votes, stands string) {
	s.t.Helper()
	s.printSteps(last)
	if votes, stands = out, in; last.Outcome == fleet.OutcomeCompleted {
		votes, stands = in, out
	}
	s.backAsAgent(stands)
	s.checkNoMarks(stands)
	s.checkFull(votes)
	s.awaitReports()
	return votes, stands
}

// signalDaemons sends a signal to the host daemons, at the same moment.
func (s *scenario) signalDaemons(sig syscall.Signal, names ...string) {
	var all sync.WaitGroup
	for _, n := range names {
		all.Go(func() { _, _ = s.Host(n).SignalUnit(cluster.HostUnit, sig) })
	}
	all.Wait()
}

// withoutStartLimit lets the hosts' daemons be started as often as they are killed.
func (s *scenario) withoutStartLimit(names ...string) (mend func()) {
	s.t.Helper()
	const folder = "/run/systemd/system/" + cluster.HostUnit + ".d"
	ctx := s.t.Context()
	for _, name := range names {
		_, err := s.Host(name).Run(ctx, "mkdir", "-p", folder)
		s.must(err)
		s.must(s.Host(name).WriteFile(folder+"/lab.conf", []byte("[Unit]\nStartLimitIntervalSec=0\n"), 0o644))
		_, err = s.Host(name).Systemctl(ctx, "daemon-reload")
		s.must(err)
	}
	return func() {
		for _, name := range names {
			s.must(s.Host(name).Remove(folder + "/lab.conf"))
			_, err := s.Host(name).Systemctl(ctx, "daemon-reload")
			s.must(err)
		}
	}
}
