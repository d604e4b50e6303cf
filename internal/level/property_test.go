package level_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	. "github.com/exadev/regrade/internal/level"
)

var levels = []fleet.Level{fleet.LevelFull, fleet.LevelControlPlane, fleet.LevelEtcdOnly}

func drawPolicy(t *rapid.T) Policy {
	p := DefaultPolicy()
	p.Window = time.Duration(rapid.IntRange(90, 600).Draw(t, "window")) * time.Second
	p.Cooldown = p.Window + time.Duration(rapid.IntRange(1, 1200).Draw(t, "cooldown"))*time.Second
	p.Lowest = rapid.SampledFrom(levels[1:]).Draw(t, "lowest")
	p.StepUp = rapid.SampledFrom([]StepUp{Manual, Automatic, Automatic}).Draw(t, "step up")
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}

// A host lives for hours with readings that come and go and clocks that jump, and takes
// each step that is decided (R-112-02..04, safety rule 22): never two levels at once,
// never up under pressure, never down without a whole window of it, never a step within
// the cooldown of the last, never below the lowest level.
func TestWhateverMemoryDoesAHostNeitherFlapsNorJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		o := Observation{At: t0, Date: t0, Level: rapid.SampledFrom(levels).Draw(t, "level")}
		var real, last time.Duration // of a clock that nobody can set
		stepped, jumped := false, false
		kind := 0
		readings := []Reading{pressed, calm, between, low, waking, blind}
		var runs []int // what was read at each real second of the present series
		var at []time.Duration
		for range rapid.IntRange(10, 400).Draw(t, "passes") {
			if rapid.IntRange(0, 20).Draw(t, "turns") == 0 {
				kind = rapid.IntRange(0, len(readings)-1).Draw(t, "reads")
			}
			gap := time.Duration(rapid.SampledFrom([]int{1, 5, 15, 15, 15, 30, 59}).Draw(t, "after")) * time.Second
			if rapid.IntRange(0, 60).Draw(t, "stands still") == 0 {
				gap = time.Duration(rapid.IntRange(61, 4000).Draw(t, "for")) * time.Second
				runs, at = nil, nil
			}
			real += gap
			o.At, o.Date = o.At.Add(gap), o.Date.Add(gap)
			if rapid.IntRange(0, 40).Draw(t, "the Date jumps") == 0 {
				o.Date = o.Date.Add(time.Duration(rapid.IntRange(-10000, 10000).Draw(t, "by")) * time.Second)
			}
			if rapid.IntRange(0, 60).Draw(t, "the own clock jumps") == 0 {
				// Without a monotonic part, as after a suspend.
				if by := time.Duration(rapid.IntRange(-10000, 10000).Draw(t, "by")) * time.Second; by < -gap || by > p.Gap {
					o.At = o.At.Add(by)
					runs, at, jumped = nil, nil, true
				}
			}
			o.Watch = o.Watch.See(o.At, readings[kind], p)
			runs, at = append(runs, kind), append(at, real)
			before := o
			d := Decide(o, p)
			if d.Want != o.Level && d.Want != Toward(o.Level, d.Want) {
				t.Fatalf("from %s to %s at once", o.Level, d.Want)
			}
			if Below(d.Want, p.Lowest) && d.Want != o.Level {
				t.Fatalf("%s is below %s", d.Want, p.Lowest)
			}
			if d.Want == o.Level {
				continue
			}
			down := Below(d.Want, o.Level)
			need := p.Cooldown
			if down {
				need = p.Window
			}
			from := slices.IndexFunc(at, func(x time.Duration) bool { return x >= real-need })
			if from < 0 || at[from] > real-need+p.Gap {
				t.Fatalf("%s after %s of readings, want %s: %+v", d.Code, real-at[0], need, before)
			}
			for _, k := range runs[from:] {
				if over, _ := Over(readings[k], p.Over); down && !over || !down && (over || k != 1) {
					t.Fatalf("%s with a reading of kind %d in the window", d.Code, k)
				}
			}
			if !down && p.StepUp != Automatic {
				t.Fatal("up by itself")
			}
			if stepped && !jumped && real-last < p.Cooldown {
				t.Fatalf("a step %s after the last, the cooldown is %s", real-last, p.Cooldown)
			}
			stepped, jumped, last = true, false, real
			o.Level, o.Ended, o.SeenEnd = d.Want, o.Date, o.At
		}
	})
}

