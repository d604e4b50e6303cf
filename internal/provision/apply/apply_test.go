package apply_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/swap"
)

const file = `
hosts:
- {name: n1, address: 10.0.0.1, role: server, pinned: true}
- {name: n2, address: 10.0.0.2, role: server, node-ip: 10.0.0.2}
- {name: n3, address: 10.0.0.3, role: server}
- {name: n4, address: 10.0.0.4, role: agent, eligible: true, labels: {rack: r1}}
- {name: n5, address: 10.0.0.5, role: agent}
`

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func newSite(t *testing.T) *site {
	t.Helper()
	f, err := inventory.Parse([]byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "regrade")
	if err := os.WriteFile(path, []byte("program nine"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, c: newCluster(), fleet: f, machines: map[string]*machine{}, program: apply.Program{Path: path, Sum: sum("program nine")}}
	for _, h := range f.Hosts {
		s.machines[h.Name] = &machine{name: h.Name, c: s.c, arch: "x86_64", files: map[string]string{"/usr/local/bin/k3s": "k3s"}}
	}
	return s
}

// turn is one run; set changes its settings.
func (s *site) turn(set ...func(*apply.Settings)) *apply.Turn {
	s.t.Helper()
	objects, err := manifests.Objects(manifests.Settings{
		Namespace: fleet.DefaultNamespace, ActuatorConfigMap: fleet.ConfigMapActuators, Image: "regrade:9", Controller: true, ConfigMaps: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.out.Reset()
	settings := apply.Settings{
		Fleet: s.fleet, Objects: objects, Namespace: fleet.DefaultNamespace, Keys: keys, Period: 15 * time.Second, Wait: time.Minute,
		Out: &s.out, Now: time.Now,
		Program: func(arch string) (apply.Program, error) {
			if arch != "amd64" {
				return apply.Program{}, errors.New("no regrade for " + arch)
			}
			return s.program, nil
		},
	}
	for _, f := range set {
		f(&settings)
	}
	return apply.New(settings, s.c, func(_ context.Context, h inventory.Host) (remote.Runner, error) {
		if m := s.machines[h.Name]; m.down == nil {
			return m, nil
		}
		return nil, s.machines[h.Name].down
	})
}

func check(s *apply.Settings) { s.Check = true }

func (s *site) must(out apply.Outcome, err error) apply.Outcome {
	s.t.Helper()
	if err != nil || len(out.Problems) > 0 {
		s.t.Fatalf("%+v, %v\n%s", out, err, s.out.String())
	}
	return out
}

// state is all that lasts of it.
func (s *site) state() map[string]string {
	out := map[string]string{}
	for name, m := range s.machines {
		for path, content := range m.files {
			out[name+path] = content
		}
		if m.setUp {
			out[name] = "set up as " + string(m.role)
		}
	}
	for k := range s.c.objects {
		out[k] = "there"
	}
	for name, n := range s.c.nodes {
		for k, v := range n.Labels {
			out[name+"/"+k] = v
		}
	}
	return out
}

func TestAFleetIsMadeOfAClusterOnceAndThenLeftAlone(t *testing.T) {
	s := newSite(t)
	before := s.state()

	out := s.must(s.turn(check).Apply(t.Context()))
	if out.Changed == 0 || !maps.Equal(before, s.state()) {
		t.Errorf("a look changed something, or would change nothing: %+v\n%s", out, s.out.String())
	}
	looked := s.out.String()
	out = s.must(s.turn().Apply(t.Context()))
	if out.Changed == 0 {
		t.Errorf("%+v", out)
	}
	for name, m := range s.machines {
		if m.setUp != (name != "n5") || name == "n5" && len(m.ran) > 0 {
			t.Errorf("%s: set up %v, ran %q", name, m.setUp, m.ran)
		}
	}
	n4 := s.machines["n4"].given
	if n4.Token.Reveal() != "hush-server" || n4.Voter.Get("disable") != "traefik" || !strings.Contains(n4.Kubeconfig.Reveal(), "hush-token") {
		t.Errorf("the standby was given %+v", n4)
	}
	if l := s.c.nodes["n4"].Labels; l[keys.Eligible()] != "true" || l[keys.Pinned()] != "false" || l["rack"] != "r1" || s.c.nodes["n1"].Labels[keys.Pinned()] != "true" {
		t.Errorf("labels: %v", l)
	}
	if _, labelled := s.c.nodes["n5"].Labels[keys.Eligible()]; labelled {
		t.Error("a host that takes no part has a label (R-185-35)")
	}
	shown := looked + s.out.String()
	for _, secret := range []string{"hush", "to-come"} {
		if strings.Contains(shown, secret) {
			t.Errorf("a secret is shown:\n%s", shown)
		}
	}

	// New daemons first, the new controller last.
	if i := slices.Index(s.c.writes, "apply Deployment/"+fleet.DefaultNamespace+"/fleet-role"); i != len(s.c.writes)-1 {
		t.Errorf("the controller is not the last: %v", s.c.writes)
	}
	s.c.writes = nil
	after := s.state()
	if out = s.must(s.turn().Apply(t.Context())); out.Changed != 0 || len(s.c.writes) > 0 || !maps.Equal(after, s.state()) {
		t.Errorf("the second run changed %d, wrote %v\n%s", out.Changed, s.c.writes, s.out.String())
	}
}

// Whatever breaks a turn off, the next one completes it.
func TestATurnThatBrokeOffIsCompletedByTheNext(t *testing.T) {
	synctest.Test(t, brokeOff)
}

func brokeOff(t *testing.T) {
	whole := newSite(t)
	whole.must(whole.turn().Apply(t.Context()))
	want, names := whole.state(), slices.Sorted(maps.Keys(whole.machines))
	for _, name := range names {
		for n := 1; n <= len(whole.machines[name].ran); n++ {
			s := newSite(t)
			s.machines[name].dies = n
			out, err := s.turn().Apply(t.Context())
			if err != nil || len(out.Problems) == 0 {
				t.Errorf("%s dies at %d: %+v, %v", name, n, out, err)
			}
			for other, m := range s.machines {
				// Without a server that lends, a standby waits for the next run.
				if other != name && other < "n4" && !m.setUp {
					t.Errorf("%s dies at %d, and %s is not done", name, n, other)
				}
			}
			s.machines[name].dies, s.machines[name].broken = 0, false
			s.must(s.turn().Apply(t.Context()))
			if got := s.state(); !maps.Equal(got, want) {
				t.Errorf("%s died at %d: the next run leaves\n%v, want\n%v", name, n, got, want)
			}
		}
	}
}

// R-C-06: a server that the file calls an agent and not eligible is named, and left alone.
func TestAServerThatTheFileCallsAnAgentIsNamed(t *testing.T) {
	s := newSite(t)
	n := s.c.nodes["n5"]
	n.Labels = map[string]string{fleet.LabelEtcd: fleet.True}
	s.c.nodes["n5"] = n
	s.c.nodes["n9"] = observe.Node{Name: "n9", Version: "1", Node: swap.Node{Labels: map[string]string{fleet.LabelEtcd: fleet.True}}}
	out, err := s.turn().Apply(t.Context())
	if err != nil || len(out.Problems) != 1 || out.Problems["n5"].Code != apply.CodeNotAgent || len(s.machines["n5"].ran) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if !strings.Contains(s.out.String(), "n9: is a server of the cluster and not in fleet.yaml") || !s.machines["n1"].setUp {
		t.Errorf("%s", s.out.String())
	}
}

// R-C-07: nothing is touched while a swap holds the Lease.
func TestASwapUnderWayRefusesAllOfIt(t *testing.T) {
	for name, do := range map[string]func(*apply.Turn, context.Context) (apply.Outcome, error){"apply": (*apply.Turn).Apply, "remove": (*apply.Turn).Remove} {
		s := newSite(t)
		s.must(s.turn().Apply(t.Context()))
		before := s.state()
		s.c.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, Duration: time.Hour, RenewTime: start}
		for _, m := range s.machines {
			m.ran = nil
		}
		_, err := do(s.turn(), t.Context())
		if r, ok := errors.AsType[*apply.Refusal](err); !ok || r.Problems[0].Code != apply.CodeSwapUnderWay {
			t.Errorf("%s: %v", name, err)
		}
		if !maps.Equal(before, s.state()) || len(s.machines["n1"].ran) > 0 {
			t.Errorf("%s changed something", name)
		}
	}
}

func TestAHostThatCannotBeDoneIsNamedAndTheOthersAreDone(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*machine)
		code  string
	}{
		"down":                 {func(m *machine) { m.down = &remote.Problem{Code: remote.HostDown, Sentence: "n2: no answer"} }, "HostDown"},
		"another host key":     {func(m *machine) { m.down = &remote.Problem{Code: remote.HostKeyChanged, Sentence: "n2: another key"} }, "HostKeyChanged"},
		"a full disk":          {func(m *machine) { m.full = true }, "DiskFull"},
		"another architecture": {func(m *machine) { m.arch = "riscv64" }, apply.CodeNoProgram},
		"no program for it":    {func(m *machine) { m.arch = "aarch64" }, apply.CodeNoProgram},
		"another address": {func(m *machine) {
			n := m.c.nodes["n2"]
			n.InternalIP = "10.9.9.9"
			m.c.nodes["n2"] = n
		}, apply.CodeNodeIP},
		"it refuses": {func(m *machine) { m.refuses = "a flag (FlagUnknown)" }, apply.CodeHostRefused},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			test.spoil(s.machines["n2"])
			out, err := s.turn().Apply(t.Context())
			if err != nil || len(out.Problems) != 1 || out.Problems["n2"].Code != test.code {
				t.Fatalf("%+v, %v\n%s", out, err, s.out.String())
			}
			if s.machines["n2"].setUp || !s.machines["n1"].setUp || !s.machines["n3"].setUp || !s.machines["n4"].setUp {
				t.Errorf("done: n1 %v, n2 %v, n3 %v, n4 %v", s.machines["n1"].setUp, s.machines["n2"].setUp, s.machines["n3"].setUp, s.machines["n4"].setUp)
			}
			for path := range s.machines["n2"].files {
				if path != "/usr/local/bin/regrade" && path != "/usr/local/bin/k3s" {
					t.Errorf("left there: %s", path)
				}
			}
		})
	}
}

