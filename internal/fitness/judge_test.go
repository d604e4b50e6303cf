package fitness_test

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
	"github.com/exadev/regrade/internal/level"
)

var update = flag.Bool("update", false, "write the golden verdicts anew")

type fleetOf = fitnesstest.Fleet

// change edits a calm fleet of three voters, n1 to n3, and two standbys, n4 and n5.
type verdictCase struct {
	name   string
	change func(*fleetOf)
	hosts  func([]fitness.Host)
	policy func(*fitness.Policy)
	// want is the fitness of n1 to n5 in letters: f, u, or ? for unknown.
	want  string
	codes []string // "node code" that must be among the reasons
}

func edit(node string, change func(s *fitness.Sample)) func(*fleetOf) {
	return func(f *fleetOf) { f.Edit[node] = func(_ int, s *fitness.Sample) { change(s) } }
}

// slowWays sets the time of a share of the connects between two hosts, each way.
func slowWays(a, b string, took time.Duration, each int) func(*fleetOf) {
	return func(f *fleetOf) {
		for _, x := range [][2]string{{a, b}, {b, a}} {
			before := f.Edit[x[0]]
			f.Edit[x[0]] = func(n int, s *fitness.Sample) {
				if before != nil {
					before(n, s)
				}
				for i := range s.Connect {
					if s.Connect[i].To == x[1] && n%each == 0 {
						s.Connect[i].Took = took
					}
				}
			}
		}
	}
}

func all(changes ...func(*fleetOf)) func(*fleetOf) {
	return func(f *fleetOf) {
		for _, c := range changes {
			c(f)
		}
	}
}

func at(node int, change func(*fitness.Host)) func([]fitness.Host) {
	return func(hs []fitness.Host) { change(&hs[node-1]) }
}

func delay(node string, d time.Duration) func(*fleetOf) {
	return func(f *fleetOf) { f.Delay[node] = d }
}

// disk makes all fsyncs and commits of a voter take so long.
func disk(node string, wal, commit time.Duration) func(*fleetOf) {
	return edit(node, func(s *fitness.Sample) {
		if s.Etcd == nil || s.Etcd.Gains == nil {
			return
		}
		s.Etcd.Gains.WALFsync, s.Etcd.Gains.BackendCommit = fitness.Histogram{}, fitness.Histogram{}
		for range 20 {
			fitnesstest.Observe(&s.Etcd.Gains.WALFsync, fitness.DiskBounds(), wal)
			fitnesstest.Observe(&s.Etcd.Gains.BackendCommit, fitness.DiskBounds(), commit)
		}
	})
}

func memory(node string, change func(*level.Reading)) func(*fleetOf) {
	return edit(node, func(s *fitness.Sample) { change(s.Memory) })
}

