package observe_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

func entry(t *testing.T, node string, counter int) string {
	t.Helper()
	w := fitness.Window{Node: node, BootID: "b", Period: 15 * time.Second, Size: 5}
	for i := range counter {
		w.Append(fitness.Sample{At: time.Date(2026, 11, 30, 12, 0, 15*i, 0, time.UTC)})
	}
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// eligible lets every host vote.
func eligible(s clustertest.State) clustertest.State {
	for name, n := range s.Nodes {
		n.Labels = map[string]string{fleet.DefaultKeys().Eligible(): "true"}
		s.Nodes[name] = n
	}
	return s
}

// judging is an observer, and the hosts that its judge was last given.
func judging(c *clustertest.Cluster) (*observe.Observer, map[string]fitness.Host) {
	got := map[string]fitness.Host{}
	return observe.New(c, observe.Settings{Policy: swap.DefaultPolicy(), Judge: func(_ swap.Observation, hosts []fitness.Host, _ swap.Policy) decide.Judgement {
		clear(got)
		for _, h := range hosts {
			got[h.Node] = h
		}
		return decide.Judgement{}
	}}), got
}

// Safety rule 22: an entry is fresh because somebody saw it change, or its
// heartbeat, and never because of a time that stands in it.
func TestAProbeIsFreshWhenItIsSeenToChange(t *testing.T) {
	c := clustertest.New(eligible(three()))
	b, got := judging(c)
	put := func(data map[string]string) {
		c.Edit(func(s *clustertest.State) {
			s.Maps[fleet.ConfigMapProbe] = observe.ConfigMap{Exists: true, Data: data}
		})
	}
	beat := func(at int) {
		c.Edit(func(s *clustertest.State) {
			s.Beats["probe of n2"] = observe.Heartbeat{Node: "n2", Probe: true, BootID: "b", Counter: strconv.Itoa(at), Renewed: time.Unix(int64(at), 0)}
		})
	}
	put(map[string]string{"n1": entry(t, "n1", 1), "n2": entry(t, "n2", 1), "n3": "garbage", "gone": entry(t, "gone", 1)})
	beat(1)
	if s := look(t, b, 0); s.Judgement == nil || s.ProbesMissing || len(got) != 3 {
		t.Fatalf("%d hosts, judgement %v", len(got), s.Judgement)
	}
	if h := got["n1"]; h.Seen || h.Window == nil || h.Age != 0 {
		t.Errorf("first look: %+v", h)
	}
	if h := got["n3"]; h.Window != nil || h.Problem == nil || h.Problem.Code != fitness.CodeEntryMalformed {
		t.Errorf("an entry with garbage in it: %+v", h)
	}
	// n1 writes its window, n2 only its heartbeat.
	put(map[string]string{"n1": entry(t, "n1", 2), "n2": entry(t, "n2", 1), "n3": "garbage"})
	beat(2)
	look(t, b, 15*time.Second)
	for _, name := range []string{"n1", "n2"} {
		if h := got[name]; !h.Seen || h.Age != 0 {
			t.Errorf("%s has changed: %+v", name, h)
		}
	}
	if len(got["n1"].Window.Samples) != 2 {
		t.Errorf("the new window is not read: %d samples", len(got["n1"].Window.Samples))
	}
	// Both stand still.
	look(t, b, 75*time.Second)
	if h := got["n1"]; !h.Seen || h.Age != time.Minute {
		t.Errorf("silent for a minute: %+v", h)
	}
	// An entry that went and came back is seen for the first time.
	put(map[string]string{})
	look(t, b, 80*time.Second)
	if _, has := got["n1"]; has {
		t.Error("an entry that went is still there")
	}
	if h, has := got["n2"]; !has || h.Window != nil {
		t.Errorf("a heartbeat without an entry: %+v", h)
	}
	put(map[string]string{"n1": entry(t, "n1", 9)})
	look(t, b, 90*time.Second)
	if h := got["n1"]; h.Seen {
		t.Error("an entry that came back is fresh at once")
	}
}

// Without the entries nothing is judged, and a swap by hand goes all the same.
func TestEntriesThatCannotBeReadHoldNothingElse(t *testing.T) {
	c := clustertest.New(eligible(three()))
	judged := 0
	b := observe.New(c, observe.Settings{Policy: swap.DefaultPolicy(), Judge: func(swap.Observation, []fitness.Host, swap.Policy) decide.Judgement {
		judged++
		return decide.Judgement{}
	}})
	if s := look(t, b, 0); !s.ProbesMissing || judged != 1 {
		t.Errorf("a map that does not exist: missing %v, judged %d times", s.ProbesMissing, judged)
	}
	c.Hook = func(call string) error {
		if call == "ConfigMap "+fleet.ConfigMapProbe {
			return errors.New("no answer")
		}
		return nil
	}
	s := look(t, b, 15*time.Second)
	if s.Judgement != nil || s.ProbeProblem == "" || len(s.Missing) != 0 || s.ProbesMissing || judged != 1 {
		t.Errorf("%+v, judged %d times", s.ProbeProblem, judged)
	}
}

// Safety rules 22 and 24: a heartbeat vouches for the entry it has come to, and for
// no other: not for one of an earlier boot, nor for one put back from a backup.
func TestAHeartbeatVouchesForNoOtherEntry(t *testing.T) {
	c := clustertest.New(eligible(three()))
	b, got := judging(c)
	put := func(counter int) {
		c.Edit(func(s *clustertest.State) {
			s.Maps[fleet.ConfigMapProbe] = observe.ConfigMap{Exists: true, Data: map[string]string{"n2": entry(t, "n2", counter)}}
		})
	}
	beat := func(boot, counter string, at int) {
		c.Edit(func(s *clustertest.State) {
			s.Beats["probe of n2"] = observe.Heartbeat{Node: "n2", Probe: true, BootID: boot, Counter: counter, Renewed: time.Unix(int64(at), 0)}
		})
	}
	// The map of a backup: 5 samples of boot b. The probe has come to 90,000 of boot c.
	put(5)
	beat("c", "90000", 1)
	look(t, b, 0)
	beat("c", "90001", 2)
	look(t, b, 15*time.Second)
	if h := got["n2"]; h.Seen {
		t.Errorf("an entry of another boot, 89,996 samples old, is fresh because its host's heartbeat moved: age %s", h.Age)
	}
}
