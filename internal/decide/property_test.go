package decide

import (
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

func drawGiven(t *rapid.T) *given {
	g := calmOf(rapid.SampledFrom([]int{3, 3, 5, 4}).Draw(t, "voters"), rapid.IntRange(0, 4).Draw(t, "standbys"))
	g.policy.MaxUnfit = rapid.IntRange(1, 2).Draw(t, "max-unfit")
	g.fleet.Size, g.fit.Size = 10, 10
	g.fleet.Seed = rapid.Uint64().Draw(t, "seed")
	var age []time.Duration
	rarely := func(what string) bool { return rapid.IntRange(0, 19).Draw(t, what) == 0 }
	for i := range g.Hosts {
		h := &g.Hosts[i]
		if rarely("slow way") || i == 0 {
			g.fleet.Delay[h.Name] = time.Duration(rapid.SampledFrom([]int{0, 130, 260, 600}).Draw(t, "delay")) * time.Millisecond
		}
		if rarely("slow disk") || i == 0 {
			g.fleet.Disk[h.Name] = rapid.SampledFrom([]float64{1, 3, 20}).Draw(t, "disk")
		}
		h.Pinned, h.Cordoned, h.Eligible = rarely("pinned"), rarely("cordoned"), !rarely("ineligible")
		h.Zone = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "zone")
		age = append(age, map[bool]time.Duration{true: time.Hour}[rarely("silent")])
	}
	g.hosts = func(hs []fitness.Host) {
		for i := range hs {
			hs[i].Age = age[i]
		}
	}
	return g
}

// A proposed pair is two hosts that may be swapped, whatever else is true.
func TestAProposedSwapIsOfHostsThatMay(t *testing.T) {
	swaps := 0
	rapid.Check(t, func(t *rapid.T) {
		g := drawGiven(t)
		o := g.observe()
		d := Decide(o, g.policy)
		if d.Pair == nil {
			return
		}
		swaps++
		find := func(name string) (Host, fitness.Verdict) {
			i := slices.IndexFunc(o.Hosts, func(h Host) bool { return h.Name == name })
			j := slices.IndexFunc(o.Verdicts, func(v fitness.Verdict) bool { return v.Node == name })
			return o.Hosts[i], o.Verdicts[j]
		}
		out, outV := find(d.Pair.Out)
		in, inV := find(d.Pair.In)
		for _, h := range []Host{out, in} {
			if h.Pinned || h.Cordoned || !h.Eligible {
				t.Fatalf("%+v may not be swapped\n%s", h, told(d))
			}
		}
		if !out.Votes || in.Votes || outV.Fitness != fitness.Unfit || len(outV.Grounds()) == 0 {
			t.Fatal(told(d))
		}
		if f, _, margin := inV.Without(out.Name); f != fitness.Fit || margin > 1 {
			t.Fatalf("%s is %s, margin %.2f\n%s", in.Name, f, margin, told(d))
		}
		for _, v := range o.Verdicts {
			if v.Votes && v.Fitness == fitness.Unknown {
				t.Fatalf("%s is unknown\n%s", v.Node, told(d))
			}
		}
		before, after := map[string]bool{}, map[string]bool{in.Zone: true}
		for _, h := range o.Hosts {
			if h.Votes {
				before[h.Zone] = true
				if h.Name != out.Name {
					after[h.Zone] = true
				}
			}
		}
		if len(after) < len(before) {
			t.Fatalf("%d zones, then %d", len(before), len(after))
		}
	})
	if swaps == 0 {
		t.Error("no swap was ever proposed: the property holds of nothing")
	}
	t.Logf("%d swaps proposed", swaps)
}

func TestTheOrderOfWhatIsObservedDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGiven(t)
		for range rapid.IntRange(0, 3).Draw(t, "swaps") {
			name := func(what string) string { return g.Hosts[rapid.IntRange(0, len(g.Hosts)-1).Draw(t, what)].Name }
			past(name("out"), name("in"), time.Duration(rapid.IntRange(1, 48).Draw(t, "ago"))*time.Hour, fleet.OutcomeCompleted)(g)
			g.Backoff = append(g.Backoff, status.Backoff{Out: name("out"), In: name("in"), Count: 1, Until: now.Add(time.Hour)})
			g.Held = append(g.Held, status.Reason{Code: "X", Node: name("held"), Sentence: "x"})
		}
		o := g.observe()
		want := Decide(o, g.policy)
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "order")))
		shuffled := o
		shuffled.Hosts, shuffled.Verdicts, shuffled.History = slices.Clone(o.Hosts), slices.Clone(o.Verdicts), slices.Clone(o.History)
		shuffled.Backoff, shuffled.Held = slices.Clone(o.Backoff), slices.Clone(o.Held)
		r.Shuffle(len(o.Hosts), func(i, j int) { shuffled.Hosts[i], shuffled.Hosts[j] = shuffled.Hosts[j], shuffled.Hosts[i] })
		r.Shuffle(len(o.Verdicts), func(i, j int) {
			shuffled.Verdicts[i], shuffled.Verdicts[j] = shuffled.Verdicts[j], shuffled.Verdicts[i]
		})
		r.Shuffle(len(o.History), func(i, j int) { shuffled.History[i], shuffled.History[j] = shuffled.History[j], shuffled.History[i] })
		r.Shuffle(len(o.Backoff), func(i, j int) { shuffled.Backoff[i], shuffled.Backoff[j] = shuffled.Backoff[j], shuffled.Backoff[i] })
		r.Shuffle(len(o.Held), func(i, j int) { shuffled.Held[i], shuffled.Held[j] = shuffled.Held[j], shuffled.Held[i] })
		if d := cmp.Diff(want, Decide(shuffled, g.policy)); d != "" {
			t.Fatal(d)
		}
	})
}

// A swap makes the voters better by the very ranking that asked for it: measured
// again, with the newcomer as a voter, fewer of them are unfit and they are on
// fewer bad links or as many. And the same data do not bring the host back.
func TestASwapNeverMakesTheVotersWorse(t *testing.T) {
	swaps := 0
	rapid.Check(t, func(t *rapid.T) {
		g := drawGiven(t)
		g.hosts = nil
		d := g.decide()
		if d.Pair == nil {
			return
		}
		swaps++
		count := func(vs []fitness.Verdict) (unfit, links int) {
			for _, v := range vs {
				if v.Votes {
					links += v.BadLinks
				}
				if v.Votes && v.Fitness != fitness.Fit {
					unfit++
				}
			}
			return unfit, links
		}
		unfit, links := count(g.Verdicts)
		g.exchange(d.Pair.Out, d.Pair.In)
		after := g.decide()
		unfitAfter, linksAfter := count(g.Verdicts)
		if unfitAfter >= unfit || linksAfter > links {
			t.Fatalf("%d unfit on %d links, then %d on %d\n%s\n%s", unfit, links, unfitAfter, linksAfter, told(d), told(after))
		}
		if after.Would != nil && after.Would.In == d.Pair.Out {
			t.Fatalf("it goes and comes\n%s\n%s", told(d), told(after))
		}
	})
	if swaps == 0 {
		t.Error("no swap was ever proposed: the property holds of nothing")
	}
	t.Logf("%d swaps proposed", swaps)
}

// exchange makes OUT a standby and IN a voter; their disks and links are what
// they were.
func (g *given) exchange(out, in string) {
	for i := range g.Hosts {
		h := &g.Hosts[i]
		switch h.Name {
		case out:
			h.Votes, h.Member = false, false
		case in:
			h.Votes, h.Member = true, true
		}
	}
	move(&g.fleet.Voters, &g.fleet.Standbys, out)
	move(&g.fleet.Standbys, &g.fleet.Voters, in)
	// The windows stand by name; verdicts are sorted by it.
	slices.Sort(g.fleet.Voters)
}

func move(from, to *[]string, name string) {
	*from = slices.DeleteFunc(slices.Clone(*from), func(n string) bool { return n == name })
	*to = append(slices.Clone(*to), name)
}
