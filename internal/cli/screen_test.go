package cli

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/status"
)

var update = flag.Bool("update", false, "write the golden screens")

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "screen", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

// judged is a fleet of three voters, of which one is slow, and two standbys.
func judged() status.Status {
	m := func(kind fitness.Kind, peer string, lower, upper, limit float64) fitness.Measure {
		return fitness.Measure{Kind: kind, Peer: peer, Lower: lower, Upper: upper, Limit: limit, Margin: lower / limit, Samples: 100}
	}
	voter := func(node string, f fitness.Fitness, connect float64) fitness.Verdict {
		return fitness.Verdict{
			Node: node, Votes: true, Fitness: f, Link: fitness.Wired, Samples: 100, From: noon.Add(-25 * time.Minute), To: noon,
			Measures: []fitness.Measure{
				m(fitness.ConnectP99, "nas-2", connect, connect, 0.5), m(fitness.ConnectP99, "nas-1", 0.0007, 0.0007, 0.5),
				m(fitness.ConnectFailed, "nas-2", 0, 0, 0.01), m(fitness.WALFsyncP99, "", 0.002, 0.004, 0.01), m(fitness.BackendCommitP99, "", 0.008, 0.016, 0.025),
			},
		}
	}
	slow := voter("nas-2", fitness.Unfit, 0.612)
	slow.BadLinks, slow.Part, slow.Seen = 2, fitness.Cause, 1
	slow.Measures[0].Peer = "nas-3"
	slow.Reasons = []fitness.Reason{
		{Code: fitness.CodeSlowLink, Weight: fitness.Ground, Sentence: "nas-2 to nas-3: the p99 of 100 connects is 612 ms, the limit is 500 ms", Peer: "nas-3"},
		{Code: fitness.CodeLeaderChanges, Weight: fitness.Note, Sentence: "nas-2 saw 3 changes of etcd's leader in 25m0s"},
	}
	victim := voter("nas-3", fitness.Fit, 0.61)
	victim.BadLinks, victim.Part = 1, fitness.Victim
	victim.Reasons = []fitness.Reason{{Code: fitness.CodeVictim, Weight: fitness.Note, Sentence: "nas-3 to nas-2 is slow; nas-2 is on more bad links"}}
	standby := fitness.Verdict{
		Node: "mini-4", Fitness: fitness.Fit, Link: fitness.Wired, Samples: 100, From: noon.Add(-25 * time.Minute), To: noon, Margin: 0.6,
		Measures: []fitness.Measure{
			m(fitness.ConnectP99, "nas-1", 0.0009, 0.0009, 0.25), m(fitness.FsyncP99, "", 0.006, 0.006, 0.01),
			{Kind: fitness.MemoryAvailable, Lower: 5 << 30, Upper: 5 << 30, Limit: 2 << 30, Margin: 0.4, Samples: 100},
		},
	}
	silent := fitness.Verdict{Node: "pi-5", Fitness: fitness.Unknown, Reasons: []fitness.Reason{{Code: fitness.CodeProbeSilent, Weight: fitness.Gap, Sentence: "the probe on pi-5 has not reported for 3m0s, three periods are 45s"}}}
	host := func(name string, id fleet.MemberID) status.Host {
		h := status.Host{Name: name, Role: fleet.RoleAgent, Ready: true, Fresh: true, Eligible: true}
		if id != 0 {
			h.Role, h.Level, h.Voter, h.MemberID = fleet.RoleServer, fleet.LevelFull, true, id
		}
		return h
	}
	off := host("pi-5", 0)
	off.Ready, off.Fresh = false, false
	return status.Status{
		Protocol: status.Protocol, At: noon, Target: 3, DryRun: true, OtherNodes: 12,
		Next:      status.Next{Code: "DryRun", Sentence: "nas-2 would be swapped for mini-4; this is a dry run"},
		Automatic: &status.Automatic{Out: "nas-2", In: "mini-4", Sentence: "nas-2 is unfit and on 2 bad links; mini-4 is fit and has the best margin", Reasons: []status.Reason{{Code: "LinkSlow", Sentence: "nas-2 to nas-3: the p99 of 100 connects is 612 ms, the limit is 500 ms"}}},
		Hosts:     []status.Host{host("mini-4", 0), host("nas-1", 0xa1), host("nas-2", 0xa2), host("nas-3", 0xa3), off},
		Verdicts:  []fitness.Verdict{standby, voter("nas-1", fitness.Fit, 0.0008), slow, victim, silent},
		LastSwap:  &status.LastSwap{ID: "20261129T120000Z-nas-3-mini-4", Out: "mini-4", In: "nas-3", Outcome: fleet.OutcomeCompleted, EndedAt: noon.Add(-time.Hour)}, CooldownUntil: noon.Add(5 * time.Minute),
	}
}

