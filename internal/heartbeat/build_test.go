package heartbeat_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/status"
)

var update = flag.Bool("update", false, "write the golden file")

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func settings() heartbeat.Settings {
	return heartbeat.Settings{Checks: heartbeat.DefaultChecks(), Target: 3, StatusLife: heartbeat.DefaultStatusLife, Unschedulable: 3 * time.Minute}
}

// voter is a server that votes and is Ready.
func voter(name string) heartbeat.Node {
	return heartbeat.Node{
		Name: name, Ready: true, EtcdIsVoter: "True",
		Labels: map[string]string{fleet.LabelEtcd: "true", fleet.LabelControlPlane: "true"},
	}
}

func agent(name string) heartbeat.Node {
	return heartbeat.Node{Name: name, Ready: true}
}

// fleetOf is three voters and two agents, as a controller has just seen them.
func fleetOf() heartbeat.Observation {
	o := heartbeat.Observation{Nodes: []heartbeat.Node{voter("n1"), voter("n2"), voter("n3"), agent("n4"), agent("n5")}}
	o.Status = &status.Status{Protocol: 1, At: ago(10 * time.Second), Target: 3}
	for _, n := range o.Nodes {
		o.Status.Hosts = append(o.Status.Hosts, status.Host{Name: n.Name, Ready: true, Fresh: true, Voter: n.EtcdIsVoter != ""})
	}
	return o
}

// swapping puts the swap of n1 for n4 on record.
func swapping(o *heartbeat.Observation, deadline time.Time) {
	o.Status.Swap = &status.Swap{ID: "20261130T115000Z-n1-n4", Out: "n1", In: "n4", Step: "step-down", StartedAt: ago(10 * time.Minute), StepSince: ago(time.Minute), Deadline: deadline}
}

type built struct {
	Sentence string
	Document heartbeat.Document
}

