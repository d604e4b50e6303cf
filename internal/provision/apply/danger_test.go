package apply_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s/catest"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/provision/setup"
)

type turning = func(*apply.Turn, context.Context) (apply.Outcome, error)

var turns = map[string]turning{"apply": (*apply.Turn).Apply, "remove": (*apply.Turn).Remove}

// Two addresses that are swapped in fleet.yaml, or the kubeconfig of another cluster: one
// host that is another than it is taken for, and nothing is written anywhere.
func TestAHostThatIsAnotherOneRefusesAllOfIt(t *testing.T) {
	mine, other := catest.New(t, "ca", nil), catest.New(t, "ca", nil)
	for name, test := range map[string]struct {
		node string
		ca   *catest.Authority
		want string
	}{
		"another Node":    {"n3", mine, setup.CodeOtherNode},
		"another cluster": {"n2", other, setup.CodeOtherCA},
		"its own":         {"n2", mine, ""},
	} {
		for what, do := range turns {
			t.Run(what+", "+name, func(t *testing.T) {
				s := newSite(t)
				if what == "remove" {
					s.must(s.turn().Apply(t.Context()))
				}
				s.c.ca = catest.Bundle(mine)
				s.machines["n2"].cert, s.machines["n2"].ca = string(mine.Kubelet(t, test.node)), string(catest.Bundle(test.ca))
				before := s.state()
				s.c.writes = nil
				_, err := do(s.turn(), t.Context())
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				r, ok := errors.AsType[*apply.Refusal](err)
				if !ok || len(r.Problems) != 1 || r.Problems[0].Code != test.want || !strings.HasPrefix(r.Problems[0].Sentence, "n2: ") {
					t.Errorf("got %v", err)
				}
				if !maps.Equal(before, s.state()) || len(s.c.writes) > 0 {
					t.Errorf("changed all the same: %v", s.c.writes)
				}
			})
		}
	}
}

// R-C-07, and the step of a level; a removal would leave hosts in the middle of a swap that
// no controller renews.
func TestALeaseThatSomebodyHasRefusesAllOfIt(t *testing.T) {
	held := lease.Lease{Exists: true, Holder: "n2", Duration: time.Hour, RenewTime: start}
	stalled := lease.Lease{Exists: true, Holder: fleet.LeaseHolder, Duration: time.Minute, RenewTime: start.Add(-time.Hour)}
	for name, test := range map[string]struct {
		do    turning
		lease lease.Lease
		want  string
	}{
		"apply, a level's step":          {(*apply.Turn).Apply, held, apply.CodeLeaseTaken},
		"remove, a level's step":         {(*apply.Turn).Remove, held, apply.CodeLeaseTaken},
		"remove, a swap without renewal": {(*apply.Turn).Remove, stalled, apply.CodeSwapUnderWay},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.must(s.turn().Apply(t.Context()))
			before := s.state()
			s.c.lease = test.lease
			_, err := test.do(s.turn(), t.Context())
			if r, ok := errors.AsType[*apply.Refusal](err); !ok || r.Problems[0].Code != test.want || !maps.Equal(before, s.state()) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A controller that is taken away may begin a swap in its last moment: its rights go with it,
// and what it has begun is seen before a host is touched.
func TestASwapThatBeginsAsTheControllerGoesIsLeftToIt(t *testing.T) {
	s := newSite(t)
	s.must(s.turn().Apply(t.Context()))
	s.c.deleted = func(key string) {
		if strings.HasPrefix(key, "Deployment/") {
			s.c.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, Duration: time.Hour, RenewTime: start}
		}
	}
	_, err := s.turn().Remove(t.Context())
	if _, refused := errors.AsType[*apply.Refusal](err); err == nil || refused || !strings.Contains(err.Error(), "regrade apply brings it back") {
		t.Errorf("got %v", err)
	}
	for name, m := range s.machines {
		if name != "n5" && !m.setUp {
			t.Errorf("%s was taken off", name)
		}
	}
	for key := range s.c.objects {
		if strings.Contains(key, "RoleBinding/") && strings.HasSuffix(key, "/"+fleet.ServiceAccountController) {
			t.Errorf("the controller keeps %s", key)
		}
	}
	s.c.lease, s.c.deleted = lease.Lease{}, nil
	s.must(s.turn().Apply(t.Context()))
	s.must(s.turn().Remove(t.Context()))
}

// A host that was set up by hand has units that ask the program before every start.
func TestAProgramThatUnitsNeedIsLeft(t *testing.T) {
	s := newSite(t)
	s.must(s.turn().Apply(t.Context()))
	s.machines["n2"].asking = "/etc/systemd/system/k3s.service.d/10-regrade.conf\n"
	s.must(s.turn().Remove(t.Context()))
	for name, want := range map[string]bool{"n1": false, "n2": true} {
		if _, there := s.machines[name].files["/usr/local/bin/regrade"]; there != want {
			t.Errorf("%s: program there %v", name, there)
		}
	}
	if !strings.Contains(s.out.String(), "would not start: /etc/systemd/system/k3s.service.d/10-regrade.conf") {
		t.Error(s.out.String())
	}
}

// A host whose program was lost has k3s's units waiting for it: a removal that passes it by
// would leave it so, its credential and the cluster's objects gone.
func TestAHostThatLostItsProgramIsNotPassedBy(t *testing.T) {
	s := newSite(t)
	s.must(s.turn().Apply(t.Context()))
	delete(s.machines["n2"].files, "/usr/local/bin/regrade")
	s.machines["n2"].asking = "/etc/systemd/system/k3s.service.d/10-regrade.conf\n"
	before := s.state()
	_, err := s.turn().Remove(t.Context())
	if r, ok := errors.AsType[*apply.Refusal](err); !ok || r.Problems[0].Code != apply.CodeProgramGone || !maps.Equal(before, s.state()) {
		t.Errorf("got %v", err)
	}
}

// The unit that a new agent begins with is also the other role's of a server that was set up.
func TestAHostThatWasSetUpIsNoNewOne(t *testing.T) {
	s := newSite(t)
	delete(s.c.nodes, "n4")
	n4 := s.machines["n4"]
	n4.files["/etc/systemd/system/k3s-agent.service"] = "# Written by regrade, as k3s's install script would.\n"
	n4.files["/etc/regrade/installed.json"] = "{}"
	n4.files["/etc/rancher/k3s/config.yaml"] = "mine"
	if _, err := s.turn().Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, there := n4.files[agentEnv]; there || n4.files["/etc/rancher/k3s/config.yaml"] != "mine" {
		t.Errorf("it was made a new agent: %v", n4.files)
	}
}

// A k3s that runs in a container has no unit, no program and no data in their places.
func TestAHostOnWhichAnyK3sRunsIsNoNewOne(t *testing.T) {
	s := newSite(t)
	delete(s.c.nodes, "n4")
	n4 := s.machines["n4"]
	n4.files, n4.disk = map[string]string{}, newDisk(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	n4.disk.plant("k3s-agent", string(raw))
	named := filepath.Join(n4.disk.root, "k3s-agent")
	if err := os.Chmod(named, 0o700); err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), named, "60")
	process.Args[0] = "sleep" // of one file with others, as BusyBox is
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Process.Kill(); _ = process.Wait() }()
	if _, err := s.turn().Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, made := n4.files["/etc/systemd/system/k3s-agent.service"]; made {
		t.Errorf("it was made a new agent: %v", n4.ran)
	}
}

