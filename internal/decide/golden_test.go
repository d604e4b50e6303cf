package decide

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

var update = flag.Bool("update", false, "write the golden decisions anew")

type decisionCase struct {
	name  string
	given *given
	code  string
	pair  string   // "out in", of Pair
	codes []string // that must be among the reasons
}

func edit(node string, change func(*fitness.Sample)) func(*given) {
	return func(g *given) { g.fleet.Edit[node] = func(_ int, s *fitness.Sample) { change(s) } }
}

func silent(n int) func(*given) {
	return func(g *given) { g.hosts = func(hs []fitness.Host) { hs[n-1].Age = time.Hour } }
}

func link(node string, kind fitness.LinkKind) func(*given) {
	return edit(node, func(s *fitness.Sample) { s.Link = fitness.Link{Kind: kind, Interface: "x0"} })
}

func past(out, in string, ago time.Duration, outcome fleet.Outcome) func(*given) {
	return func(g *given) {
		g.History = append(g.History, PastSwap{Out: out, In: in, Outcome: outcome, EndedAt: g.Now.Add(-ago)})
	}
}

func zones(zs ...string) func(*given) {
	return func(g *given) {
		for i, z := range zs {
			g.Hosts[i].Zone = z
		}
	}
}

func cases() []decisionCase {
	return []decisionCase{
		{name: "a calm fleet is left alone", given: calm(), code: CodeNothing},
		{name: "a slow voter goes for the best standby", given: slowVoter(), code: CodeSwap, pair: "n1 n4"},
		{name: "its victims do not go", given: calm().with(slow("n3")), code: CodeSwap, pair: "n3 n4"},
		{name: "a voter with a slow disk goes", given: calm().with(func(g *given) { g.fleet.Disk["n2"] = 20 }), code: CodeSwap, pair: "n2 n4"},
		{name: "a pinned slow voter stays and no other goes in its place", given: slowVoter().with(func(g *given) { g.host(1).Pinned = true }), code: CodeOutBarred, codes: []string{swap.CodePinned}},
		{name: "a slow voter that is not eligible stays", given: slowVoter().with(func(g *given) { g.host(1).Eligible = false }), code: CodeOutBarred, codes: []string{swap.CodeIneligible}},
		{name: "a slow voter that somebody cordoned stays", given: slowVoter().with(func(g *given) { g.host(1).Cordoned = true }), code: CodeOutBarred, codes: []string{swap.CodeOperatorCordon}},
		{name: "two slow voters have a common cause", given: slowVoter().with(func(g *given) { g.fleet.Disk["n2"] = 20 }), code: CodeCommonCause},
		{name: "two slow voters with max-unfit two: the one on more bad links goes", given: slowVoter().with(func(g *given) { g.fleet.Disk["n2"], g.policy.MaxUnfit = 200, 2 }), code: CodeSwap, pair: "n1 n4"},
		{name: "of a single bad link the cause cannot be told", given: calm().with(func(g *given) {
			for a, b := range map[string]string{"n1": "n2", "n2": "n1"} {
				edit(a, func(s *fitness.Sample) {
					for i := range s.Connect {
						if s.Connect[i].To == b {
							s.Connect[i].Took = time.Second
						}
					}
				})(g)
			}
		}), code: CodeCommonCause},
		{name: "a silent slow voter holds everything", given: slowVoter().with(silent(1)), code: CodeNothing, codes: []string{fitness.CodeProbeSilent}},
		{name: "a silent voter holds the swap of another", given: slowVoter().with(silent(2)), code: CodeHeld, codes: []string{fitness.CodeProbeSilent}},
		{name: "a silent standby does not hold the other", given: slowVoter().with(silent(4)), code: CodeSwap, pair: "n1 n5"},
		{name: "a voter restarted lately holds the swap of another", given: slowVoter().with(func(g *given) {
			g.fleet.Edit["n2"] = func(n int, s *fitness.Sample) {
				if n == 50 {
					s.Restart = fitness.RestartEtcd
				}
			}
		}), code: CodeHeld, codes: []string{fitness.CodeRestarted}},
		{name: "restarts alone swap nobody", given: calm().with(func(g *given) {
			for _, n := range []string{"n1", "n2", "n3"} {
				g.fleet.Edit[n] = func(n int, s *fitness.Sample) {
					if n == 50 {
						s.Restart = fitness.RestartHost
					}
				}
			}
		}), code: CodeNothing, codes: []string{fitness.CodeRestarted}},

		{name: "a voter that was slow for a moment stays until that lasts", given: calm().with(func(g *given) {
			for _, n := range []string{"n2", "n3"} {
				g.fleet.Edit[n] = func(n int, s *fitness.Sample) {
					if n >= 97 {
						s.Connect[0].Took = 700 * time.Millisecond
					}
				}
			}
		}), code: CodeHeld, codes: []string{CodeNotLasting}},

		// Candidates.
		{name: "no standby at all", given: calmOf(3, 0).with(slow("n1")), code: CodeNoCandidate},
		{name: "standbys on Wi-Fi and short of memory may not come", given: slowVoter().with(link("n4", fitness.WiFi), edit("n5", func(s *fitness.Sample) {
			s.Memory = &level.Reading{Pressure: &level.Pressure{}, AvailableBytes: 1 << 30, TotalBytes: 8 << 30}
		})), code: CodeNoCandidate, codes: []string{fitness.CodeWiFi, fitness.CodeBelowQuota}},
		{name: "pinned, cordoned and ineligible standbys may not come", given: calmOf(3, 3).with(slow("n1"), func(g *given) {
			g.host(4).Pinned, g.host(5).Cordoned, g.host(6).Eligible = true, true, false
		}), code: CodeNoCandidate, codes: []string{swap.CodePinned, swap.CodeOperatorCordon}},
		{name: "the standby with the better margin comes", given: slowVoter().with(func(g *given) { g.fleet.Disk["n4"] = 3 }), code: CodeSwap, pair: "n1 n5"},
		{name: "of equal margins wired comes before unseen", given: slowVoter().with(link("n4", fitness.Unseen)), code: CodeSwap, pair: "n1 n5"},
		{name: "unseen with a clearly better margin comes before wired", given: slowVoter().with(link("n4", fitness.Unseen), func(g *given) { g.fleet.Disk["n5"] = 3 }), code: CodeSwap, pair: "n1 n4"},
		{name: "a standby slow to a voter that remains may not come", given: slowVoter().with(func(g *given) {
			edit("n4", func(s *fitness.Sample) { s.Connect[1].Took = 300 * time.Millisecond })(g)
		}), code: CodeSwap, pair: "n1 n5"},
		{name: "a host swapped out within a day does not come back", given: slowVoter().with(past("n4", "n1", 23*time.Hour, fleet.OutcomeCompleted)), code: CodeSwap, pair: "n1 n5"},
		{name: "after a day it may", given: slowVoter().with(past("n4", "n1", 24*time.Hour, fleet.OutcomeCompleted)), code: CodeSwap, pair: "n1 n4"},
		{name: "a newcomer that failed within a day does not come back", given: slowVoter().with(past("n1", "n4", time.Hour, fleet.OutcomeRolledBack)), code: CodeSwap, pair: "n1 n5"},
		{name: "a pair that was abandoned lately is not tried, the next one is", given: slowVoter().with(func(g *given) {
			g.Backoff = []status.Backoff{{Out: "n1", In: "n4", Count: 1, Until: g.Now.Add(time.Minute)}}
		}), code: CodeSwap, pair: "n1 n5"},
		{name: "a standby that is not staged is passed over", given: slowVoter().with(func(g *given) {
			g.Gates = func(p swap.Pair) []status.Reason {
				if p.In == "n4" {
					return []status.Reason{{Code: swap.CodeNotStaged, Node: "n4", Sentence: "n4 has not said whether it can be a server"}}
				}
				return nil
			}
		}), code: CodeSwap, pair: "n1 n5"},
		{name: "a swap never lowers the spread over zones", given: slowVoter().with(zones("a", "b", "c", "b", "a")), code: CodeSwap, pair: "n1 n5"},
		{name: "no standby in the zone that would be left", given: slowVoter().with(zones("a", "b", "c", "b", "c")), code: CodeNoCandidate, codes: []string{CodeZone}},
		{name: "a swap never puts more voters into one zone", given: calmOf(5, 1).with(slow("n3"), zones("a", "a", "b", "b", "c", "a")), code: CodeNoCandidate, codes: []string{CodeZone}},
		{name: "a swap may widen the spread", given: slowVoter().with(zones("a", "a", "b", "c", "a")), code: CodeSwap, pair: "n1 n4"},

		// Restraints.
		{name: "inside the cooldown", given: slowVoter().with(func(g *given) { g.CooldownUntil = g.Now.Add(10 * time.Minute) }), code: CodeHeld, codes: []string{CodeCooldown}},
		{name: "a cooldown that is over", given: slowVoter().with(func(g *given) { g.CooldownUntil = g.Now }), code: CodeSwap, pair: "n1 n4"},
		{name: "a status that is missing starts a cooldown", given: slowVoter().with(func(g *given) { g.StatusMissing = true }), code: CodeHeld, codes: []string{CodeCooldown}},
		{name: "paused", given: slowVoter().with(func(g *given) { why := "moving the rack"; g.Paused = &why }), code: CodeHeld, codes: []string{CodePaused}},
		{name: "a status that was lost less than a day ago counts as enough swaps", given: slowVoter().with(func(g *given) { g.HistoryLost = g.Now.Add(-day + time.Second) }), code: CodeHeld, codes: []string{CodeLost}},
		{name: "a status that was lost a day ago holds nothing any more", given: slowVoter().with(func(g *given) { g.HistoryLost = g.Now.Add(-day) }), code: CodeSwap, pair: "n1 n4"},
		{name: "a status that was lost less than a long dwell ago holds every swap", given: slowVoter().with(func(g *given) { g.HistoryLost, g.policy.Dwell = g.Now.Add(-6*day), 7*day }), code: CodeHeld, codes: []string{CodeLost}},
		{name: "four swaps in a day are enough", given: slowVoter().with(
			past("x", "y", time.Hour, fleet.OutcomeCompleted), past("x", "y", 2*time.Hour, fleet.OutcomeRolledBack),
			past("x", "y", 3*time.Hour, fleet.OutcomeCompleted), past("x", "y", 4*time.Hour, fleet.OutcomeCompleted)), code: CodeHeld, codes: []string{CodeEnough}},
		{name: "manual and abandoned swaps do not count", given: slowVoter().with(
			past("x", "y", time.Hour, fleet.OutcomeCompleted), past("x", "y", 2*time.Hour, fleet.OutcomeAbandoned),
			past("x", "y", 3*time.Hour, fleet.OutcomeCompleted), past("x", "y", 4*time.Hour, fleet.OutcomeCompleted),
			func(g *given) { g.History[0].Manual = true }), code: CodeSwap, pair: "n1 n4"},
		{name: "another swap is under way", given: slowVoter().with(func(g *given) { g.UnderWay = fleet.NewSwapID(now, "n2", "n5") }), code: CodeHeld, codes: []string{swap.CodeOtherSwap}},
		{name: "nobody knows who votes", given: slowVoter().with(func(g *given) { g.VotersKnown = false }), code: CodeHeld, codes: []string{swap.CodeNoLists}},
		{name: "an even number of voters", given: calmOf(4, 2).with(slow("n1"), func(g *given) { g.policy.Target = 3 }), code: CodeHeld, codes: []string{swap.CodeEvenVoters}},
		{name: "more voters than the target", given: calmOf(5, 2).with(slow("n1"), func(g *given) { g.policy.Target = 3 }), code: CodeHeld, codes: []string{swap.CodeVoterCount}},
		{name: "a learner", given: slowVoter().with(func(g *given) { g.host(5).Member = true }), code: CodeHeld, codes: []string{swap.CodeLearner}},
		{name: "gates that hold every swap", given: slowVoter().with(func(g *given) {
			g.Held = []status.Reason{{Code: swap.CodeAlarm, Node: "n2", Sentence: "etcd on n2 reports NOSPACE"}}
		}), code: CodeHeld, codes: []string{swap.CodeAlarm}},
		{name: "a gate of the pair that is not about the candidate", given: slowVoter().with(func(g *given) {
			g.Gates = func(swap.Pair) []status.Reason {
				return []status.Reason{{Code: swap.CodeLeaseHeld, Sentence: "the Lease kube-system/fleet-regrade is held by n2"}}
			}
		}), code: CodeHeld, codes: []string{swap.CodeLeaseHeld}},
		{name: "no headroom below the most servers allowed", given: slowVoter().with(func(g *given) { g.policy.MaxServers = 3 }), code: CodeHeld, codes: []string{CodeNoHeadroom}},
		{name: "with no host marked eligible regrade only reports", given: calm().with(func(g *given) {
			for i := range g.Hosts {
				g.Hosts[i].Eligible = false
			}
		}), code: CodeNoneEligible},
		{name: "a host without a verdict is unknown", given: slowVoter().with(func(g *given) {
			g.Hosts = append(g.Hosts, Host{Name: "n0", Eligible: true})
		}), code: CodeSwap, pair: "n1 n4"},
	}
}