// cases are told as a person reads them in testdata/documents.json.
func cases() []built {
	var all []built
	add := func(sentence string, memory heartbeat.Memory, change func(*heartbeat.Observation, *heartbeat.Settings)) {
		o, s := fleetOf(), settings()
		change(&o, &s)
		all = append(all, built{sentence, heartbeat.Build(o, memory, now, s)})
	}
	none := heartbeat.Memory{}
	add("a healthy fleet is vouched for", none, func(*heartbeat.Observation, *heartbeat.Settings) {})
	add("a swap within its bound is told, and four voters are as they should be (R-F-01, R-I-32)", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		swapping(o, now.Add(time.Minute))
		o.Nodes[3], o.Status.Hosts[3].Voter = voter("n4"), true
		o.Nodes[0].Ready = false
		o.Nodes[0].Labels[fleet.DefaultKeys().Level()] = "etcd-only"
	})
	add("a swap is told whatever the health (R-F-01)", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		swapping(o, ago(time.Second))
		o.Nodes[3], o.Status.Hosts[3].Voter = voter("n4"), true
	})
	add("a server and an agent that are not Ready are listed, the one of a swap is marked (R-F-03)", heartbeat.Memory{NotReady: map[string]time.Time{"n1": ago(20 * time.Minute), "n5": now.Add(time.Hour)}}, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		swapping(o, now.Add(time.Minute))
		for _, i := range []int{0, 1, 4} {
			o.Nodes[i].Ready = false
		}
	})
	add("a Node that carries the mark of a swap is marked while the status cannot be read", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Status, o.StatusProblem = nil, "status: protocol 2, this program speaks 1"
		o.Nodes[0].Ready, o.Nodes[0].Swap = false, true
	})
	add("an even number is even since the document before said so (R-F-02, R-F-07)", heartbeat.Memory{EvenSince: ago(time.Hour)}, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Nodes[2].EtcdIsVoter, o.Status.Hosts[2].Voter = "", false
	})
	add("an even number of which nothing is remembered is even since now", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Nodes[2].EtcdIsVoter, o.Status.Hosts[2].Voter = "", false
	})
	add("a time from the future is no earlier than now: a clock has gone back (rule 22)", heartbeat.Memory{EvenSince: now.Add(time.Hour)}, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Nodes[2].EtcdIsVoter, o.Status.Hosts[2].Voter = "", false
	})
	add("an odd number ends what was even", heartbeat.Memory{EvenSince: ago(time.Hour)}, func(*heartbeat.Observation, *heartbeat.Settings) {})
	add("the member lists count, not the condition that k3s leaves True for a dead voter", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Nodes[2].Ready, o.Status.Hosts[2].Voter, o.Status.Hosts[2].Fresh = false, false, false
	})
	add("without a controller label and condition count together (R-F-02)", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Status = nil
		o.Nodes[3].EtcdIsVoter = "True" // no label
		o.Nodes[2].EtcdIsVoter = "False"
	})
	add("an old status is not believed about the voters", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Status.At = ago(time.Hour)
		o.Status.Hosts[0].Voter = false
	})
	add("a status from far ahead is not believed about the voters either (rule 22)", none, func(o *heartbeat.Observation, s *heartbeat.Settings) {
		s.Checks = append(s.Checks, heartbeat.CheckController)
		o.Status.At = now.Add(time.Hour)
		o.Status.Hosts[0].Voter = false
	})
	add("a server held at a level counts as up while its daemon speaks (R-X-09)", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Nodes[1].Ready = false
		o.Nodes[1].Labels[fleet.DefaultKeys().Level()] = "etcd-only"
	})
	add("a silent daemon is no voter that is up (rule 24)", heartbeat.Memory{NoToleranceSince: ago(time.Minute)}, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Status.Hosts[1].Fresh = false
	})
	add("an API that does not answer leaves unknown what it would say, and carries the times on", heartbeat.Memory{EvenSince: ago(time.Hour), NoToleranceSince: ago(time.Hour), Failing: map[string]time.Time{"api": ago(time.Minute)}, NotReady: map[string]time.Time{"n2": ago(time.Minute), "n4": now.Add(time.Hour)}}, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		*o = heartbeat.Observation{NodesProblem: "list nodes: context deadline exceeded", StatusProblem: "get ConfigMap: context deadline exceeded"}
	})
	add("pressure does not make a fleet unhealthy", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		o.Nodes[4].Pressure = []string{"PIDPressure", "MemoryPressure"}
	})
	add("no node is Ready, though each is listed as NotReady", none, func(o *heartbeat.Observation, _ *heartbeat.Settings) {
		for i := range o.Nodes {
			o.Nodes[i].Ready = false
		}
	})
	add("a cluster without etcd has no voters, and is not even", none, func(o *heartbeat.Observation, s *heartbeat.Settings) {
		o.Status, s.Checks = nil, []string{"api", "nodes"}
		for i := range o.Nodes {
			o.Nodes[i] = agent(o.Nodes[i].Name)
		}
	})
	add("a controller that has not published lately is a reason where that is asked for", none, func(o *heartbeat.Observation, s *heartbeat.Settings) {
		s.Checks = append(s.Checks, heartbeat.CheckController)
		o.Status.At = ago(6 * time.Minute)
	})
	runners := func(o *heartbeat.Observation, s *heartbeat.Settings) {
		s.Checks = append(s.Checks, heartbeat.CheckRunners, heartbeat.CheckScaleSets, heartbeat.CheckRunnerPods)
		o.Runners = &heartbeat.Runners{ControllerFound: true, Controllers: 1, ScaleSets: []heartbeat.ScaleSet{{Name: "arc-runners-a/small", Found: true, Listening: true}}}
	}
	add("runners that are there and listen are vouched for", none, runners)
	add("each thing that is wrong with the runners is a reason", none, func(o *heartbeat.Observation, s *heartbeat.Settings) {
		runners(o, s)
		o.Runners.Controllers = 0
		o.Runners.ScaleSets = append(o.Runners.ScaleSets, heartbeat.ScaleSet{Name: "arc-runners-a/big"}, heartbeat.ScaleSet{Name: "arc-runners-b/small", Found: true}, heartbeat.ScaleSet{Name: "arc-runners-c/small", Problem: "forbidden"})
		o.Runners.Unschedulable = []heartbeat.Pod{{Name: "arc-runners-a/x", Since: ago(3 * time.Minute)}, {Name: "arc-runners-a/y", Since: ago(time.Minute)}, {Name: "arc-runners-a/z", Since: now.Add(time.Hour)}}
	})
	add("what cannot be read of the runners does not count as well", none, func(o *heartbeat.Observation, s *heartbeat.Settings) {
		runners(o, s)
		o.Runners = &heartbeat.Runners{ControllerProblem: "forbidden", PodsProblem: "forbidden"}
	})
	add("a runner controller that is not there", none, func(o *heartbeat.Observation, s *heartbeat.Settings) {
		runners(o, s)
		o.Runners.ControllerFound = false
	})
	return all
}