func verdictCases() []verdictCase {
	const ms = time.Millisecond
	under := func(d time.Duration) time.Duration { return d - 900*time.Microsecond } // the calm fleet's own connect is up to 0.8 ms
	return []verdictCase{
		{name: "a calm fleet is fit", want: "fffff"},

		// Links (R-185-15, R-185-21, R-185-39): each limit to its boundary.
		{name: "a voter slow on every link is the cause and its victims are fit", change: delay("n1", 620*ms), want: "uffff", codes: []string{"n1 LinkSlow", "n1 RoundTripSlow", "n2 LinkVictim", "n3 LinkVictim"}},
		{name: "a voter just under a tenth of the election timeout stays fit and the standbys that measure it are not", change: delay("n1", under(500*ms)), want: "fffuu", codes: []string{"n4 LinkSlow", "n5 LinkSlow"}},
		{name: "a connect time of exactly a tenth is not above it", change: slowWays("n1", "n2", 500*ms, 1), want: "fffff"},
		{name: "a connect time ten microseconds above it is", change: slowWays("n1", "n2", 500*ms+10*time.Microsecond, 1), want: "uufff", codes: []string{"n1 LinkSlow", "n2 LinkSlow"}},
		{name: "a standby at exactly a twentieth may come in", change: all(slowWays("n4", "n1", 250*ms, 1), slowWays("n5", "n1", 250*ms+10*time.Microsecond, 1)), want: "ffffu", codes: []string{"n5 LinkSlow"}},
		{name: "one slow connect of a hundred is noise", change: slowWays("n1", "n2", 3*time.Second, 100), want: "fffff"},
		{name: "two slow connects of a hundred are a p99", change: slowWays("n1", "n2", 3*time.Second, 50), want: "uufff"},
		{name: "one lost connect of a hundred is one per cent and not more", change: edit("n1", func(s *fitness.Sample) {
			if s.At.Equal(fitnesstest.Began) {
				s.Connect[0].Failed = true
			}
		}), want: "fffff"},
		{name: "two lost connects of a hundred make a link bad", change: edit("n1", func(s *fitness.Sample) {
			if s.At.Sub(fitnesstest.Began) < 30*time.Second {
				s.Connect[0].Failed = true
			}
		}), want: "uufff", codes: []string{"n1 LinkLossy", "n2 LinkLossy"}},
		{name: "three per cent loss on a voter names it", change: func(f *fleetOf) { f.Loss["n2"] = 0.03 }, want: "fufff", codes: []string{"n2 LinkLossy", "n1 LinkVictim"}},
		{name: "a single bad link between two voters leaves two suspects", change: slowWays("n1", "n3", 700*ms, 1), want: "ufuff", codes: []string{"n1 LinkSlow", "n3 LinkSlow"}},
		{name: "of a single bad link the end that the standbys find slow too is the cause", change: all(slowWays("n1", "n3", 700*ms, 1), slowWays("n4", "n3", 700*ms, 1)), want: "ffuff", codes: []string{"n1 LinkVictim", "n3 LinkSlow", "n4 LinkVictim"}},
		{name: "a slow mean of etcd's own round trips is enough", change: edit("n1", func(s *fitness.Sample) {
			for i := range s.Etcd.Gains.RoundTrip {
				s.Etcd.Gains.RoundTrip[i].Histogram = fitness.Histogram{}
				fitnesstest.Observe(&s.Etcd.Gains.RoundTrip[i].Histogram, fitness.PeerBounds(), 501*ms)
			}
		}), want: "uffff", codes: []string{"n1 RoundTripSlow", "n2 LinkVictim", "n3 LinkVictim"}},
		{name: "three voters that are all slow to each other are all unfit", change: all(slowWays("n1", "n2", 700*ms, 1), slowWays("n1", "n3", 700*ms, 1), slowWays("n2", "n3", 700*ms, 1)), want: "uuuff"},

		// Disk (R-185-16).
		{name: "a WAL whose p99 lies between 8 and 16 ms cannot be told to be above 10", change: disk("n1", 12*ms, 20*ms), want: "fffff", codes: []string{"n1 WithinTheBucket"}},
		{name: "a WAL whose p99 lies between 16 and 32 ms is above 10", change: disk("n1", 17*ms, 20*ms), want: "uffff", codes: []string{"n1 WALFsyncSlow"}},
		{name: "a backend commit between 16 and 32 ms cannot be told to be above 25", change: disk("n1", 2*ms, 31*ms), want: "fffff", codes: []string{"n1 WithinTheBucket"}},
		{name: "a backend commit between 32 and 64 ms is above 25", change: disk("n1", 2*ms, 33*ms), want: "uffff", codes: []string{"n1 BackendCommitSlow"}},
		{name: "a limit at the lower edge of the bucket is reached", change: disk("n1", 12*ms, 2*ms), policy: func(p *fitness.Policy) { p.WALFsync = 8 * ms }, want: "uffff", codes: []string{"n1 WALFsyncSlow"}},
		{name: "fsyncs longer than the last bucket are above it", change: disk("n1", 20*time.Second, 2*ms), want: "uffff", codes: []string{"n1 WALFsyncSlow"}},
		{name: "a standby's own fdatasync at the limit may come in", change: func(f *fleetOf) { f.Disk["n4"], f.Disk["n5"] = 4, 4.01 }, want: "ffffu", codes: []string{"n5 FsyncSlow"}},
		{name: "a standby that never measured its disk is unknown", change: edit("n4", func(s *fitness.Sample) {
			s.Fsync, s.Absent = nil, []fitness.Absence{{Reading: fitness.ReadingFsync, Code: "NoSpace"}}
		}), want: "fff?f", codes: []string{"n4 ReadingMissing"}},
		{name: "a standby that voted lately is held to the upper edge", change: func(f *fleetOf) {
			f.Edit["n4"] = func(_ int, s *fitness.Sample) {
				s.Fsync, s.Etcd = nil, &fitness.Etcd{Member: 1, Gains: &fitness.Gains{}}
				for range 10 {
					fitnesstest.Observe(&s.Etcd.Gains.WALFsync, fitness.DiskBounds(), 12*ms)
					fitnesstest.Observe(&s.Etcd.Gains.BackendCommit, fitness.DiskBounds(), 12*ms)
				}
			}
		}, want: "fffuf", codes: []string{"n4 WALFsyncSlow"}},
		{name: "an etcd that hardly writes has no p99", change: edit("n1", func(s *fitness.Sample) {
			if s.At.Sub(fitnesstest.Began) > time.Minute {
				s.Etcd.Gains.WALFsync = fitness.Histogram{}
			} else {
				s.Etcd.Gains.WALFsync = fitness.Histogram{Counts: [17]uint32{5: 15}}
			}
		}), want: "?ffff", codes: []string{"n1 TooFewObservations"}},

		// Memory (R-185-17): the level's own rule.
		{name: "a voter over in half of its window is unfit", change: func(f *fleetOf) {
			f.Edit["n1"] = func(n int, s *fitness.Sample) {
				if n%2 == 0 {
					s.Memory.Pressure.FullAvg60 = 5
				}
			}
		}, want: "uffff", codes: []string{"n1 MemoryOver"}},
		{name: "a voter over in less than half is not", change: func(f *fleetOf) {
			f.Edit["n1"] = func(n int, s *fitness.Sample) {
				if n%2 == 0 && n > 0 {
					s.Memory.Pressure.FullAvg60 = 5
				}
			}
		}, want: "fffff"},
		{name: "a standby may be over in a tenth of its window", change: func(f *fleetOf) {
			for node, most := range map[string]int{"n4": 10, "n5": 11} {
				f.Edit[node] = func(n int, s *fitness.Sample) {
					if n < most {
						s.Memory.Pressure.SomeAvg60 = 20
					}
				}
			}
		}, want: "ffffu", codes: []string{"n5 MemoryOver"}},
		{name: "a standby needs more memory than the quota that the voters name", change: memory("n4", func(m *level.Reading) { m.AvailableBytes = 2 << 30 }), want: "fffuf", codes: []string{"n4 MemoryBelowQuota"}},
		{name: "a KiB more is enough", change: memory("n4", func(m *level.Reading) { m.AvailableBytes = 2<<30 + 1<<10 }), want: "fffff"},
		{name: "a voter needs no memory for a quota", change: memory("n1", func(m *level.Reading) { m.AvailableBytes = 1 << 30 }), want: "fffff"},
		{name: "a kernel without PSI is unknown", change: memory("n4", func(m *level.Reading) { m.Pressure = nil }), want: "fff?f", codes: []string{"n4 ReadingMissing"}},
		{name: "a kernel without PSI whose memory is below the floor is unfit all the same", change: memory("n1", func(m *level.Reading) { m.Pressure, m.AvailableBytes = nil, 1<<20 }), want: "uffff", codes: []string{"n1 MemoryOver"}},

		{name: "a limit of zero is not judged, and nothing is missed that only it asks for", change: all(edit("n1", func(s *fitness.Sample) { s.Etcd, s.Memory = nil, nil }), edit("n4", func(s *fitness.Sample) { s.Fsync, s.Memory = nil, nil })), policy: func(p *fitness.Policy) {
			p.WALFsync, p.BackendCommit, p.Memory, p.QuotaBytes, p.WiFi = 0, 0, level.Limits{}, 0, fitness.WiFiIgnore
		}, want: "fff?f", codes: []string{"n4 ReadingMissing"}}, // the voters' pages still name a quota

		// Wi-Fi (R-185-07).
		{name: "a standby on Wi-Fi is not brought in and a voter on it stays", change: all(wifi("n1"), wifi("n4")), want: "fffuf", codes: []string{"n1 WiFi", "n4 WiFi"}},
		{name: "with ignore Wi-Fi is as good as a wire", change: all(wifi("n1"), wifi("n4")), policy: func(p *fitness.Policy) { p.WiFi = fitness.WiFiIgnore }, want: "fffff"},
		{name: "with unfit a voter on Wi-Fi goes", change: all(wifi("n1"), wifi("n4")), policy: func(p *fitness.Policy) { p.WiFi = fitness.WiFiUnfit }, want: "uffuf"},
		{name: "an interface whose link cannot be seen is fit", change: edit("n4", func(s *fitness.Sample) { s.Link = fitness.Link{Kind: fitness.Unseen, Interface: "wg0"} }), want: "fffff"},

		// Silence, gaps and restarts.
		{name: "a probe that is silent for more than three periods is unknown whatever it said", change: delay("n1", 620*ms), hosts: at(1, func(h *fitness.Host) { h.Age = 46 * time.Second }), want: "?ffff", codes: []string{"n1 ProbeSilent", "n2 LinkVictim"}},
		{name: "three periods are not silence yet", change: delay("n1", 620*ms), hosts: at(1, func(h *fitness.Host) { h.Age = 45 * time.Second }), want: "uffff"},
		{name: "a probe with a period of its own that nobody waits for is told apart from a silent one", hosts: at(1, func(h *fitness.Host) {
			w := *h.Window
			w.Period, h.Window, h.Age = 46*time.Second, &w, 46*time.Second
		}), want: "?ffff", codes: []string{"n1 ProbePeriod"}},
		{name: "an entry that nobody saw change is unknown", hosts: at(1, func(h *fitness.Host) { h.Seen = false }), want: "?ffff", codes: []string{"n1 ProbeNotSeenYet"}},
		{name: "a paused voter is unknown and the links to it say nothing of the others", change: func(f *fleetOf) {
			for _, n := range []string{"n2", "n3"} {
				edit(n, func(s *fitness.Sample) { s.Connect[0].Failed = true })(f)
			}
		}, hosts: at(1, func(h *fitness.Host) { h.Age = time.Hour }), want: "?ffff", codes: []string{"n1 ProbeSilent", "n2 LinkVictim", "n3 LinkVictim"}},
		{name: "a host without an entry is unknown", hosts: at(4, func(h *fitness.Host) { h.Window = nil }), want: "fff?f", codes: []string{"n4 NoProbeEntry"}},
		{name: "a host whose entry is garbage is unknown", hosts: at(4, func(h *fitness.Host) {
			h.Window, h.Problem = nil, &fitness.EntryError{Code: fitness.CodeEntryVersion, Sentence: "version 0, this program reads 1"}
		}), want: "fff?f", codes: []string{"n4 ProbeEntryVersion"}},
		{name: "a window with a sample to go is unknown", hosts: at(1, func(h *fitness.Host) { h.Window.Samples = h.Window.Samples[1:] }), want: "?ffff", codes: []string{"n1 WindowFilling"}},
		{name: "an empty window is unknown", hosts: at(1, func(h *fitness.Host) { h.Window.Samples = nil }), want: "?ffff", codes: []string{"n1 WindowFilling"}},
		{name: "samples from before a long pause of the probe do not count", change: func(f *fleetOf) {
			f.Edit["n4"] = func(n int, s *fitness.Sample) {
				if n > 10 {
					s.At = s.At.Add(24 * time.Hour)
				}
			}
		}, want: "fff?f", codes: []string{"n4 WindowFilling"}},
		{name: "an etcd that began in the window keeps a host from being swapped, either way", change: func(f *fleetOf) {
			for _, node := range []string{"n1", "n4"} {
				f.Edit[node] = func(n int, s *fitness.Sample) {
					if n == 60 {
						s.Restart = fitness.RestartEtcd
					}
				}
			}
		}, want: "uffuf", codes: []string{"n1 RestartedLately", "n4 RestartedLately"}},
		{name: "a probe that began in the window does not", change: func(f *fleetOf) {
			f.Edit["n1"] = func(n int, s *fitness.Sample) {
				if n == 60 {
					s.Restart, s.Etcd.Gains = fitness.RestartProbe, nil
				}
			}
		}, want: "fffff"},
		{name: "an etcd page that is missing most of the time leaves a voter unknown", change: func(f *fleetOf) {
			f.Edit["n1"] = func(n int, s *fitness.Sample) {
				if n < 60 {
					s.Etcd, s.Absent = nil, []fitness.Absence{{Reading: fitness.ReadingEtcd, Code: "Refused"}}
				}
			}
		}, want: "?ffff", codes: []string{"n1 ReadingMissing"}},
		{name: "what is certainly wrong outweighs what is missing beside it", change: func(f *fleetOf) {
			f.Delay["n1"] = 620 * ms
			edit("n1", func(s *fitness.Sample) { s.Memory = nil })(f)
		}, want: "uffff", codes: []string{"n1 LinkSlow", "n1 ReadingMissing"}},
		{name: "leader changes and slow applies are evidence and no reason", change: edit("n1", func(s *fitness.Sample) {
			s.Etcd.Gains.LeaderChanges, s.Etcd.Gains.HeartbeatSendFailures, s.Etcd.Gains.SlowApplies = 3, 100, 100
		}), want: "fffff", codes: []string{"n1 LeaderChanges", "n1 HeartbeatSendFailures", "n1 SlowApplies"}},
	}
}

