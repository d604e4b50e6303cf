package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
	"github.com/exadev/regrade/internal/fleet"
)

// life lives through hours of a fleet: every period each host adds a sample to
// its window, a decision is made, and a swap that it asks for is carried out at
// once, with what it leaves behind: restarts, the cooldown, the history.
type life struct {
	*given
	windows map[string]*fitness.Window
	began   map[string]bool // its etcd began since the last sample
	n       int
	every   int // passes between two decisions; zero is each
}

func live(g *given) *life {
	l := &life{given: g, windows: map[string]*fitness.Window{}, began: map[string]bool{}}
	for _, h := range g.Hosts {
		l.windows[h.Name] = &fitness.Window{Node: h.Name, BootID: "boot", Period: g.fleet.Period, Size: g.fleet.Size}
	}
	return l
}

// pass is one period; it returns the decision.
func (l *life) pass() Decision {
	l.Now = l.Now.Add(l.fleet.Period)
	var hosts []fitness.Host
	for _, h := range l.Hosts {
		s := l.fleet.Sample(h.Name, l.n)
		if l.began[h.Name] {
			s.Restart, s.Etcd.Gains, l.began[h.Name] = fitness.RestartEtcd, nil, false
		}
		l.windows[h.Name].Append(s)
		hosts = append(hosts, fitness.Host{Node: h.Name, Votes: h.Votes, Window: l.windows[h.Name], Seen: true})
	}
	if l.n++; l.every > 0 && l.n%l.every != 0 {
		return Decision{}
	}
	l.Verdicts = fitness.Judge(hosts, l.fit)
	d := Decide(l.Observation, l.policy)
	if d.Pair != nil {
		l.exchange(d.Pair.Out, d.Pair.In)
		l.began[d.Pair.In] = true
		l.History = append(l.History, PastSwap{Out: d.Pair.Out, In: d.Pair.In, Outcome: fleet.OutcomeCompleted, EndedAt: l.Now})
		l.CooldownUntil = l.Now.Add(Cooldown(300*time.Second, l.fleet.Period, l.fleet.Size))
	}
	return d
}

// noisy is the ordinary noise of an hour: connects that wait for a lost packet to
// be sent again, on each way now and then; on each way a connect lost; fsyncs
// that wait for a disk's own housekeeping; a job that takes memory for minutes.
func noisy(g *given) {
	for _, h := range g.Hosts {
		g.fleet.Edit[h.Name] = func(n int, s *fitness.Sample) {
			dice := func(what string, of int) bool { return fitnesstest.Dice(g.fleet.Seed, h.Name+what, n)%uint64(of) == 0 }
			for i := range s.Connect {
				if dice("again"+s.Connect[i].To, 300) {
					s.Connect[i].Took += time.Second
				}
				if (n+i)%240 == len(h.Name)+int(h.Name[len(h.Name)-1])%7 {
					s.Connect[i].Failed = true
				}
			}
			if s.Etcd != nil && s.Etcd.Gains != nil && dice("housekeeping", 10) {
				fitnesstest.Observe(&s.Etcd.Gains.WALFsync, fitness.DiskBounds(), 40*time.Millisecond)
				fitnesstest.Observe(&s.Etcd.Gains.BackendCommit, fitness.DiskBounds(), 90*time.Millisecond)
			}
			if n/20%8 == int(h.Name[len(h.Name)-1])%8 {
				s.Memory.Pressure.SomeAvg60 = 25
			}
		}
	}
}

// Scenario noise_is_still, first half: ordinary noise moves nothing.
func TestAnHourOfOrdinaryNoiseIsStill(t *testing.T) {
	for seed := range uint64(8) {
		g := calm().with(noisy)
		g.fleet.Seed = seed
		l := live(g)
		fit := 0
		for range fitness.DefaultSize + 240 {
			d := l.pass()
			if d.Pair != nil {
				t.Fatalf("seed %d, pass %d: %s", seed, l.n, told(d))
			}
			for _, v := range l.Verdicts {
				if v.Fitness == fitness.Fit {
					fit++
				}
			}
		}
		t.Logf("seed %d: %d of %d verdicts fit, the window's filling included", seed, fit, l.n*5)
	}
}

// Second half: a voter whose links flap around a limit goes once and does not
// come back; no host is swapped twice in a day.
func TestALinkThatFlapsSwapsNoHostTwiceInADay(t *testing.T) {
	const ms = time.Millisecond
	for name, delays := range map[string][2]time.Duration{
		"around the limit of a voter":        {495 * ms, 505 * ms},
		"around what is asked of a newcomer": {245 * ms, 255 * ms},
		"from good to bad and back":          {0, 620 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			g := calm().with(noisy)
			// n1's links are the one or the other for half an hour each, then for
			// minutes, then for hours; both its ends measure it.
			at := func(n int) time.Duration {
				block := []int{120, 12, 700}[n/3000%3]
				return delays[n/block%2]
			}
			l := live(g)
			l.every = 8
			for range 30 * 240 {
				g.fleet.Delay["n1"] = at(l.n)
				l.pass()
			}
			for i, a := range l.History {
				for _, b := range l.History[:i] {
					if a.EndedAt.Sub(b.EndedAt) < 24*time.Hour && slices.ContainsFunc([]string{a.Out, a.In}, func(n string) bool { return n == b.Out || n == b.In }) {
						t.Errorf("swapped twice in a day: %+v and %+v", b, a)
					}
				}
			}
			t.Logf("swaps in 30 hours: %+v", l.History)
		})
	}
}

// A fault is decided within one window once its windows are full of it
// (design §8).
func TestAFaultIsDecidedWithinOneWindow(t *testing.T) {
	g := calm()
	l := live(g)
	for range 2 * fitness.DefaultSize {
		l.pass()
	}
	g.fleet.Delay["n2"] = 620 * time.Millisecond
	for i := range fitness.DefaultSize {
		if d := l.pass(); d.Pair != nil {
			if d.Pair.Out != "n2" {
				t.Fatal(told(d))
			}
			t.Logf("decided after %d samples, %s", i+1, time.Duration(i+1)*l.fleet.Period)
			return
		}
	}
	t.Error("not decided within one window")
}

// R-X-11, R-228-44's automatic half: after a swap nothing more happens by itself
// in the cooldown, and the fleet is fit when it is over.
func TestNothingMoreHappensInTheCooldown(t *testing.T) {
	g := slowVoter()
	l := live(g)
	for l.pass().Pair == nil {
		if l.n > 200 {
			t.Fatal("no swap")
		}
	}
	slow("n2")(g) // and another one turns slow at once
	until := l.CooldownUntil
	for l.Now.Before(until.Add(-g.fleet.Period)) {
		if d := l.pass(); d.Pair != nil {
			t.Fatalf("%s before %s: %s", l.Now, until, told(d))
		}
	}
	for range 3 {
		if d := l.pass(); d.Pair != nil {
			t.Logf("the second swap %s after the end of the cooldown: %s", l.Now.Sub(until), d.Sentence)
			return
		}
	}
	t.Error("the second fault is never decided: " + told(Decide(l.Observation, l.policy)))
}
