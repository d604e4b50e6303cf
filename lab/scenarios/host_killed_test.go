package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

const carriedOut = "action carried out"

// actions are how many actions the controllers of this scenario have carried out.
func (s *scenario) actions() int {
	s.t.Helper()
	log, err := s.controller.Log()
	s.must(err)
	return strings.Count(log, carriedOut)
}

// lastAction is the last action that this scenario's controllers carried out.
func (s *scenario) lastAction() string {
	s.t.Helper()
	log, err := s.controller.Log()
	s.must(err)
	i := strings.LastIndex(log, carriedOut)
	if i < 0 {
		return ""
	}
	line, _, _ := strings.Cut(log[i:], "\n")
	return line
}

// R-E2-34, safety rules 21 and 25: the controller is killed after every effect, and
// another, with an id of its own, goes on each time. A take-over writes to both
// Nodes, and who is always killed after the first never comes to the second: the first
// three take-overs are cut there, the others are left to end.
func Test_controller_killed(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	ctx := t.Context()
	last := s.actions()
	s.ask(out, in)
	kills, cut := 0, 0
	for acted := time.Now(); ; {
		now := s.actions()
		if now == last {
			// The API takes longer than the controller's next effect: it is asked only when there is none.
			if time.Since(acted) > 2*time.Second && !s.leaseHeldOrNew() {
				break
			}
			time.Sleep(2 * time.Millisecond)
			continue
		}
		last, acted = now, time.Now()
		if strings.Contains(s.lastAction(), "state=take-over") {
			if cut++; cut > 3 {
				continue
			}
		}
		s.must(s.controller.Kill())
		kills++
		s.must(s.controller.Start(ctx))
		last = s.actions()
	}
	s.Logf("the controller was killed %d times, in %d take-overs", kills, min(cut, 3))
	if kills < 15 {
		t.Errorf("only %d kills: not every effect was followed by one", kills)
	}
	s.completed(out, in)
}

// leaseHeldOrNew: the swap asked for has not ended yet.
func (s *scenario) leaseHeldOrNew() bool {
	s.t.Helper()
	if s.t.Context().Err() != nil {
		s.t.Fatal("the time is up")
	}
	last := s.status().LastSwap
	if last == nil || last.ID == s.lastSwap {
		return true
	}
	holder, err := s.leaseHolder(s.t.Context())
	return err != nil || holder != ""
}

// Safety rules 10, 11, 18: the daemons of both hosts of a swap are killed whenever
// their journal, or a file that decides what may start, has changed.
func Test_host_killed(t *testing.T) {
	s, out, in := troubled(t)
	ctx := t.Context()
	// Every kill is to be followed by a start, however many there are.
	for _, name := range []string{out, in} {
		_, err := s.Host(name).Run(ctx, "mkdir", "-p", "/run/systemd/system/"+cluster.HostUnit+".d")
		s.must(err)
		s.must(s.Host(name).WriteFile("/run/systemd/system/"+cluster.HostUnit+".d/lab.conf",
			[]byte("[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n"), 0o644))
		_, err = s.Host(name).Systemctl(ctx, "daemon-reload")
		s.must(err)
	}
	seen := map[string]string{}
	for _, name := range []string{out, in} {
		seen[name] = s.deciding(name)
	}
	s.ask(out, in)
	kills := map[string]int{}
	for s.leaseHeldOrNew() {
		for _, name := range []string{out, in} {
			now := s.deciding(name)
			if now == seen[name] {
				continue
			}
			seen[name] = now
			if err := s.Host(name).KillMain(ctx, cluster.HostUnit, syscall.SIGKILL); err == nil {
				kills[name]++
			}
		}
	}
	s.Logf("daemons killed: %v", kills)
	if kills[out] < 4 || kills[in] < 4 {
		t.Errorf("too few kills to prove anything: %v", kills)
	}
	s.completed(out, in)
	for _, name := range []string{out, in} {
		s.must(s.Host(name).Remove("/run/systemd/system/" + cluster.HostUnit + ".d/lab.conf"))
		_, err := s.Host(name).Systemctl(ctx, "daemon-reload")
		s.must(err)
	}
}

// deciding is the content of the files by which a host goes on after a kill.
func (s *scenario) deciding(name string) string {
	var all strings.Builder
	for _, path := range []string{"/var/lib/regrade/step.json", fleet.FileRole, fleet.FileLeaving, fleet.FileJoinBegun, fleet.FileLevelDropIn, fleet.DefaultDataDir + "/" + fleet.FileLevel} {
		raw, err := s.Host(name).ReadFile(path)
		fmt.Fprintf(&all, "%s %v %s\n", path, err != nil, raw)
	}
	return all.String()
}

// Safety rule 21: the first controller is stopped while a request of its own is on
// the way, a second takes the swap over and acts, then the first goes on and its
// request arrives late. Whatever that request was, one of them acts: the swap ends,
// and the first carries nothing out any more.
func Test_two_controllers(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	ctx := t.Context()
	proxy, err := fault.NewProxy(s.Lab, cluster.APIPort, s.Host("n2"), s.Host("n3"))
	s.must(err)
	hosts := proxy.URLs()
	s.must(s.controller.Stop())
	s.controller.Env = append(slices.Clone(s.controller.Env), "FLEET_ROLE_API_SERVERS="+strings.Join(hosts, ","))
	s.must(s.controller.Start(ctx))

	// Pieces of one pass and its effect: each round stops at another one.
	rounds := []struct {
		state string
		piece int
	}{{"promote", 3}, {"settle", 9}, {"step-down", 11}, {"remove", 8}}
	s.ask(out, in)
	for _, round := range rounds {
		if !s.reaches(round.state) {
			break
		}
		caught := proxy.HoldAt(round.piece)
		select {
		case <-caught:
		case <-time.After(soon):
			t.Fatalf("the controller sent nothing for %s", soon)
		}
		s.must(s.controller.Pause())
		first := s.controller
		before := s.actions()
		second := s.NewController()
		second.Env = append(s.bounds(), "FLEET_ROLE_API_SERVERS="+s.ServerURLs())
		s.must(second.Start(ctx))
		// Until it has the Lease the first may take the Nodes back: only one of them
		// comes to an effect all the same, for each writes to both Nodes and the Lease first.
		s.eventually(2*time.Minute, "the second controller to have taken the swap over", func(context.Context) (bool, string) {
			log, err := second.Log()
			return err == nil && strings.Contains(log, "code=LeaseTakenOver"), "it has not"
		})
		proxy.Release()
		s.must(first.Continue())
		time.Sleep(3 * time.Second)
		if n := s.actions() - before; n > 0 {
			t.Errorf("in %s, after the second controller took over, the first carried out %d actions", round.state, n)
		}
		s.must(first.Kill())
		// The second is the first of the next round, behind the proxy like it.
		s.must(second.Kill())
		s.controller = s.NewController()
		s.controller.Env = append(s.bounds(), "FLEET_ROLE_API_SERVERS="+strings.Join(hosts, ","))
		s.must(s.controller.Start(ctx))
	}
	s.completed(out, in)
}