func TestDecisions(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			d := c.given.decide()
			pair := ""
			if d.Pair != nil {
				pair = d.Pair.Out + " " + d.Pair.In
			}
			if d.Code != c.code || pair != c.pair {
				t.Errorf("%s %q, want %s %q\n%s", d.Code, pair, c.code, c.pair, told(d))
			}
			for _, code := range c.codes {
				if !slices.ContainsFunc(d.Reasons, func(r status.Reason) bool { return r.Code == code }) {
					t.Errorf("no reason %s\n%s", code, told(d))
				}
			}
			if d.Pair == nil && d.Code == CodeSwap || d.Pair != nil && len(d.Reasons) > 0 {
				t.Errorf("a pair and reasons against it: %s", told(d))
			}
			for _, r := range d.Reasons {
				if r.Code == "" || r.Sentence == "" {
					t.Errorf("an empty reason %+v", r)
				}
			}
		})
	}
}

func TestDecisionsAreToldAsRecorded(t *testing.T) {
	var b strings.Builder
	for _, c := range cases() {
		fmt.Fprintf(&b, "# %s\n%s\n", c.name, told(c.given.decide()))
	}
	file := filepath.Join("testdata", "decisions.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("run with -update and read the difference:\n%s", d)
	}
}

// R-185-31, R-185-33.
func TestCheckTarget(t *testing.T) {
	for name, tt := range map[string]struct {
		target, eligible, servers int
		want                      []string
	}{
		"three of three eligible":                    {3, 3, 0, nil},
		"an even target":                             {4, 9, 0, []string{swap.CodeTarget}},
		"a target of one":                            {1, 9, 0, []string{swap.CodeTarget}},
		"a target of nothing":                        {0, 9, 0, []string{swap.CodeTarget}},
		"a negative target":                          {-3, 9, 0, []string{swap.CodeTarget}},
		"fewer eligible than the target":             {5, 4, 0, []string{CodeFewEligible}},
		"none eligible only reports":                 {5, 0, 0, nil},
		"one eligible is marked":                     {3, 1, 0, []string{CodeFewEligible}},
		"one place below the most servers":           {3, 3, 4, nil},
		"no place below the most servers":            {3, 3, 3, []string{CodeNoHeadroom}},
		"everything wrong is said at once, in order": {6, 2, 5, []string{swap.CodeTarget, CodeNoHeadroom, CodeFewEligible}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range CheckTarget(tt.target, tt.eligible, tt.servers) {
				got = append(got, r.Code)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// R-185-19, R-X-11: 300 s and 100 samples of 15 s, and it outlasts the window.
func TestTheCooldownOutlastsTheWindow(t *testing.T) {
	got := Cooldown(300*time.Second, fitness.DefaultPeriod, fitness.DefaultSize)
	if want := swap.DefaultPolicy().Cooldown; got != want {
		t.Errorf("%s, the swap's policy says %s", got, want)
	}
	if window := fitness.DefaultSize * fitness.DefaultPeriod; got <= window {
		t.Errorf("%s does not outlast a window of %s", got, window)
	}
}