func TestALimitGoesToItsHostsAlone(t *testing.T) {
	s := newSite(t)
	only := func(names ...string) func(*apply.Settings) { return func(a *apply.Settings) { a.Limit = names } }
	if _, err := s.turn(only("n2")).Apply(t.Context()); err == nil || !strings.Contains(err.Error(), apply.CodeNoCredential) {
		t.Errorf("without a credential: %v", err)
	}
	for _, wrong := range []string{"nobody", "n5"} {
		if _, err := s.turn(only(wrong)).Apply(t.Context()); err == nil || !strings.Contains(err.Error(), apply.CodeNoSuchHost) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	s.must(s.turn().Apply(t.Context()))
	s.program.Sum = sum("program ten")
	if err := os.WriteFile(s.program.Path, []byte("program ten"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.must(s.turn(only("n2")).Apply(t.Context()))
	for name, want := range map[string]string{"n1": "program nine", "n2": "program ten"} {
		if got := s.machines[name].files["/usr/local/bin/regrade"]; got != want {
			t.Errorf("%s has %s", name, got)
		}
	}
}

func TestADaemonThatSaysNothingIsNamed(t *testing.T) {
	s := newSite(t)
	synctest.Test(t, func(t *testing.T) {
		turn := s.turn(func(a *apply.Settings) { a.Fleet.Hosts = slices.Clone(a.Fleet.Hosts) })
		s.machines["n3"].c = newCluster() // its beats go nowhere
		out, err := turn.Apply(t.Context())
		if err != nil || len(out.Problems) != 1 || out.Problems["n3"].Code != apply.CodeDaemonSilent {
			t.Errorf("%+v, %v", out, err)
		}
	})
	// One that spoke before it was set up anew has to speak anew.
	synctest.Test(t, func(t *testing.T) {
		s.c.beats["n3"] = observe.Heartbeat{Node: "n3", Counter: "7", Renewed: start}
		s.machines["n3"].setUp = false
		out, err := s.turn().Apply(t.Context())
		if err != nil || out.Problems["n3"].Code != apply.CodeDaemonSilent {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

func TestARemovalLeavesNothingOrChangesNothing(t *testing.T) {
	s := newSite(t)
	before := s.state()
	s.must(s.turn().Apply(t.Context()))
	applied := s.state()

	s.machines["n4"].refuses = "this host was set up as agent and is a server now (RoleChanged)"
	_, err := s.turn().Remove(t.Context())
	if err == nil || !strings.Contains(err.Error(), "n4: ") || !maps.Equal(applied, s.state()) {
		t.Errorf("with a host that refuses: %v", err)
	}
	s.machines["n4"].refuses = ""
	if s.must(s.turn(check).Remove(t.Context())); !maps.Equal(applied, s.state()) {
		t.Error("a look changed something")
	}
	s.must(s.turn().Remove(t.Context()))
	after := s.state()
	// The namespace may have other things in it, further labels are the owner's.
	delete(after, "Namespace//"+fleet.DefaultNamespace)
	delete(after, "n4/rack")
	if !maps.Equal(before, after) {
		t.Errorf("left:\n%v, want\n%v", after, before)
	}
	if out := s.must(s.turn().Remove(t.Context())); out.Changed != 0 {
		t.Errorf("a second removal: %+v", out)
	}
}

func TestAProgramOfAPackageIsThePackageManagersToRemove(t *testing.T) {
	s := newSite(t)
	s.must(s.turn().Apply(t.Context()))
	s.machines["n2"].packaged = true
	s.must(s.turn().Remove(t.Context()))
	for name, want := range map[string]bool{"n1": false, "n2": true} {
		if _, there := s.machines[name].files["/usr/local/bin/regrade"]; there != want || s.machines[name].setUp {
			t.Errorf("%s: program there %v, set up %v", name, there, s.machines[name].setUp)
		}
	}
	if out := s.must(s.turn().Remove(t.Context())); out.Changed != 0 {
		t.Errorf("a second removal: %+v", out)
	}
}

func TestARemovalThatBrokeOffIsCompletedByTheNext(t *testing.T) {
	s := newSite(t)
	s.must(s.turn().Apply(t.Context()))
	s.machines["n2"].ran, s.machines["n2"].dies = nil, 5
	if _, err := s.turn().Remove(t.Context()); err == nil {
		t.Fatal("it did not break off")
	}
	if _, there := s.c.objects["Secret/"+fleet.DefaultNamespace+"/"+manifests.HostToken]; !there {
		t.Error("the hosts' credential is gone before the hosts are done")
	}
	s.machines["n2"].dies, s.machines["n2"].broken = 0, false
	s.must(s.turn().Remove(t.Context()))
	for name, m := range s.machines {
		if m.setUp || len(m.files) > 1 {
			t.Errorf("%s: set up %v, files %v", name, m.setUp, m.files)
		}
	}
}

// new_standby: a host without k3s becomes an agent with a server's k3s, then a standby;
// whatever breaks it off, the next run goes on.
func TestANewHostBecomesAStandby(t *testing.T) {
	fresh := func(t *testing.T) *site {
		s := newSite(t)
		s.machines["n4"].files = map[string]string{}
		delete(s.c.nodes, "n4")
		return s
	}
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t)
		before := s.state()
		s.must(s.turn(check).Apply(t.Context()))
		if !maps.Equal(before, s.state()) || !strings.Contains(s.out.String(), "n4: new: k3s version v1.34.2+k3s1 (x) from n1, as an agent") {
			t.Errorf("a look:\n%s", s.out.String())
		}
		n4 := s.machines["n4"]
		n4.ran = nil
		s.must(s.turn().Apply(t.Context()))
		if n4.files["/usr/local/bin/k3s"] != "k3s" || n4.files[agentEnv] != "K3S_URL='https://10.0.0.1:6443'\nK3S_TOKEN='hush-server'\n" || !n4.setUp ||
			s.c.nodes["n4"].Labels[keys.Eligible()] != "true" || strings.Contains(s.out.String(), "hush") {
			t.Errorf("%+v\n%s", n4.files, s.out.String())
		}
		for _, line := range n4.ran {
			if strings.Contains(line, "hush") {
				t.Errorf("a secret in an argument: %s", line)
			}
		}
		want := s.state()
		for n := 1; n <= len(n4.ran); n++ {
			s := fresh(t)
			s.machines["n4"].dies = n
			if out, err := s.turn().Apply(t.Context()); err != nil || len(out.Problems) != 1 {
				t.Errorf("dies at %d: %+v, %v", n, out, err)
			}
			s.machines["n4"].dies, s.machines["n4"].broken = 0, false
			s.must(s.turn().Apply(t.Context()))
			if got := s.state(); !maps.Equal(got, want) {
				t.Errorf("died at %d: the next run leaves\n%v, want\n%v", n, got, want)
			}
		}
	})
}

const agentEnv = "/etc/systemd/system/k3s-agent.service.env"

func TestANewHostIsNotMadeOfAnotherOnesName(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*site)
		code  string
	}{
		"its Node is there": {func(*site) {}, apply.CodeNodeTaken},
		"of another architecture": {func(s *site) {
			delete(s.c.nodes, "n4")
			s.machines["n1"].arch, s.machines["n2"].arch, s.machines["n3"].arch = "aarch64", "aarch64", "aarch64"
		}, apply.CodeNobodyLends},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.machines["n4"].files = map[string]string{}
			test.spoil(s)
			out, err := s.turn(func(a *apply.Settings) { a.Program = func(string) (apply.Program, error) { return s.program, nil } }).Apply(t.Context())
			if err != nil || out.Problems["n4"].Code != test.code || s.machines["n4"].files["/usr/local/bin/k3s"] != "" {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
}

// An API server that is out of breath for some seconds is asked again; one that says no is not.
func TestABusyAPIServerIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		asks int
		done bool
	}{
		"no answer in time, twice": {context.DeadlineExceeded, 2, true},
		"never an answer":          {context.DeadlineExceeded, 1 << 20, false},
		"a refusal":                {errors.New("forbidden"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			synctest.Test(t, func(t *testing.T) {
				s.c.breathless, s.c.asks = test.err, test.asks
				began := time.Now()
				_, err := s.turn().Apply(t.Context())
				if (err == nil) != test.done || time.Since(began) > 2*time.Minute {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
		})
	}
}
