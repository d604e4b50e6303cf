package observe_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// Safety rules 22 and 24: a heartbeat vouches for the entry it has come to, and for
// no other: not for one of an earlier boot, nor for one put back from a backup.
func TestAHeartbeatVouchesForNoOtherEntry(t *testing.T) {
	c := clustertest.New(three())
	var got map[string]fitness.Host
	b := observe.New(c, observe.Settings{Policy: swap.DefaultPolicy(), Judge: func(_ swap.Observation, hosts []fitness.Host, _ swap.Policy) decide.Judgement {
		got = map[string]fitness.Host{}
		for _, h := range hosts {
			got[h.Node] = h
		}
		return decide.Judgement{}
	}})
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
