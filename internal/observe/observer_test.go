package observe_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

var (
	keys  = fleet.DefaultKeys()
	start = time.Now() // carries the monotonic reading that Observe wants
)

func report(counter int, more string) string {
	return fmt.Sprintf(`{"protocol":1,"at":"2026-11-29T12:00:00Z","boot_id":"b1","counter":%d,"role":"agent"%s}`, counter, more)
}

// three is a fleet of three with one that reports, in one ConfigMap.
func three() clustertest.State {
	return clustertest.State{
		Nodes: map[string]observe.Node{"n2": {}, "n1": {}, "n3": {}},
		Maps: map[string]observe.ConfigMap{
			fleet.ConfigMapActuators: {Data: map[string]string{"n1": report(7, "")}},
			fleet.ConfigMapStatus:    {},
		},
		Beats: map[string]observe.Heartbeat{"n1": {BootID: "b1", Counter: "7"}},
	}
}

func observer(c *clustertest.Cluster) *observe.Observer {
	return observe.New(c, observe.Settings{
		Self: "me", Policy: swap.DefaultPolicy(),
		Protected: func(l map[string]string) bool { return l["job"] != "" },
	})
}

func look(t *testing.T, b *observe.Observer, after time.Duration, also ...string) *observe.Sight {
	t.Helper()
	s, err := b.Observe(t.Context(), start.Add(after), also...)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// Safety rule 22.
func TestFreshIsWhatChangedWhileWeLooked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*clustertest.State)
		fresh  bool
	}{
		"nothing changed":                            {func(*clustertest.State) {}, false},
		"the report changed":                         {func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(8, "") }, true},
		"the heartbeat vouches for the report":       {beat("b1", "7", 1), true},
		"the heartbeat is of another counter":        {beat("b1", "8", 1), false},
		"the heartbeat is of an earlier boot":        {beat("b0", "7", 1), false},
		"the heartbeat has no counter":               {beat("b1", "x", 1), false},
		"the heartbeat stands still":                 {beat("b1", "7", 0), false},
		"the report changed and cannot be read":      {func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = "{" }, false},
		"the report changed and is of another world": {func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = `{"protocol":9}` }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(three())
			b := observer(c)
			if s := look(t, b, 0); s.Host("n1").Fresh {
				t.Fatal("fresh at first sight: nobody saw it change")
			}
			c.Edit(test.change)
			if got := look(t, b, 2*time.Second).Host("n1"); got.Fresh != test.fresh {
				t.Errorf("fresh is %v, want %v (age %s, problem %q)", got.Fresh, test.fresh, got.ReportAge, got.ReportProblem)
			}
		})
	}
}

func beat(boot, counter string, renewed int) func(*clustertest.State) {
	return func(s *clustertest.State) {
		h := observe.Heartbeat{BootID: boot, Counter: counter}
		if renewed != 0 {
			h.Renewed = time.Unix(int64(renewed), 0)
		}
		s.Beats["n1"] = h
	}
}

// R-228-25: silent is three periods.
func TestAReportGoesSilentAfterThreePeriods(t *testing.T) {
	c := clustertest.New(three())
	b := observer(c)
	look(t, b, 0)
	c.Edit(beat("b1", "7", 1))
	if h := look(t, b, 2*time.Second).Host("n1"); !h.Fresh || h.ReportAge != 0 {
		t.Fatalf("fresh %v, age %s", h.Fresh, h.ReportAge)
	}
	if h := look(t, b, 47*time.Second).Host("n1"); !h.Fresh || h.ReportAge != 45*time.Second {
		t.Errorf("at three periods: fresh %v, age %s", h.Fresh, h.ReportAge)
	}
	if h := look(t, b, 48*time.Second).Host("n1"); h.Fresh {
		t.Error("still fresh after three periods")
	}
}

// Safety rule 25: a map that was restored from a backup proves nothing.
func TestAReportThatWentAndCameBackIsSeenForTheFirstTime(t *testing.T) {
	c := clustertest.New(three())
	b := observer(c)
	look(t, b, 0)
	c.Edit(func(s *clustertest.State) { delete(s.Maps, fleet.ConfigMapActuators) })
	s := look(t, b, time.Second)
	if !s.ActuatorsMissing || s.Host("n1").Report != nil || len(s.Missing) != 0 {
		t.Fatalf("a missing map: %v, report %v, missing %q", s.ActuatorsMissing, s.Host("n1").Report, s.Missing)
	}
	c.Edit(func(s *clustertest.State) {
		s.Maps[fleet.ConfigMapActuators] = observe.ConfigMap{Exists: true, Data: map[string]string{"n1": report(7, "")}}
	})
	if s := look(t, b, 2*time.Second); s.Host("n1").Fresh || s.Host("n1").Report == nil {
		t.Errorf("fresh %v, report %v", s.Host("n1").Fresh, s.Host("n1").Report)
	}
}

