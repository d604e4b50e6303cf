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
	"github.com/exadev/regrade/internal/swap"
)

// What breakers found on the lab, each once more.

// The newcomer's disk is full from the moment on that it joins: it votes, and its role file goes on saying agent. The
// outgoing voter is not given up for a vote that ends with the next reboot (safety rules 2 and 7); with room the swap goes on.
func Test_newcomer_without_room(t *testing.T) {
	long(t)
	s, out, in := troubled(t, "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=300")
	const roles = "/etc/github-runner"
	disks := s.smallDisks(in, roles)
	// Its daemon was started anew, and is refused until it has judged itself.
	s.eventually(soon, "the swap to be accepted", func(ctx context.Context) (bool, string) {
		o, err := s.CLI(ctx, "swap", out, in)
		return err == nil && o.Code == fleet.ExitDone, fmt.Sprintf("exit %d: %s%s %v", o.Code, o.Stdout, o.Stderr, err)
	})
	s.awaitFile(in, fleet.FileJoining)
	disks.fill(roles)
	s.waitsForReason(swap.CodeWrongRole)
	s.held(20 * time.Second)
	if members := s.members(); s.memberOf(members, out) == nil || len(members.Voters()) != 4 {
		t.Errorf("the members are %s", members)
	}
	if role := s.role(in); role != "agent\n" {
		t.Errorf("the role file of %s says %q: the scenario proves nothing", in, role)
	}
	if role := s.role(out); role != "server\n" {
		t.Errorf("the role file of %s says %q", out, role)
	}
	disks.clear(roles)
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.checkAgent(out)
	if role := s.role(in); role != "server\n" {
		t.Errorf("the role file of %s says %q", in, role)
	}
	disks.leave()
	s.end("n2", "n3", in)
}

// The outgoing host is stepped down, and comes to lead etcd again because the voter that it was told to hand over to
// lost its power. It hands leadership to a voter that answers, not to the dead one again and again, which stops all
// writes (safety rule 8).
func Test_leaving_host_leads_again(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.outage, s.leaderDies = true, true
	ctx := t.Context()
	s.ask(out, in)
	s.awaitFile(out, fleet.FileLeaving)
	s.must(s.controller.Pause()) // so that no removal is asked for
	s.eventually(soon, out+" to be stepped down", func(context.Context) (bool, string) {
		r := s.report(out)
		return r.Step == fleet.StepStepDown && r.Phase == fleet.PhaseDone, string(r.Phase)
	})
	dead := s.node(out).Annotations[keys.LeadTo()]
	other := map[string]string{"n2": "n3", "n3": "n2"}[dead]
	s.Logf("%s shall lead; it loses its power; %s stays", dead, other)
	s.writeThrough(other)
	s.must(s.Host(dead).Crash(ctx, true))
	s.eventually(soon, "a leader", func(ctx context.Context) (bool, string) {
		l, err := s.Leader(ctx, s.Host(other))
		return err == nil && l != "" && l != dead, fmt.Sprint(l, err)
	})
	s.eventually(soon, out+" to lead, as an election may have it", func(ctx context.Context) (bool, string) {
		err := s.MoveLeader(ctx, s.Host(out))
		l, _ := s.Leader(ctx, s.Host(other))
		return err == nil || l == out, fmt.Sprint(l, err)
	})
	s.must(s.controller.Continue())
	s.eventually(soon, other+" to lead", func(ctx context.Context) (bool, string) {
		l, err := s.Leader(ctx, s.Host(other))
		return l == other, fmt.Sprint(l, err)
	})
	from := time.Now()
	failed, done := len(s.writer.Failed()), s.writer.Acknowledged()
	time.Sleep(30 * time.Second)
	gap, _ := s.writer.Gap(from, time.Time{})
	failed, done = len(s.writer.Failed())-failed, s.writer.Acknowledged()-done
	s.Logf("30 s with %s down: %d writes, %d failed, longest gap %.1f s", dead, done, failed, gap.Seconds())
	if failed*20 > done {
		t.Errorf("%d writes failed, %d did not", failed, done)
	}
	s.must(s.Host(dead).Boot(ctx))
	s.completed(out, in)
}

// The shipped Deployment has one address of the API, the Service's, and a connection to it stays with the server that it
// was given to. A host that steps down is behind that address for up to 25 s more (k3s-facts §13.4) and answers 503 until
// its member is removed, which is the controller's to ask for (safety rule 23).
func Test_one_address(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	url, picks := s.oneAddress(out)
	s.must(s.controller.Stop())
	s.controller.Env = append(s.controller.Env, "FLEET_ROLE_API_SERVERS="+url)
	s.must(s.controller.Start(t.Context()))
	s.ask(out, in)
	s.awaitFile(out, fleet.FileLeaving)
	defer func() { s.Logf("connections of the controller:\n%s", strings.Join(picks(), "\n")) }()
	s.completed(out, in)
	if ip := s.Host(out).IP().String(); !slices.ContainsFunc(picks(), func(p string) bool { return strings.Contains(p, " "+ip+" ") }) {
		t.Errorf("no connection went to %s: the scenario proves nothing", out)
	}
}

// waitsForReason waits for the swap to name what it waits for.
func (s *scenario) waitsForReason(code string) {
	s.t.Helper()
	s.eventually(2*time.Minute, "a wait for "+code, func(context.Context) (bool, string) {
		next := s.status().Next
		return slices.ContainsFunc(next.Waits, func(r status.Reason) bool { return r.Code == code }), next.Sentence
	})
}