func TestDocumentsAreAsRecorded(t *testing.T) {
	got, err := json.MarshalIndent(cases(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden := filepath.Join("testdata", "documents.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestEveryDocumentIsValid(t *testing.T) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile("../status/schemas/fleet-health.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases() {
		raw, err := c.Document.JSON()
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", c.Sentence, err)
		}
	}
}

// Each reason is there for the check that says so, and no reason is empty.
func TestHealthyIsWhatTheChecksSay(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.Sentence, func(t *testing.T) {
			d := c.Document
			failed := 0
			for _, k := range d.Checks {
				if k.OK != (k.Reason == "") || k.OK != k.Since.IsZero() {
					t.Errorf("%+v", k)
				}
				if !k.OK {
					failed++
				}
			}
			if d.Healthy != (failed == 0) || len(d.Reasons) != failed || slices.Contains(d.Reasons, "") {
				t.Errorf("healthy %v, %q", d.Healthy, d.Reasons)
			}
		})
	}
}

func TestADocumentOutlastsItsWay(t *testing.T) {
	for _, c := range cases() {
		raw, err := c.Document.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := heartbeat.Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", c.Sentence, err)
		}
		if diff := cmp.Diff(c.Document, got); diff != "" {
			t.Errorf("%s: %s", c.Sentence, diff)
		}
	}
}

// R-F-02: whatever lies between, an even number is even since it was first seen, by a
// process that is started anew for each document.
func TestEvenSinceSurvivesARestart(t *testing.T) {
	at, raw := now, []byte(nil)
	tick := func(change func(*heartbeat.Observation)) heartbeat.Document {
		var m heartbeat.Memory
		if raw != nil {
			d, err := heartbeat.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			m = d.Memory()
		}
		o := fleetOf()
		o.Status.At = at
		change(&o)
		d := heartbeat.Build(o, m, at, settings())
		var err error
		if raw, err = d.JSON(); err != nil {
			t.Fatal(err)
		}
		at = at.Add(3 * time.Minute)
		return d
	}
	even := func(o *heartbeat.Observation) { o.Status.Hosts[2].Voter = false }
	blind := func(o *heartbeat.Observation) {
		*o = heartbeat.Observation{NodesProblem: "x", StatusProblem: "x"}
	}
	tick(even)
	tick(blind)
	tick(blind)
	if d := tick(even); !d.Voters.EvenSince.Equal(now) || !d.Voters.NoToleranceSince.Equal(now) {
		t.Errorf("even since %s, no tolerance since %s, want %s", d.Voters.EvenSince, d.Voters.NoToleranceSince, now)
	}
	if d := tick(func(*heartbeat.Observation) {}); !d.Voters.EvenSince.IsZero() || !d.Voters.NoToleranceSince.IsZero() {
		t.Errorf("%+v", d.Voters)
	}
	if d := tick(even); d.Voters.EvenSince.Equal(now) {
		t.Error("even since before it was odd")
	}
}

