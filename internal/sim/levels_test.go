package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

var (
	plenty = level.Reading{Pressure: &level.Pressure{}, AvailableBytes: 2 << 30, TotalBytes: 4 << 30}
	short  = level.Reading{Pressure: &level.Pressure{SomeAvg60: 50, FullAvg60: 20}, AvailableBytes: 2 << 30, TotalBytes: 4 << 30}
)

// levels is the level half of a host, with a window of 20 s and a cooldown of a minute.
func (r *run) levels(name string, a *actor) *hostd.LevelSettings {
	if r.memory == nil {
		return nil
	}
	p := level.DefaultPolicy()
	p.Window, p.Cooldown, p.Gap, p.StepUp = 20*time.Second, time.Minute, 15*time.Second, level.Automatic
	return &hostd.LevelSettings{
		Policy: p, Target: r.policy.Target, API: r.w.LevelAPI(name).Through(a.apiGate), Memory: func() level.Reading { return r.memory[name] },
		Protected: func(l map[string]string) bool {
			k, v, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
			return l[k] == v
		},
	}
}

func newLevelRun(cfg sim.Config) (*run, error) {
	r, err := newRun(cfg)
	if err != nil {
		return nil, err
	}
	r.memory = map[string]level.Reading{}
	for _, n := range r.names {
		r.memory[n] = plenty
		r.newDaemon(n)
	}
	r.w.Guard()
	return r, nil
}

func (r *run) level(name string) (l fleet.Level) {
	r.w.Inspect(name, func(h *sim.Host) { l = h.Level })
	return l
}

// until passes until the condition holds, and says whether that came.
func (r *run) until(within time.Duration, cond func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); r.step() {
		if cond() {
			return true
		}
	}
	return cond()
}

func (r *run) wrong() (wrong []string) {
	for _, v := range r.w.Violations() {
		wrong = append(wrong, v.String())
	}
	return wrong
}

func TestAServerUnderPressureStepsDownAndUpBesideAController(t *testing.T) { // R-112-20, R-I-03
	synctest.Test(t, func(t *testing.T) {
		r, err := newLevelRun(sim.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer show(t, r)
		r.spend(time.Minute)
		before := fmt.Sprint(r.w.Voters())
		r.memory["v1"] = short
		if !r.until(10*time.Minute, func() bool { return r.level("v1") == fleet.LevelEtcdOnly }) {
			t.Fatalf("v1 is %s", r.level("v1"))
		}
		// Another one under pressure may not follow, nor may a swap begin that keeps v1.
		r.memory["v2"] = short
		r.request("v3", "s1")
		r.spend(8 * time.Minute)
		if l := r.level("v2"); l != fleet.LevelFull {
			t.Errorf("v2 is %s beside an etcd-only v1", l)
		}
		if got := fmt.Sprint(r.w.Voters()); got != before {
			t.Errorf("the voters were %s and are %s", before, got)
		}
		r.memory["v1"], r.memory["v2"] = plenty, plenty
		if !r.until(30*time.Minute, func() bool { return r.idle() && len(r.left()) == 0 }) {
			t.Errorf("left: %v", r.left())
		}
		for _, w := range r.wrong() {
			t.Error(w)
		}
	})
}

// R-X-07, R-I-03: a swap holds the Lease from its beginning to its end, and no host steps meanwhile.
func TestASwapRefusesEveryLevelStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := newLevelRun(sim.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer show(t, r)
		r.spend(time.Minute)
		r.request("v1", "s1")
		if !r.until(5*time.Minute, func() bool { return len(r.swaps) > 0 }) {
			t.Fatal("no swap began")
		}
		for _, n := range r.names {
			r.memory[n] = short
		}
		for !r.until(2*time.Second, r.idle) {
			for _, n := range []string{"v2", "v3"} {
				if l := r.level(n); l != fleet.LevelFull {
					t.Fatalf("%s is %s in a swap", n, l)
				}
			}
		}
		for _, w := range r.wrong() {
			t.Error(w)
		}
	})
}