// Of two addresses the second may have a space before it, which k3s does not read.
func TestASecondAddressBehindASpaceIsTheNodes(t *testing.T) {
	s := newSite(t)
	s.fleet.Hosts[1].NodeIP = "fd00::2, 10.0.0.2"
	n2 := s.c.nodes["n2"]
	n2.InternalIP = "10.0.0.2"
	s.c.nodes["n2"] = n2
	s.must(s.turn().Apply(t.Context()))
}

func TestAStandbyAloneBorrowsFromAServerOutsideOfTheLimit(t *testing.T) {
	s := newSite(t)
	s.must(s.turn().Apply(t.Context()))
	s.program.Sum = sum("program ten")
	if err := os.WriteFile(s.program.Path, []byte("program ten"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.must(s.turn(func(a *apply.Settings) { a.Limit = []string{"n4"} }).Apply(t.Context()))
	for name, want := range map[string]string{"n1": "program nine", "n4": "program ten"} {
		if got := s.machines[name].files["/usr/local/bin/regrade"]; got != want {
			t.Errorf("%s has %s", name, got)
		}
	}
}

// Eligible is what a Node's label says: a host that the file has taken out would be swapped in.
func TestAHostThatIsNotEligibleAnyMoreLosesItsLabel(t *testing.T) {
	s := newSite(t)
	n5 := s.c.nodes["n5"]
	n5.Labels[keys.Eligible()] = fleet.True
	s.must(s.turn(check).Apply(t.Context()))
	if s.c.nodes["n5"].Labels[keys.Eligible()] != fleet.True {
		t.Error("a look changed it")
	}
	s.must(s.turn().Apply(t.Context()))
	if got := s.c.nodes["n5"].Labels[keys.Eligible()]; got != "false" || len(s.machines["n5"].ran) > 0 {
		t.Errorf("eligible=%s, ran %v", got, s.machines["n5"].ran)
	}
}

func TestWhatAHostSaysCommandsNoTerminal(t *testing.T) {
	s := newSite(t)
	s.machines["n2"].refuses = "\x1b]0;x\a\u009b2J" + strings.Repeat("x", 1<<20)
	out, err := s.turn().Apply(t.Context())
	if err != nil || len(out.Problems["n2"].Sentence) > 32<<10 {
		t.Errorf("%d bytes, %v", len(out.Problems["n2"].Sentence), err)
	}
	if shown := s.out.String() + out.Problems["n2"].Sentence; strings.ContainsAny(shown, "\x1b\a\u009b") {
		t.Error("shown as it came")
	}
}