// Issue 4: one screen with verdicts, readings, tolerance, and what it would do.
func TestScreens(t *testing.T) {
	swapping := judged()
	swapping.Swap = &status.Swap{ID: "20261130T120000Z-nas-2-mini-4", Out: "nas-2", In: "mini-4", Step: "promote", StepSince: noon, Deadline: noon.Add(time.Minute), Reasons: []status.Reason{{Code: "LearnerPresent", Sentence: "mini-4 is a learner"}}}
	swapping.Pause = &status.Pause{Protocol: 1, At: noon, Reason: "new switch"}
	swapping.Pending, swapping.EvenSince = []string{"nas-9"}, noon
	swapping.HistoryLost = noon.Add(-time.Hour)
	fresh := judged()
	fresh.Verdicts, fresh.Automatic, fresh.LastSwap, fresh.OtherNodes = nil, nil, nil, 0
	fresh.Next = status.Next{Code: "NothingToDo", Sentence: "no swap begins"}
	for name, st := range map[string]status.Status{"a slow voter in a dry run": judged(), "a swap under way": swapping, "no probe has written yet": fresh} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			screen(&b, paint{}, st)
			golden(t, strings.ReplaceAll(name, " ", "-"), b.String())
			if strings.Contains(b.String(), "\x1b") {
				t.Error("a colour away from a terminal")
			}
			var coloured bytes.Buffer
			screen(&coloured, paint{colours: true}, st)
			if len(st.Verdicts) > 0 && !strings.Contains(coloured.String(), string(red)+"unfit"+string(plain)) {
				t.Error("no colour on a terminal")
			}
			bare := coloured.String()
			for _, c := range []colour{red, green, yellow, bold, plain} {
				bare = strings.ReplaceAll(bare, string(c), "")
			}
			if bare != b.String() {
				t.Error("colours move the columns")
			}
			for line := range strings.Lines(b.String()) {
				if n := runes(strings.TrimRight(line, "\n")); n > 130 && !strings.HasPrefix(line, "  ") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

func TestExplanations(t *testing.T) {
	st := judged()
	w := &fitness.Window{Node: "nas-2", Period: 15 * time.Second, Size: 100}
	for i := range 100 {
		took := 5 * time.Millisecond
		if i > 70 {
			took = 612 * time.Millisecond
		}
		g := fitness.Gains{}
		g.WALFsync.Counts[2] = 20
		w.Samples = append(w.Samples, fitness.Sample{
			At: noon.Add(time.Duration(i) * 15 * time.Second), Connect: []fitness.Connect{{To: "nas-3", Took: took, Failed: i == 10}, {To: "nas-1", Took: 700 * time.Microsecond}},
			Memory: &level.Reading{AvailableBytes: 4 << 30, TotalBytes: 8 << 30}, Etcd: &fitness.Etcd{Gains: &g},
		})
	}
	for i, name := range []string{"the cause of a bad link", "its victim", "a silent standby"} {
		t.Run(name, func(t *testing.T) {
			at := []int{2, 3, 4}[i]
			x := Explanation{Verdict: st.Verdicts[at], Host: &st.Hosts[at]}
			window := w
			if i > 0 {
				window = nil
			}
			var b bytes.Buffer
			printExplanation(&b, paint{unicode: true}, st, x, window)
			golden(t, "explain-"+strings.ReplaceAll(name, " ", "-"), b.String())
		})
	}
}

// The tolerance counts only voters that are seen to be well.
func TestToleranceInWords(t *testing.T) {
	voters := func(up, down int) status.Status {
		var st status.Status
		for i := range up + down {
			st.Hosts = append(st.Hosts, status.Host{Voter: true, Ready: i < up, Fresh: i < up})
		}
		return st
	}
	for name, test := range map[string]struct {
		st   status.Status
		want string
		bad  bool
	}{
		"no voter is known":          {status.Status{}, "", false},
		"three of three":             {voters(3, 0), "3 of 3 are well: one can be lost; the loss after that stops all writes", false},
		"five of five":               {voters(5, 0), "5 of 5 are well: 2 can be lost; the loss after that stops all writes", false},
		"two of three":               {voters(2, 1), "2 of 3 are well: none can be spared; the next loss stops all writes", true},
		"four of four, as in a swap": {voters(4, 0), "4 of 4 are well: one can be lost; the loss after that stops all writes", false},
		"one of three":               {voters(1, 2), "1 of 3 are well, fewer than the 2 that a quorum needs: etcd may take no writes", true},
		"an etcd-only voter is NotReady and well": {status.Status{Hosts: []status.Host{
			{Voter: true, Ready: true, Fresh: true}, {Voter: true, Ready: true, Fresh: true}, {Voter: true, Fresh: true, Level: fleet.LevelEtcdOnly},
		}}, "3 of 3 are well: one can be lost; the loss after that stops all writes", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, bad := tolerance(test.st); got != test.want || bad != test.bad {
				t.Errorf("%q, %v", got, bad)
			}
		})
	}
}

func TestSparks(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		width  int
		want   string
	}{
		"nothing":                        {nil, 5, ""},
		"from nothing to the limit":      {[]float64{0, 0.25, 0.5, 1}, 10, "▁▃▅█"},
		"beyond the limit it is full":    {[]float64{7}, 10, "█"},
		"a gap is a blank":               {[]float64{1, math.NaN(), 1}, 10, "█ █"},
		"a place is its highest value":   {[]float64{0, 1, 0, 0}, 2, "█▁"},
		"values below nothing are shown": {[]float64{-1}, 2, "▁"},
	} {
		if got := (paint{unicode: true}).spark(test.values, 1, test.width); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := (paint{}).spark([]float64{0, 1}, 1, 5); got != "_#" {
		t.Errorf("without UTF-8: %q", got)
	}
	if got := (paint{}).spark([]float64{1}, 0, 5); got != "" {
		t.Errorf("without a limit: %q", got)
	}
}