// With clocks that only go, no two steps lie within one cooldown, whoever looks: the
// process that took the first, or one that was started since.
func TestNoTwoStepsLieWithinOneCooldown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		p.StepUp = Automatic
		o := Observation{At: t0, Date: t0, Level: fleet.LevelFull}
		var last time.Time
		reading := calm
		for range 600 {
			o.At, o.Date = o.At.Add(15*time.Second), o.Date.Add(15*time.Second)
			if rapid.IntRange(0, 30).Draw(t, "turns") == 0 {
				reading = rapid.SampledFrom([]Reading{calm, pressed}).Draw(t, "reads")
			}
			if rapid.IntRange(0, 100).Draw(t, "restarts") == 0 {
				o.Watch, o.SeenEnd = Watch{}, time.Time{}
			}
			o.Watch = o.Watch.See(o.At, reading, p)
			d := Decide(o, p)
			if d.Want == o.Level {
				continue
			}
			if !last.IsZero() && o.At.Sub(last) < p.Cooldown {
				t.Fatalf("%s %s after the last step, the cooldown is %s", d.Code, o.At.Sub(last), p.Cooldown)
			}
			last = o.At
			o.Level, o.Ended, o.SeenEnd = d.Want, o.Date, o.At
		}
	})
}

// Whatever the cluster says: with no gate shut, a restart leaves a quorum and two API
// servers, everybody agrees, nobody swaps, and the Lease is free or this step's.
func TestNoShutGateMeansThatTheOthersAreAQuorum(t *testing.T) { // safety rules 1, 2 and 26
	rapid.Check(t, func(t *rapid.T) {
		s := open()
		s.From, s.To = rapid.SampledFrom(levels).Draw(t, "from"), rapid.SampledFrom(levels).Draw(t, "to")
		s.Server, s.Votes = rapid.Bool().Draw(t, "server"), rapid.Bool().Draw(t, "votes")
		s.Learners = rapid.IntRange(0, 1).Draw(t, "learners")
		s.Target = rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "target")
		s.Others = nil
		for range rapid.IntRange(0, 4).Draw(t, "others") {
			s.Others = append(s.Others, Voter{Node: "x", Ready: often(t, "ready"), APIServer: often(t, "api"), Answers: often(t, "answers"), Agrees: often(t, "agrees")})
		}
		s.Lease.Holder = rapid.SampledFrom([]string{"", "", fleet.LeaseHolder, "b", "a"}).Draw(t, "holder")
		s.Lease.RenewTime = t0.Add(time.Duration(rapid.IntRange(-2000, 0).Draw(t, "renewed")) * time.Second)
		s.Lease.AcquireTime = s.Lease.RenewTime
		if rapid.Bool().Draw(t, "holds") {
			s.Holds = t0
		}
		if len(Gates(s)) > 0 {
			return
		}
		up := 0
		for _, v := range s.Others {
			if v.Ready && v.Answers && v.Agrees {
				up++
			}
		}
		switch n := len(s.Others) + 1; {
		case up != len(s.Others) || up < n/2+1 || n != s.Target || up < 2:
			t.Fatalf("%d of %d are there without it: %+v", up, n, s)
		case !s.Server || !s.Votes || s.Learners > 0:
			t.Fatalf("%+v", s)
		case s.Holds.IsZero() && s.Lease.At(t0) == lease.Held:
			t.Fatalf("the Lease is held by %s", s.Lease.Holder)
		case !s.Holds.IsZero() && !Mine(s.Lease, s.Node, s.Holds, t0):
			t.Fatalf("the Lease is not its own: %+v", s.Lease)
		case s.To == s.From || s.To != Toward(s.From, s.To):
			t.Fatalf("from %s to %s", s.From, s.To)
		}
	})
}

func often(t *rapid.T, label string) bool { return rapid.IntRange(0, 9).Draw(t, label) > 0 }
