package observe_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
)

// Safety rules 22 and 24: an older entry put back over a newer one, from a backup
// or by hand, is a change and no word of the host's.
func TestAnOlderEntryPutBackIsNoNews(t *testing.T) {
	c := clustertest.New(eligible(three()))
	b, got := judging(c)
	put := func(counter int) {
		c.Edit(func(s *clustertest.State) {
			s.Maps[fleet.ConfigMapProbe] = observe.ConfigMap{Exists: true, Data: map[string]string{"n2": entry(t, "n2", counter)}}
		})
	}
	beat := func(counter int) {
		c.Edit(func(s *clustertest.State) {
			s.Beats["probe of n2"] = observe.Heartbeat{Node: "n2", Probe: true, BootID: "b", Counter: strconv.Itoa(counter), Renewed: time.Unix(int64(counter), 0)}
		})
	}
	put(50)
	beat(50)
	look(t, b, 0)
	put(51)
	beat(51)
	look(t, b, 15*time.Second)
	if h := got["n2"]; !h.Seen || h.Age != 0 {
		t.Fatalf("%+v", h)
	}
	// The host is gone, and after an hour somebody puts the map of a backup back.
	look(t, b, time.Hour)
	put(40)
	look(t, b, time.Hour+15*time.Second)
	if h := got["n2"]; h.Seen && h.Age < time.Minute {
		t.Errorf("an entry 11 samples older than the last one makes a host that is gone fresh: age %s", h.Age)
	}
}

// What a probe measured is as new as its entry, not as its heartbeat: the one says that
// it goes on, the other what it found.
func TestWhenAnEntryWasWrittenIsToldFromThatItsProbeGoesOn(t *testing.T) {
	var p observe.Probes
	began := time.Now()
	beat := func(counter int) map[string]observe.Heartbeat {
		return map[string]observe.Heartbeat{"n2": {Node: "n2", Probe: true, BootID: "b", Counter: strconv.Itoa(counter), Renewed: time.Unix(int64(counter), 0)}}
	}
	see := func(after time.Duration, written, beaten int) observe.SeenProbe {
		t.Helper()
		all := p.See([]string{"n1", "n2"}, map[string]string{"n2": entry(t, "n2", written)}, 0, beat(beaten), began.Add(after))
		if len(all) != 1 || all[0].Node != "n2" || all[0].Window == nil {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	if s := see(0, 50, 50); s.Seen || s.Wrote {
		t.Errorf("a first look is taken for a change: %+v", s)
	}
	if s := see(15*time.Second, 50, 51); !s.Seen || s.Wrote {
		t.Errorf("a heartbeat is taken for an entry: %+v", s)
	}
	if s := see(30*time.Second, 52, 52); !s.Wrote || s.WroteAge != 0 {
		t.Errorf("%+v", s)
	}
	if s := see(45*time.Second, 52, 53); !s.Wrote || s.WroteAge != 15*time.Second || s.Age != 0 {
		t.Errorf("%+v", s)
	}
	if s := see(60*time.Second, 40, 53); s.Wrote {
		t.Errorf("an older entry that was put back is taken for one that was written: %+v", s)
	}
}
