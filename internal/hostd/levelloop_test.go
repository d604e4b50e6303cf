package hostd_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
)

// runs lets a daemon's own loop run in this bubble for a while; the host goes on at each
// of its looks.
func (g *graded) runs(t *testing.T, during time.Duration) {
	t.Helper()
	p := hostd.DefaultPolicy()
	p.JoinURLs = joins()
	d := hostd.New(hostd.Settings{Node: g.node, Policy: p, Host: g.host, API: g.rig, Etcd: etcd{g.rig}, Ways: g.rig, Levels: g.rig.levels})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	time.Sleep(during)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The loop itself, by the clock of a bubble: the window is filled by its own looks, each
// step is gone on with at once and not at the next period, and a calm host costs what it
// costs without levels. The break check: read the memory at every third pass alone.
func TestTheLoopOfAHostTakesItsLevels(t *testing.T) { // R-112-02, R-112-04, R-112-20, safety rule 29
	synctest.Test(t, func(t *testing.T) {
		g := newGraded(t)
		g.wall, g.wake, g.now = true, make(chan struct{}, 1), time.Now()
		g.after = func(what string) {
			if what == "view" {
				g.host.Advance()
			}
		}
		g.runs(t, time.Hour)
		if len(g.writes) > 0 || g.read > 260 {
			t.Errorf("a calm host: %v, and %d reads of the API in an hour", g.writes, g.read)
		}

		g.reading = short
		began := time.Now()
		g.runs(t, 30*time.Minute)
		j := g.levelJournal()
		if !g.at(fleet.LevelEtcdOnly)() || g.restarts() != 1 {
			t.Fatalf("%d restarts, label %q: %+v", g.restarts(), g.self.Labels[keys().Level()], j)
		}
		// A window, a step, a cooldown, a step: the first is seen by the second's cooldown.
		if at := j.Began.Sub(began); at < 12*time.Minute || at > 14*time.Minute {
			t.Errorf("the second step began after %s", at)
		}
		if took := j.Ended.Sub(j.Began); took > 10*time.Second {
			t.Errorf("a step takes %s", took)
		}

		g.reading = plenty
		calm := time.Now()
		g.runs(t, time.Hour)
		j = g.levelJournal()
		if !g.at(fleet.LevelFull)() || g.restarts() != 2 {
			t.Fatalf("%d restarts, label %q: %+v", g.restarts(), g.self.Labels[keys().Level()], j)
		}
		if at := j.Began.Sub(calm); at < 20*time.Minute || at > 24*time.Minute {
			t.Errorf("the last step up began after %s", at)
		}
	})
}