// A Node is not Ready since a document first said it: not since the time in its
// condition, which is of its host's clock, not since before it was Ready in between; a
// restart and an API that is away lose nothing.
func TestANodeIsNotReadySinceItWasFirstSeenSo(t *testing.T) {
	at, raw := now, []byte(nil)
	tick := func(change func(*heartbeat.Observation)) heartbeat.Document {
		var m heartbeat.Memory
		if raw != nil {
			d, err := heartbeat.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			m = d.Memory()
		}
		o := fleetOf()
		o.Status.At = at
		change(&o)
		d := heartbeat.Build(o, m, at, settings())
		var err error
		if raw, err = d.JSON(); err != nil {
			t.Fatal(err)
		}
		at = at.Add(3 * time.Minute)
		return d
	}
	gone := func(o *heartbeat.Observation) { o.Nodes[1].Ready = false }
	blind := func(o *heartbeat.Observation) {
		*o = heartbeat.Observation{NodesProblem: "x", StatusProblem: "x"}
	}
	tick(gone)
	tick(blind)
	tick(blind)
	if d := tick(gone); len(d.NotReady) != 1 || !d.NotReady[0].Since.Equal(now) || d.Carried != nil {
		t.Errorf("%+v, %+v", d.NotReady, d.Carried)
	}
	tick(func(*heartbeat.Observation) {})
	again := at
	if d := tick(gone); !d.NotReady[0].Since.Equal(again) {
		t.Errorf("not Ready since %s, before it was Ready", d.NotReady[0].Since)
	}
	at = now.Add(-24 * time.Hour) // the clock of the API server has gone back
	if d := tick(gone); d.NotReady[0].Since.After(d.At) {
		t.Errorf("not Ready since %s, at %s", d.NotReady[0].Since, d.At)
	}
}

