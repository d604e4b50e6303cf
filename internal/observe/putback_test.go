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