func wifi(node string) func(*fleetOf) {
	return edit(node, func(s *fitness.Sample) { s.Link = fitness.Link{Kind: fitness.WiFi, Interface: "wlan0"} })
}

func judge(c verdictCase) []fitness.Verdict {
	f := fitnesstest.New(3, 2)
	if c.change != nil {
		c.change(f)
	}
	hosts := f.Hosts()
	if c.hosts != nil {
		c.hosts(hosts)
	}
	p := fitness.DefaultPolicy()
	if c.policy != nil {
		c.policy(&p)
	}
	return fitness.Judge(hosts, p)
}

func TestVerdicts(t *testing.T) {
	for _, c := range verdictCases() {
		t.Run(c.name, func(t *testing.T) {
			vs := judge(c)
			got := ""
			for _, v := range vs {
				got += map[fitness.Fitness]string{fitness.Fit: "f", fitness.Unfit: "u", fitness.Unknown: "?"}[v.Fitness]
			}
			if got != c.want {
				t.Errorf("verdicts %s, want %s\n%s", got, c.want, told(vs))
			}
			for _, want := range c.codes {
				node, code, _ := strings.Cut(want, " ")
				if !slices.ContainsFunc(vs, func(v fitness.Verdict) bool {
					return v.Node == node && slices.ContainsFunc(v.Reasons, func(r fitness.Reason) bool { return r.Code == code })
				}) {
					t.Errorf("no reason %s\n%s", want, told(vs))
				}
			}
		})
	}
}