func TestAFleetOfAThousandIsASmallDocument(t *testing.T) {
	o := fleetOf()
	for i := range 1000 {
		n := agent(fmt.Sprintf("%s-%03d", strings.Repeat("a", 200), i))
		n.Ready, n.Pressure = false, []string{"DiskPressure", "MemoryPressure"}
		o.Nodes = append(o.Nodes, n)
	}
	o.Nodes[1].Ready = false
	d := heartbeat.Build(o, heartbeat.Memory{}, now, settings())
	if len(d.NotReady) != 256 || d.More != 745 || d.NotReady[0].Name != "n2" {
		t.Errorf("%d and %d more, first %s", len(d.NotReady), d.More, d.NotReady[0].Name)
	}
	swapping(&o, now)
	for range 3000 {
		o.Status.Swap.Reasons = append(o.Status.Swap.Reasons, status.Reason{Code: "X", Sentence: strings.Repeat("w", 100)})
	}
	d = heartbeat.Build(o, heartbeat.Memory{}, now, settings())
	raw, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := heartbeat.Parse(raw)
	if err != nil || got.RoleSwap == nil || got.RoleSwap.Deadline.IsZero() || len(got.NotReady) != 256 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

func TestMalformedSettingsAreNamed(t *testing.T) {
	for list, want := range map[string]string{
		"":              "no check",
		" , ":           "no check",
		"api,votes":     `check "votes"`,
		"api,api":       `check "api" is there twice`,
		"api nodes":     `check "api nodes"`,
		"api,nodes,API": `check "API"`,
	} {
		if _, err := heartbeat.ParseChecks(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", list, err)
		}
	}
	if got, err := heartbeat.ParseChecks(" voters, api "); err != nil || !slices.Equal(got, []string{"voters", "api"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, list := range []string{"small", "a/", "/b", "a/b/c", "A/b", "a/b a/b", "a.b/c"} {
		if got, err := heartbeat.ParseScaleSets(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
	if got, err := heartbeat.ParseScaleSets("arc-runners-a/small\n arc-runners-a/big"); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestBadDocumentsAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"":      "empty",
		"[]":    "cannot unmarshal",
		`{}`:    "no time",
		`{"at"`: "unexpected end",
		`{"at":"2026-11-30T12:00:00Z","protocol":2}`:                            "protocol 2",
		`{"at":"2026-11-30T12:00:00Z","interval_seconds":-1}`:                   "an interval below zero",
		`{"at":"2026-11-30T12:00:00Z","not_ready_nodes":[{"name":"a\nb"}]}`:     "not_ready_nodes",
		`{"at":"2026-11-30T12:00:00Z","etcd_voters":{"count":-3}}`:              "below zero",
		`{"at":"` + strings.Repeat("x", heartbeat.MaxDocument) + `"}`:           "are more than",
		`{"at":"2026-11-30T12:00:00Z","role_swap":{"deadline":"in an hour"}}`:   "parsing time",
		`{"at":"2026-11-30T12:00:00Z","not_ready_nodes":[{"since":123}]}`:       "input is not a JSON string",
		`{"at":"2026-11-30T12:00:00Z","etcd_voters":{"even_since":"tomorrow"}}`: "parsing time",
	} {
		if _, err := heartbeat.Parse([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v", raw, err)
		}
	}
}

// Of a document of another program no more is taken than a state of alerts can hold, and of
// that the servers. The break check: read all.
func TestOfVeryManyNodesTheServersAreRead(t *testing.T) {
	d := heartbeat.Document{At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Healthy: true, More: 3}
	for i := range 2000 {
		d.NotReady = append(d.NotReady, heartbeat.NotReady{Name: fmt.Sprintf("a%04d", i), Role: fleet.RoleAgent})
	}
	d.NotReady = append(d.NotReady, heartbeat.NotReady{Name: "s1", Role: fleet.RoleServer})
	raw, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := heartbeat.Parse(raw)
	if err != nil || len(got.NotReady) != 512 || got.More != 3+2001-512 || got.NotReady[0].Name != "s1" || got.NotReady[1].Name != "a0000" {
		t.Errorf("%v: %d Nodes and %d more", err, len(got.NotReady), got.More)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range cases() {
		raw, err := c.Document.JSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"at":"2026-11-30T12:00:00Z","healthy":false,"reasons":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := heartbeat.Parse(raw)
		if err != nil {
			return
		}
		again, err := d.JSON()
		if err != nil {
			return // written out it is larger than what is read, and refused
		}
		if e, err := heartbeat.Parse(again); err != nil || !e.At.Equal(d.At) || e.Healthy != d.Healthy {
			t.Errorf("%v", err)
		}
		d.Memory()
		d.Swapping()
	})
}

func FuzzParseChecks(f *testing.F) {
	f.Add("api,nodes")
	f.Fuzz(func(t *testing.T, list string) {
		got, err := heartbeat.ParseChecks(list)
		if again, e := heartbeat.ParseChecks(strings.Join(got, ",")); err == nil && (e != nil || !slices.Equal(got, again)) {
			t.Errorf("%q: %v", list, e)
		}
	})
}

func FuzzParseScaleSets(f *testing.F) {
	f.Add("a/b c/d")
	f.Fuzz(func(t *testing.T, list string) {
		got, err := heartbeat.ParseScaleSets(list)
		if again, e := heartbeat.ParseScaleSets(strings.Join(got, " ")); err == nil && (e != nil || !slices.Equal(got, again)) {
			t.Errorf("%q: %v", list, e)
		}
	})
}

// For any fleet: what is carried on is never later than now and never invented, and
// voters, tolerance and the two times go together.
func TestNoTimeIsEverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := fleetOf()
		for i := range o.Nodes {
			n := &o.Nodes[i]
			n.Ready = rapid.Bool().Draw(t, "ready")
			n.EtcdIsVoter = rapid.SampledFrom([]string{"", "True", "False", "Unknown"}).Draw(t, "condition")
			o.Status.Hosts[i].Voter, o.Status.Hosts[i].Fresh = rapid.Bool().Draw(t, "voter"), rapid.Bool().Draw(t, "fresh")
		}
		if rapid.Bool().Draw(t, "no status") {
			o.Status = nil
		}
		some := func(what string) time.Time {
			if rapid.Bool().Draw(t, what) {
				return now.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, what)) * time.Second)
			}
			return time.Time{}
		}
		m := heartbeat.Memory{EvenSince: some("even"), NoToleranceSince: some("tolerance")}
		d := heartbeat.Build(o, m, now, settings())
		v := d.Voters
		if v == nil {
			return
		}
		if (v.Count%2 == 0) == v.EvenSince.IsZero() || (v.Tolerance == 0) == v.NoToleranceSince.IsZero() || v.Up > v.Count || v.Tolerance > (v.Count-1)/2 {
			t.Errorf("%+v", *v)
		}
		check := func(got, before time.Time) {
			if got.After(now) || !got.IsZero() && !got.Equal(now) && !got.Equal(before) {
				t.Errorf("%s of %s", got, before)
			}
		}
		check(v.EvenSince, m.EvenSince)
		check(v.NoToleranceSince, m.NoToleranceSince)
	})
}