// Safety rule 22: an older report that somebody puts back is a change and no news.
func TestAnOlderReportPutBackIsNotFresh(t *testing.T) {
	state := three()
	state.Beats = nil // none says which one is the host's
	c := clustertest.New(state)
	b := observer(c)
	put := func(after time.Duration, raw string) *observe.Sight {
		t.Helper()
		c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = raw })
		return look(t, b, after)
	}
	other := strings.Replace(report(3, ""), "b1", "b2", 1)
	look(t, b, 0)
	for i, step := range []struct {
		raw   string
		fresh bool
	}{
		{report(8, ""), true}, {report(7, ""), false}, {report(9, ""), true},
		{other, true}, // a reboot counts anew
		{report(9, ""), false}, {other, true},
	} {
		if s := put(time.Duration(i+1)*time.Second, step.raw); s.Host("n1").Fresh != step.fresh {
			t.Errorf("step %d: fresh %v, want %v", i, s.Host("n1").Fresh, step.fresh)
		}
	}
}

// Issue 3, bad input, and safety rule 24: a report with a counter or a boot that the
// host's heartbeat has not come to is not the host's. It is named and nothing is
// taken from it; the true one counts as soon as it is back.
func TestAReportFromTheFutureIsNamedAndHeld(t *testing.T) {
	for name, test := range map[string]struct {
		raw   string
		words string
	}{
		"a counter that the host has not come to": {report(1<<40, ""), "heartbeat has come to 7"},
		"the largest counter":                     {strings.Replace(report(7, ""), `"counter":7`, `"counter":18446744073709551615`, 1), "heartbeat has come to 7"},
		"a boot that nobody has seen":             {strings.Replace(report(8, ""), "b1", "b9", 1), `of boot "b9"`},
		"a newer protocol":                        {strings.Replace(report(8, ""), `"protocol":1`, `"protocol":99`, 1), "protocol 99"},
		"an older protocol":                       {strings.Replace(report(8, ""), `"protocol":1`, `"protocol":0`, 1), "protocol 0"},
		"a step that nobody knows":                {report(8, `,"step":"teleport","phase":"running"`), `step "teleport"`},
		"a phase that nobody knows":               {report(8, `,"step":"promote","phase":"soon"`), `phase "soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(three())
			b := observer(c)
			look(t, b, 0)
			c.Edit(beat("b1", "7", 1))
			if !look(t, b, time.Second).Host("n1").Fresh {
				t.Fatal("not fresh before")
			}
			c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = test.raw })
			for i := range 3 {
				c.Edit(beat("b1", "7", 2+i)) // the daemon lives and beats
				h := look(t, b, time.Duration(2+i)*time.Second).Host("n1")
				if h.Fresh || h.Report != nil || !strings.Contains(h.ReportProblem, test.words) {
					t.Errorf("fresh %v, report %v, problem %q, want %q", h.Fresh, h.Report, h.ReportProblem, test.words)
				}
				if !h.Speaks || h.ReadWithin != 0 {
					t.Errorf("speaks %v, read within %s", h.Speaks, h.ReadWithin)
				}
			}
			c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(8, "") })
			c.Edit(beat("b1", "8", 9))
			if h := look(t, b, 9*time.Second).Host("n1"); !h.Fresh || h.Report == nil || h.ReportProblem != "" {
				t.Errorf("the true one is back: fresh %v, report %v, problem %q", h.Fresh, h.Report, h.ReportProblem)
			}
		})
	}
}

// A host writes its report first, then the heartbeat that vouches for it: what is
// read in between holds, and one whose heartbeat has been late for a while as well.
func TestAReportAheadOfItsHeartbeat(t *testing.T) {
	for counter, fresh := range map[int]bool{8: true, 23: true, 24: false} {
		c := clustertest.New(three())
		b := observer(c)
		look(t, b, 0)
		c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(counter, "") })
		if h := look(t, b, time.Second).Host("n1"); h.Fresh != fresh {
			t.Errorf("number %d after 7: fresh %v, %q", counter, h.Fresh, h.ReportProblem)
		}
		c.Edit(beat("b1", fmt.Sprint(counter), 1))
		if h := look(t, b, 2*time.Second).Host("n1"); !h.Fresh {
			t.Errorf("number %d, vouched for: %q", counter, h.ReportProblem)
		}
	}
}

// A daemon that starts again after its host's clock was put back begins its counter
// below the former one: once its heartbeat has vouched for that it counts as before.
func TestACounterThatWentBackWithTheClock(t *testing.T) {
	c := clustertest.New(three())
	b := observer(c)
	look(t, b, 0)
	for i, counter := range []int{900, 901, 300, 301, 302} {
		c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(counter, "") })
		c.Edit(beat("b1", fmt.Sprint(counter), 1+2*i))
		h := look(t, b, time.Duration(1+2*i)*time.Second).Host("n1")
		if !h.Fresh {
			t.Errorf("number %d is not fresh: %q", counter, h.ReportProblem)
		}
		// A report that goes on from the one before keeps what is known of its pass.
		if goesOn := i == 1 || i > 2; goesOn && h.ReadWithin == 0 {
			t.Errorf("number %d: nothing says when its pass began", counter)
		}
		c.Edit(beat("b1", fmt.Sprint(counter), 2+2*i))
		look(t, b, time.Duration(2+2*i)*time.Second)
	}
	c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(301, "") })
	if h := look(t, b, 20*time.Second).Host("n1"); h.Fresh {
		t.Error("an older report put back is fresh")
	}
}

// Safety rule 24: a host daemon that beats is not silent, whatever stands in the map.
func TestAHostThatBeatsSpeaks(t *testing.T) {
	c := clustertest.New(three())
	b := observer(c)
	speaks := func(after time.Duration, want bool) {
		t.Helper()
		if got := look(t, b, after).Host("n1").Speaks; got != want {
			t.Errorf("after %s: speaks %v", after, got)
		}
	}
	speaks(0, true) // nobody has looked for three periods yet
	speaks(46*time.Second, false)
	c.Edit(beat("b1", "9", 1)) // vouches for another report than the one that is there
	speaks(50*time.Second, true)
	c.Hook = func(call string) error {
		if call == "Heartbeats" {
			return errors.New("no answer")
		}
		return nil
	}
	speaks(60*time.Second, true)
	speaks(96*time.Second, false)
	c.Hook = nil
	c.Edit(func(s *clustertest.State) {
		delete(s.Maps, fleet.ConfigMapActuators)
		s.Beats["n1"] = observe.Heartbeat{BootID: "b1", Counter: "10"}
	})
	speaks(97*time.Second, true)
	c.Edit(func(s *clustertest.State) { delete(s.Beats, "n1") })
	speaks(98*time.Second, false)
}

// Issue 2, bad input: documents that are wrong are named and stop nothing.
func TestBadDocumentsAreNamed(t *testing.T) {
	huge := `{"protocol":1,"boot_id":"` + strings.Repeat("x", status.MaxDocument) + `"}`
	for name, test := range map[string]struct {
		change func(*clustertest.State)
		check  func(*observe.Sight) (string, bool)
	}{
		"a report that is no JSON": {
			func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = "[]" },
			func(s *observe.Sight) (string, bool) {
				return s.Host("n1").ReportProblem, s.Host("n1").ReportProblem != "" && s.Host("n1").Report == nil
			},
		},
		"a report that is huge": {
			func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = huge },
			func(s *observe.Sight) (string, bool) {
				return s.Host("n1").ReportProblem, strings.Contains(s.Host("n1").ReportProblem, "more than")
			},
		},
		"a status that is no JSON": {
			func(s *clustertest.State) {
				s.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Exists: true, Data: map[string]string{fleet.KeyStatus: "nonsense"}}
			},
			func(s *observe.Sight) (string, bool) {
				return s.StatusProblem, s.Status == nil && s.StatusProblem != ""
			},
		},
		"a status that is huge": {
			func(s *clustertest.State) {
				s.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Exists: true, Data: map[string]string{fleet.KeyStatus: huge}}
			},
			func(s *observe.Sight) (string, bool) {
				return s.StatusProblem, strings.Contains(s.StatusProblem, "more than")
			},
		},
		"a request of one node twice": {
			func(s *clustertest.State) {
				s.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Exists: true, Data: map[string]string{fleet.KeyRequest: `{"out":"a","in":"a","at":"2026-11-29T12:00:00Z"}`}}
			},
			func(s *observe.Sight) (string, bool) {
				return s.RequestProblem, s.Request == nil && strings.Contains(s.RequestProblem, "for itself")
			},
		},
		"a pause of a newer program": {
			func(s *clustertest.State) {
				s.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Exists: true, Data: map[string]string{fleet.KeyPause: `{"protocol":2,"at":"2026-11-29T12:00:00Z"}`}}
			},
			func(s *observe.Sight) (string, bool) {
				return s.PauseProblem, s.Pause == nil && strings.Contains(s.PauseProblem, "protocol 2")
			},
		},
		"a status map that does not exist": {
			func(s *clustertest.State) { delete(s.Maps, fleet.ConfigMapStatus) },
			func(s *observe.Sight) (string, bool) {
				return "", s.StatusRead && s.Status == nil && s.StatusProblem == "" && s.Request == nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(three())
			c.Edit(test.change)
			s := look(t, observer(c), 0)
			if said, ok := test.check(s); !ok {
				t.Errorf("problem %q, missing %q", said, s.Missing)
			}
			if len(s.Hosts) != 3 {
				t.Errorf("%d hosts, want all 3", len(s.Hosts))
			}
		})
	}
}

// Safety rule 24: what cannot be read is missing, never empty.
func TestWhatCannotBeReadIsMissing(t *testing.T) {
	for call, test := range map[string]struct {
		words string
		fatal bool
	}{
		"Nodes":                                 {"the nodes", true},
		"Lease":                                 {"the Lease", true},
		"ConfigMap " + fleet.ConfigMapStatus:    {"the published status", false},
		"ConfigMap " + fleet.ConfigMapActuators: {"the hosts' reports", false},
		"Heartbeats":                            {"the hosts' heartbeats", false},
		"Pods n1":                               {"the pods of n1", false},
		"KubeletRenewed n1":                     {"the kubelet Lease of n1", false},
		"Snapshots":                             {"the etcd snapshots", false},
		"TryEvict a/p":                          {"whether pod a/p may be evicted", false},
	} {
		t.Run(call, func(t *testing.T) {
			state := three()
			state.Nodes["n1"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Swap(): "20261129T120000Z-n1-n2"}}}
			state.Pods = []clustertest.Pod{{Node: "n1", Pod: observe.Pod{Namespace: "a", Name: "p", UID: "u", Owner: "ReplicaSet"}}}
			c := clustertest.New(state)
			c.Hook = func(got string) error {
				if got == call {
					return errors.New("no answer")
				}
				return nil
			}
			s, err := observer(c).Observe(t.Context(), start)
			if (err != nil) != test.fatal {
				t.Errorf("error %v, want one: %v", err, test.fatal)
			}
			if !slicesContain(s.Missing, test.words) {
				t.Errorf("missing says %q, want %q", s.Missing, test.words)
			}
			if call == "Pods n1" || call == "TryEvict a/p" {
				if s.Host("n1").PodsRead {
					t.Error("pods count as read")
				}
			}
		})
	}
}

func slicesContain(list []string, part string) bool {
	for _, s := range list {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

// An observation costs the same whatever the number of Nodes (design §8).
func TestAnIdleObservationIsFiveCalls(t *testing.T) {
	state := three()
	for i := range 1000 {
		state.Nodes[fmt.Sprintf("m%d", i)] = observe.Node{}
	}
	c := clustertest.New(state)
	look(t, observer(c), 0)
	if calls := c.Calls(); len(calls) != 5 {
		t.Errorf("%d calls: %q", len(calls), calls)
	}
}

func TestPodsOfASwapAreJudged(t *testing.T) {
	state := three()
	state.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Data: map[string]string{
		fleet.KeyRequest: `{"out":"n1","in":"n2","at":"2026-11-29T12:00:00Z"}`,
	}}
	pod := func(node, name string, p observe.Pod) clustertest.Pod {
		p.Namespace, p.Name, p.UID = "ns", name, name
		return clustertest.Pod{Node: node, Pod: p}
	}
	state.Pods = []clustertest.Pod{
		pod("n1", "finished", observe.Pod{Finished: true, Labels: map[string]string{"job": "1"}}),
		pod("n1", "job", observe.Pod{Labels: map[string]string{"job": "1"}, Owner: "Runner"}),
		pod("n1", "static", observe.Pod{Mirror: true, Owner: "Node"}),
		pod("n1", "daemon", observe.Pod{Owner: "DaemonSet"}),
		pod("n2", "web", observe.Pod{Owner: "ReplicaSet"}),
		pod("n2", "bare", observe.Pod{}),
		pod("n2", "leaving", observe.Pod{Owner: "ReplicaSet", Terminating: true}),
		pod("n3", "other", observe.Pod{}),
	}
	budget := pod("n2", "tight", observe.Pod{Owner: "ReplicaSet"})
	budget.Budget = "budget b needs 1"
	state.Pods = append(state.Pods, budget)
	c := clustertest.New(state)
	s := look(t, observer(c), 0)
	got := map[string]swap.Pod{}
	for _, h := range s.Hosts {
		for _, p := range h.Pods {
			got[h.Name+"/"+p.Name] = p
		}
	}
	want := map[string]func(swap.Pod) bool{
		"n1/job":     func(p swap.Pod) bool { return p.Protected && p.Owned && !p.Stays },
		"n1/static":  func(p swap.Pod) bool { return p.Stays },
		"n1/daemon":  func(p swap.Pod) bool { return p.Stays },
		"n2/web":     func(p swap.Pod) bool { return p.Owned && p.Blocked == "" && !p.Stays && !p.Protected },
		"n2/bare":    func(p swap.Pod) bool { return !p.Owned },
		"n2/leaving": func(p swap.Pod) bool { return p.Terminating },
		"n2/tight":   func(p swap.Pod) bool { return p.Blocked == "budget b needs 1" },
	}
	for name, ok := range want {
		if p, there := got[name]; !there || !ok(p) {
			t.Errorf("%s: there %v, %+v", name, there, p)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d pods, want %d", len(got), len(want))
	}
	for _, h := range s.Hosts {
		if h.PodsRead != (h.Name != "n3") {
			t.Errorf("pods of %s read: %v", h.Name, h.PodsRead)
		}
	}
	for _, call := range c.Calls() {
		if strings.HasPrefix(call, "Evict") || call == "TryEvict ns/job" || call == "TryEvict ns/daemon" || call == "TryEvict ns/static" {
			t.Errorf("called %s", call)
		}
	}
}

// R-216-20, R-228-23.
func TestAKubeletRenewalCountsOnlyAfterTheStartWasSeen(t *testing.T) {
	state := three()
	state.Maps[fleet.ConfigMapActuators].Data["n1"] = report(1, `,"started_at":"2026-11-29T12:00:00Z"`)
	state.Nodes["n1"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Swap(): "20261129T120000Z-n1-n2"}}}
	state.Kubelets = map[string]time.Time{"n1": time.Unix(100, 0)}
	c := clustertest.New(state)
	b := observer(c)
	check := func(after time.Duration, want bool, why string) {
		t.Helper()
		if got := look(t, b, after).Host("n1").KubeletChanged; got != want {
			t.Errorf("%s: changed is %v", why, got)
		}
	}
	check(0, false, "first seen")
	check(time.Second, false, "no renewal")
	c.Edit(func(s *clustertest.State) { s.Kubelets["n1"] = time.Unix(110, 0) })
	check(2*time.Second, true, "renewed")
	c.Edit(func(s *clustertest.State) {
		s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(2, `,"started_at":"2026-11-29T12:05:00Z"`)
	})
	check(3*time.Second, false, "a new start")
	c.Edit(func(s *clustertest.State) {
		s.Kubelets["n1"] = time.Unix(110, 0)
		s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(2, `,"started_at":"2026-11-29T12:05:00Z"`)
	})
	check(3*time.Second, false, "a new start")
	c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = "{" })
	check(4*time.Second, false, "the report cannot be read")
	c.Edit(func(s *clustertest.State) {
		s.Kubelets["n1"] = time.Unix(120, 0)
		s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(2, `,"started_at":"2026-11-29T12:05:00Z"`)
	})
	check(5*time.Second, true, "renewed since the start before the gap")
}

// Safety rule 22: a kubelet that renewed before its start was reported is believed
// by what was seen in between, never by the times that its host wrote.
func TestARenewalBeforeTheReportOfItsStart(t *testing.T) {
	const id = "20261129T120000Z-n1-n2"
	said := func(step, more string) string {
		return report(1, fmt.Sprintf(`,"swap":%q,"step":%q,"phase":"running"%s`, id, step, more))
	}
	const (
		stopped = `,"stopped":true`
		started = `,"started_at":"2026-11-29T12:00:05Z"`
	)
	at := func(minute, second int) time.Time { return time.Date(2026, 11, 29, 12, minute, second, 0, time.UTC) }
	type seen struct {
		report  string
		renewed time.Time
	}
	for _, c := range []struct {
		name  string
		looks []seen
		back  bool
	}{
		{"the kubelet before renewed once more with its clock fast, which was put back before the start", []seen{
			{said("promote", ""), at(10, 0)}, {said("promote", started), at(10, 10)},
		}, false},
		{"the same, and the new kubelet renews", []seen{
			{said("promote", ""), at(10, 0)}, {said("promote", started), at(10, 10)}, {said("promote", started), at(0, 8)},
		}, true},
		{"the server was seen to have ended before the renewal, and the start in the same look as it", []seen{
			{said("finish-demote", ""), at(0, 0)}, {said("finish-demote", stopped), at(0, 0)}, {said("finish-demote", stopped+started), at(0, 8)},
		}, true},
		{"the same with a clock that was put back", []seen{
			{said("finish-demote", ""), at(10, 0)}, {said("finish-demote", stopped), at(10, 0)}, {said("finish-demote", stopped+started), at(0, 8)},
		}, true},
		{"the last renewal of the server that has ended", []seen{
			{said("finish-demote", ""), at(0, 0)}, {said("finish-demote", stopped), at(0, 10)}, {said("finish-demote", stopped+started), at(0, 10)},
		}, false},
		{"stop, start and renewal in one look", []seen{
			{said("finish-demote", ""), at(0, 0)}, {said("finish-demote", stopped+started), at(0, 8)},
		}, false},
		{"the stop of another step", []seen{
			{said("rollback", stopped), at(0, 0)}, {said("finish-demote", stopped+started), at(0, 8)},
		}, false},
		{"a second start after the same stop", []seen{
			{said("rollback", stopped), at(0, 0)}, {said("rollback", stopped+started), at(0, 8)}, {said("rollback", stopped+`,"started_at":"2026-11-29T12:00:20Z"`), at(0, 18)},
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := three()
			state.Nodes["n1"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Swap(): id}}}
			state.Kubelets = map[string]time.Time{}
			cluster := clustertest.New(state)
			b := observer(cluster)
			var got bool
			for i, l := range c.looks {
				cluster.Edit(func(s *clustertest.State) {
					s.Maps[fleet.ConfigMapActuators].Data["n1"], s.Kubelets["n1"] = l.report, l.renewed
				})
				got = look(t, b, time.Duration(i)*time.Second).Host("n1").KubeletChanged
			}
			if got != c.back {
				t.Errorf("back is %t", got)
			}
		})
	}
}

// Safety rule 6: two pieces of news after a stop was seen prove that the host
// began to read after it; one may have been read before and written after.
func TestAPassBeganAfterTheNewsBeforeTheLast(t *testing.T) {
	c := clustertest.New(three())
	b := observer(c)
	look(t, b, 0)
	for i, want := range []time.Duration{0, time.Second, time.Second} {
		c.Edit(beat("b1", "7", i+1))
		if got := look(t, b, time.Duration(i+1)*time.Second).Host("n1").ReadWithin; got != want {
			t.Errorf("after %d pieces of news: read within %s, want %s", i+1, got, want)
		}
	}
	if got := look(t, b, 5*time.Second).Host("n1").ReadWithin; got != 3*time.Second {
		t.Errorf("read within %s, want the age of the news before the last, 3s", got)
	}
	c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(6, "") })
	if got := look(t, b, 6*time.Second).Host("n1").ReadWithin; got != 0 {
		t.Errorf("an older report put back: read within %s, want unknown", got)
	}
	c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = report(8, "") })
	if got := look(t, b, 7*time.Second).Host("n1").ReadWithin; got != 0 {
		t.Errorf("the first news after it: read within %s, want unknown", got)
	}
}

// Safety rule 6: the age of a stop counts from the first look that saw it, in
// the swap it was said in.
func TestAStopIsAsOldAsTheFirstLookThatSawIt(t *testing.T) {
	c := clustertest.New(three())
	b := observer(c)
	say := func(after time.Duration, raw string) time.Duration {
		t.Helper()
		c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapActuators].Data["n1"] = raw })
		return look(t, b, after).Host("n1").StoppedAge
	}
	first, second := `,"swap":"20261129T120000Z-n2-n1"`, `,"swap":"20261129T130000Z-n2-n1"`
	stopped := `,"step":"rollback","phase":"running","stopped":true`
	for i, c := range []struct {
		raw  string
		want time.Duration
	}{
		{report(1, first), 0},
		{report(2, first+stopped), 0},
		{report(2, first+stopped), time.Second},
		{report(3, second+stopped), 0},
		{report(3, second+stopped), time.Second},
		{report(4, second), 0},
	} {
		if got := say(time.Duration(i)*time.Second, c.raw); got != c.want {
			t.Errorf("look %d: the stop is %s old, want %s", i, got, c.want)
		}
	}
}

// Safety rule 21: how long the Lease has stood still is ours to measure.
func TestTheLeaseStandsStill(t *testing.T) {
	state := three()
	state.Lease = observe.Lease{Lease: lease.Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: time.Unix(1, 0)}}
	c := clustertest.New(state)
	b := observer(c)
	if got := look(t, b, 0).LeaseUnchanged; got != 0 {
		t.Errorf("first seen: %s", got)
	}
	if got := look(t, b, 40*time.Second).LeaseUnchanged; got != 40*time.Second {
		t.Errorf("unchanged: %s", got)
	}
	c.Edit(func(s *clustertest.State) { s.Lease.RenewTime = time.Unix(2, 0) })
	if got := look(t, b, 50*time.Second).LeaseUnchanged; got != 0 {
		t.Errorf("renewed: %s", got)
	}
}

// Safety rule 30: only ours, and only during a swap.
func TestEtcdSnapshotsAreReadDuringASwapOnly(t *testing.T) {
	state := three()
	state.Snapshots = []swap.Snapshot{
		{Name: "on-demand-n1-1", Node: "n1", Ready: true},
		{Name: fleet.SnapshotPrefix + "20261129T120000Z-n1-n2-n3-17", Node: "n3", Ready: true},
	}
	c := clustertest.New(state)
	b := observer(c)
	if s := look(t, b, 0); len(s.Snapshots) != 0 {
		t.Errorf("idle: %v", s.Snapshots)
	}
	c.Edit(func(s *clustertest.State) {
		s.Nodes["n2"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Swap(): "20261129T120000Z-n1-n2"}}}
	})
	if s := look(t, b, time.Second); len(s.Snapshots) != 1 || s.Snapshots[0].Node != "n3" {
		t.Errorf("during a swap: %v", s.Snapshots)
	}
}

// Safety rule 16: the pending host's kubelet is looked at, its pods are not.
func TestAPendingHostIsLookedAt(t *testing.T) {
	state := three()
	state.Nodes["n3"] = observe.Node{Node: swap.Node{Annotations: map[string]string{keys.Cordoned(): "20261129T120000Z-n3-n2"}}}
	state.Maps[fleet.ConfigMapActuators].Data["n3"] = report(1, "")
	state.Kubelets = map[string]time.Time{"n3": time.Unix(5, 0)}
	c := clustertest.New(state)
	h := look(t, observer(c), 0).Host("n3")
	if !h.KubeletRenewed.Equal(time.Unix(5, 0)) || h.PodsRead {
		t.Errorf("renewed %s, pods read %v", h.KubeletRenewed, h.PodsRead)
	}
}

func TestTheAutomaticPairsPodsAreRead(t *testing.T) {
	c := clustertest.New(three())
	b := observe.New(c, observe.Settings{
		Policy: swap.DefaultPolicy(),
		Judge: func(swap.Observation, []fitness.Host, swap.Policy) decide.Judgement {
			return decide.Judgement{Decision: decide.Decision{Pair: &swap.Pair{Out: "n1", In: "nobody"}}}
		},
	})
	s := look(t, b, 0, "n3")
	if s.Automatic == nil || !s.Host("n1").PodsRead || s.Host("n2").PodsRead || !s.Host("n3").PodsRead {
		t.Errorf("automatic %v, read %v %v %v", s.Automatic, s.Host("n1").PodsRead, s.Host("n2").PodsRead, s.Host("n3").PodsRead)
	}
}