// A swap waits for the levels: begun is none while a voter is at a lower one, by name, and it goes on once that is full again.
func TestASwapWaitsForAVoterToBeFull(t *testing.T) { // R-I-03
	synctest.Test(t, func(t *testing.T) {
		r, err := newLevelRun(sim.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer show(t, r)
		r.spend(time.Minute)
		r.memory["v1"] = short
		if !r.until(10*time.Minute, func() bool { return r.level("v1") == fleet.LevelControlPlane }) {
			t.Fatalf("v1 is %s", r.level("v1"))
		}
		r.memory["v1"] = plenty
		r.request("v2", "s1")
		r.spend(20 * time.Second)
		if st := r.status(); len(r.swaps) > 0 || st == nil || len(st.Next.Waits) == 0 || st.Next.Waits[0].Code != swap.CodeNotFull {
			t.Errorf("%d swaps, %+v", len(r.swaps), st)
		}
		if !r.until(20*time.Minute, func() bool { return len(r.swaps) > 0 && r.idle() && len(r.left()) == 0 }) {
			t.Errorf("left: %v; %s", r.left(), r.words())
		}
		for _, w := range r.wrong() {
			t.Error(w)
		}
	})
}

// Whatever comes between: memory that is short here and there, swaps, daemons that die after any effect, hosts that fall and
// lose their network. Never two steps at once, none beside a swap, the quorum is never given up by our doing, no job is cut;
// in the end, with plenty for all, everything is as it was.
func TestWhateverHappensToLevelsBesideSwaps(t *testing.T) { // safety rules 1, 2, 20, 26
	setChecks(t, 20)
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			cfg := sim.DefaultConfig()
			cfg.Voters, cfg.Seed = rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "voters"), rapid.Uint64Range(1, 1<<20).Draw(t, "seed")
			r, err := newLevelRun(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "a pod") {
				r.w.AddPod(sim.Pod{Node: "v1", Pod: observe.Pod{Namespace: "x", Name: "web", UID: "web", Owner: "ReplicaSet"}})
			}
			r.spend(time.Minute)
			host := rapid.SampledFrom(r.names)
			healing := map[string]func(){}
			var story []string
			for range rapid.IntRange(3, 12).Draw(t, "events") {
				n := host.Draw(t, "host")
				what := rapid.SampledFrom([]string{"short", "short", "plenty", "swap", "kill", "kill", "crash", "cut", "boot"}).Draw(t, "event")
				story = append(story, what+" "+n)
				switch what {
				case "short":
					r.memory[n] = short
				case "plenty":
					r.memory[n] = plenty
				case "swap":
					r.request("v"+fmt.Sprint(rapid.IntRange(1, cfg.Voters).Draw(t, "out")), "s1")
				case "kill":
					r.kill[n] = rapid.IntRange(0, 12).Draw(t, "after")
				case "crash":
					if len(healing) == 0 {
						r.w.Crash(n)
						healing[n] = func() { r.w.Boot(n) }
					}
				case "cut":
					if len(healing) == 0 {
						r.w.Isolate(n)
						healing[n] = func() { r.w.Rejoin(n) }
					}
				case "boot":
					for k, mend := range healing {
						mend()
						delete(healing, k)
					}
				}
				r.spend(time.Duration(rapid.IntRange(1, 120).Draw(t, "for")) * time.Second)
			}
			for _, mend := range healing {
				mend()
			}
			clear(r.kill)
			for _, n := range r.names {
				r.memory[n] = plenty
			}
			settled := r.until(time.Hour, func() bool { return r.idle() && len(r.left()) == 0 })
			wrong := r.wrong()
			if !settled {
				wrong = append(append(wrong, "nothing ended: "+r.words()), r.left()...)
			}
			if len(wrong) > 0 {
				report(t, plan{Voters: cfg.Voters, Seed: cfg.Seed}, r, append(wrong, story...))
			}
		})
	})
}