// told is verdicts as a person reads them.
func told(vs []fitness.Verdict) string {
	var b strings.Builder
	for _, v := range vs {
		fmt.Fprintf(&b, "%s %s margin %.2f", v.Node, v.Fitness, v.Margin)
		if v.Part != "" {
			fmt.Fprintf(&b, " %s of %d bad links, seen by %d", v.Part, v.BadLinks, v.Seen)
		}
		fmt.Fprintln(&b)
		for _, r := range v.Reasons {
			fmt.Fprintf(&b, "  %-6s %s: %s\n", r.Weight, r.Code, r.Sentence)
		}
	}
	return b.String()
}

// The verdicts of every case as they are told, to be read in a review.
func TestVerdictsAreToldAsRecorded(t *testing.T) {
	var b strings.Builder
	for _, c := range verdictCases() {
		fmt.Fprintf(&b, "# %s\n%s\n", c.name, told(judge(c)))
	}
	file := filepath.Join("testdata", "verdicts.txt")
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

// R-185-12: every verdict but a clean fit says why, with numbers.
func TestEveryReasonHasACodeAndASentenceThatNamesItsHost(t *testing.T) {
	for _, c := range verdictCases() {
		for _, v := range judge(c) {
			if v.Fitness != fitness.Fit && len(v.Reasons) == 0 {
				t.Errorf("%s: %s is %s without a reason", c.name, v.Node, v.Fitness)
			}
			for _, r := range v.Reasons {
				if r.Code == "" || !strings.Contains(r.Sentence, v.Node) {
					t.Errorf("%s: %s says %+v", c.name, v.Node, r)
				}
			}
		}
	}
}

// R-185-23: a standby is judged against the voters that would remain: a slow way
// to the cause does not count when the cause goes, and does when another goes.
func TestAStandbyIsJudgedAgainstTheVotersThatWouldRemain(t *testing.T) {
	vs := judge(verdictCase{change: delay("n1", 620*time.Millisecond)})
	n4 := vs[3]
	if f, _, margin := n4.Without("n1"); f != fitness.Fit || margin > 1 {
		t.Errorf("without n1 it is %s, margin %.2f", f, margin)
	}
	if f, rs, margin := n4.Without("n2"); f != fitness.Unfit || margin < 2 {
		t.Errorf("without n2 it is %s, margin %.2f: %+v", f, margin, rs)
	}
}

func drawFleet(t *rapid.T) *fleetOf {
	f := fitnesstest.New(rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "voters"), rapid.IntRange(0, 3).Draw(t, "standbys"))
	f.Size, f.Seed = 10, rapid.Uint64().Draw(t, "seed")
	for _, n := range slices.Concat(f.Voters, f.Standbys) {
		f.Delay[n] = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 130, 260, 600}).Draw(t, "delay")) * time.Millisecond
		f.Loss[n] = rapid.SampledFrom([]float64{0, 0, 0, 0.3}).Draw(t, "loss")
		f.Disk[n] = rapid.SampledFrom([]float64{1, 1, 1, 5, 20}).Draw(t, "disk")
	}
	return f
}

func smallPolicy() fitness.Policy {
	p := fitness.DefaultPolicy()
	p.Size = 10
	return p
}

func TestTheOrderOfTheHostsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := drawFleet(t).Hosts()
		for i := range hosts {
			if rapid.IntRange(0, 5).Draw(t, "silent") == 0 {
				hosts[i].Age = time.Hour
			}
		}
		want := fitness.Judge(hosts, smallPolicy())
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "order")))
		r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		if d := cmp.Diff(want, fitness.Judge(hosts, smallPolicy())); d != "" {
			t.Fatal(d)
		}
	})
}

// A host that is silent is unknown, and never made unfit or fit by anything.
func TestWhoIsSilentIsUnknown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := drawFleet(t).Hosts()
		i := rapid.IntRange(0, len(hosts)-1).Draw(t, "who")
		hosts[i].Age = time.Duration(rapid.Int64Range(int64(45*time.Second)+1, int64(time.Hour)).Draw(t, "age"))
		for _, v := range fitness.Judge(hosts, smallPolicy()) {
			if v.Node == hosts[i].Node && v.Fitness != fitness.Unknown {
				t.Fatalf("%s is %s", v.Node, v.Fitness)
			}
		}
	})
}

// Where some voter is on a bad link, somebody is named: blame is never lost.
func TestOfABadLinkSomebodyIsToBlame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := fitness.Judge(drawFleet(t).Hosts(), smallPolicy())
		bad, blamed := 0, 0
		for _, v := range vs {
			bad += v.BadLinks
			if v.Part == fitness.Cause || v.Part == fitness.Suspect {
				blamed++
			}
			if v.Part == fitness.Victim && len(v.Grounds()) > 0 && slices.ContainsFunc(v.Grounds(), func(r fitness.Reason) bool { return r.Peer != "" }) {
				t.Fatalf("%s is a victim and unfit for a link\n%s", v.Node, told(vs))
			}
		}
		if bad > 0 && blamed == 0 {
			t.Fatal(told(vs))
		}
	})
}

// A verdict is the same from the entry as from the window in memory.
func TestTheEntryCarriesTheVerdict(t *testing.T) {
	for _, c := range verdictCases() {
		f := fitnesstest.New(3, 2)
		if c.change != nil {
			c.change(f)
		}
		hosts := f.Hosts()
		if c.hosts != nil {
			c.hosts(hosts)
		}
		before := fitness.Judge(hosts, fitness.DefaultPolicy())
		for i := range hosts {
			if hosts[i].Window == nil {
				continue
			}
			raw, err := hosts[i].Window.Encode()
			if err != nil {
				t.Fatal(err)
			}
			w, err := fitness.Decode(hosts[i].Node, raw)
			if err != nil {
				t.Fatal(err)
			}
			hosts[i].Window = &w
		}
		if d := cmp.Diff(before, fitness.Judge(hosts, fitness.DefaultPolicy())); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
