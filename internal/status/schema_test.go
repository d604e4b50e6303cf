package status_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/status"
)

var update = flag.Bool("update", false, "write the golden files")

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join("schemas", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, raw []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

var at = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// documents are one value of each document with every field set, so that a
// field that is added shows up in the golden file and needs the schema's word.
func documents() map[string]any {
	reason := []status.Reason{{Code: "NotReady", Sentence: "n1 is not Ready", Node: "n1"}}
	steps := []status.StepTime{{Step: "begin", At: at}}
	const id = fleet.SwapID("20261129T120000Z-n1-n4")
	measure := fitness.Measure{Kind: fitness.ConnectP99, Peer: "n2", Lower: 0.6, Upper: 0.6, Open: true, Limit: 0.5, Margin: 1.2, Samples: 100, From: at, To: at, Beyond: 40, SpreadMS: 1200000}
	const big = fleet.MemberID(0xf0e1d2c3b4a59687) // beyond 2^53
	swap := &status.Swap{
		ID: id, Out: "n1", In: "n4", Step: "promote", StartedAt: at, StepSince: at, Deadline: at, Manual: true, Snapshot: "s",
		AskedAgain: 1, FailingSince: at, Reasons: reason, Cause: reason, Steps: steps,
	}
	return map[string]any{
		"fleet-health": heartbeat.Document{
			Protocol: heartbeat.Protocol, At: at, Interval: 60, Healthy: true, Reasons: []string{"etcd has 4 voters, 3 are wanted"}, Unread: []string{"status"}, More: 2,
			Checks:       []heartbeat.Check{{Name: "voters", OK: true, Reason: "etcd has 4 voters, 3 are wanted", Since: at}},
			NodePressure: []heartbeat.Pressure{{Node: "n1", Conditions: []string{"DiskPressure"}}},
			NotReady:     []heartbeat.NotReady{{Name: "n1", Role: fleet.RoleServer, Since: at, Level: fleet.LevelEtcdOnly, RoleSwap: true, Voter: true}},
			RoleSwap:     swap,
			Voters:       &heartbeat.Voters{Count: 4, Target: 3, By: heartbeat.ByMembers, Up: 3, Down: []string{"n2"}, Tolerance: 1, EvenSince: at, NoToleranceSince: at},
			Carried:      &heartbeat.Carried{EvenSince: at, NoToleranceSince: at, NotReady: []heartbeat.Unready{{Name: "n1", Since: at}}},
		},
		"level": status.Level{
			Protocol: status.Protocol, Node: "n1", Enabled: true, Level: fleet.LevelControlPlane, Runs: fleet.LevelFull, Label: "control-plane",
			Memory: &status.LevelMemory{SomeAvg10: new(1.5), SomeAvg60: new(2.5), FullAvg10: new(0.5), FullAvg60: new(0.25), AvailableBytes: 1, TotalBytes: 2, Short: true, Plenty: true, Reasons: reason},
			Last:   &status.Regrade{From: fleet.LevelFull, To: fleet.LevelControlPlane, Phase: fleet.PhaseDone, By: "hand", Code: "PodsStay", Message: "m", Began: at, Ended: at, Wait: "w", Why: "y"},
			Steps:  []status.LevelStep{{To: fleet.LevelEtcdOnly, Open: true, Reasons: reason}}, Problem: "p",
		},
		"alert": alert.Message{
			Protocol: alert.Protocol, ID: "alert-server_not_ready-n1-20261129T120000Z-1", Event: alert.Began, Kind: alert.ServerNotReady, Subject: "n1", Severity: alert.Critical,
			Title: "regrade: server n1 is not Ready", Sentence: "The server n1 has not been Ready.", Since: at, At: at,
		},
		"status": status.Status{
			Protocol: status.Protocol, At: at, Controller: "uid", DryRun: true, Target: 3,
			Swap: swap,
			LastSwap: &status.LastSwap{
				ID: id, Out: "n1", In: "n4", Outcome: fleet.OutcomeRolledBack, Manual: true, EndedAt: at, Reasons: reason,
				OutgoingPending: true, IncomingPending: true, Snapshot: "s", Steps: steps,
			},
			Request: &status.Request{Protocol: status.Protocol, Out: "n1", In: "n4", At: at},
			Dropped: &status.Dropped{Out: "n1", In: "n9", Asked: at, At: at, Reasons: reason},
			Pause:   &status.Pause{Protocol: status.Protocol, At: at, Reason: "a new switch"},
			Next: status.Next{
				State: "promote", Action: "order", Node: "n4", Code: "PromoteOrdered", Sentence: "n4 is asked to join",
				Facts: []status.Fact{{Name: "voters", Value: "3"}}, Waits: reason,
			},
			Hosts: []status.Host{{
				Name: "n1", Role: fleet.RoleServer, Level: fleet.LevelFull, Ready: true, Voter: true, Learner: true, MemberID: big,
				Eligible: true, Pinned: true, Fresh: true, Members: []fleet.MemberID{big}, Reasons: reason,
			}},
			OtherNodes: 7, History: []status.PastSwap{{ID: id, Out: "n1", In: "n4", Manual: true, Outcome: fleet.OutcomeCompleted, EndedAt: at}},
			Verdicts: []fitness.Verdict{{
				Node: "n1", Votes: true, Fitness: fitness.Unfit, BadLinks: 2, Seen: 1, LastingLinks: 1, Part: fitness.Cause, Margin: 1.2, Link: fitness.Wired,
				Samples: 100, From: at, To: at, Members: []fleet.MemberID{big}, Measures: []fitness.Measure{measure},
				Reasons: []fitness.Reason{{Code: "LinkSlow", Sentence: "n1 is slow", Weight: fitness.Ground, Lasting: true, Peer: "n2", Measure: &measure}},
			}},
			Automatic: &status.Automatic{Out: "n1", In: "n4", Sentence: "n1 would be swapped for n4", Reasons: reason},
			Pending:   []string{"n2"}, EvenSince: at, HistoryLost: at, CooldownUntil: at,
			Backoff: []status.Backoff{{Out: "n1", In: "n4", Count: 2, Until: at}},
		},
		"request": status.Request{Protocol: status.Protocol, Out: "n1", In: "n4", At: at},
		"pause":   status.Pause{Protocol: status.Protocol, At: at, Reason: "a new switch"},
		"report": status.Report{
			Protocol: status.Protocol, Swap: id, Step: fleet.StepPromote, Phase: fleet.PhaseRunning, Code: "Waits", Message: "waits for etcd",
			StartedAt: at, Stopped: true, Snapshot: "s", Role: fleet.RoleServer, Level: fleet.LevelEtcdOnly, Leaving: true,
			At: at, SkewMS: -120, BootID: "b", Counter: 7, ClusterID: big, MemberID: big, K3sVersion: "v1.34.2+k3s1",
			Etcd: &status.EtcdView{
				Linearizable: true, ClusterID: big, Leader: big, Alarms: []string{"NOSPACE"}, Version: "3.6.6", AppliedIndex: 9, Error: "e",
				Members: []status.Member{{ID: big, Name: "n1-0a1b2c3d", PeerURLs: []string{"https://10.0.0.1:2380"}, ClientURLs: []string{"https://10.0.0.1:2379"}, Learner: true}},
			},
			Preflight: &status.Preflight{OK: true, Problems: []status.Problem{{Code: "NotStaged", Sentence: "no server.yaml"}}},
			AsAgent:   &status.Preflight{OK: true, Problems: []status.Problem{{Code: "AgentNotStaged", Sentence: "no token"}}},
			Standbys:  []status.Dial{{Node: "n4", OK: true, Error: "e"}},
			Regrade: &status.Regrade{From: fleet.LevelFull, To: fleet.LevelControlPlane, Phase: fleet.PhaseDone, By: "pressure", Code: "PodsStay",
				Message: "1 pods stay", Began: at, Ended: at, Wait: "InCooldown", Why: "w"},
		},
		"record": status.Record{
			Protocol: status.Protocol, Prefix: fleet.DefaultPrefix, ID: id, Out: "n1", In: "n4", Manual: true, Started: at, ClusterID: big,
			Voters:    []status.RecordVoter{{Node: "n1", ID: big, Name: "n1-0a1b2c3d"}},
			OutMember: big, InMember: big, Snapshot: "s",
		},
	}
}

func TestDocumentsAreAsPublished(t *testing.T) {
	for name, doc := range documents() {
		t.Run(name, func(t *testing.T) {
			if field := zero(reflect.ValueOf(doc), name); field != "" {
				t.Fatalf("%s is not set: the golden file would not show it", field)
			}
			got, err := json.MarshalIndent(doc, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			golden := filepath.Join("testdata", name+".json")
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
			if err := valid(t, schema(t, name), want); err != nil {
				t.Error(err)
			}
		})
	}
}

// The barest document that a writer makes is valid, too: what is absent, and
// what is null, is the schema's business.
func TestTheBarestDocumentsAreValid(t *testing.T) {
	for name, doc := range map[string]any{
		"status":       status.Status{Protocol: status.Protocol, At: at, Target: 3, Hosts: []status.Host{}},
		"report":       status.Report{Protocol: status.Protocol, At: at, BootID: "b", Etcd: &status.EtcdView{}},
		"request":      status.Request{Protocol: status.Protocol, Out: "n1", In: "n4", At: at},
		"fleet-health": heartbeat.Build(heartbeat.Observation{NodesProblem: "x"}, heartbeat.Memory{}, at, heartbeat.Settings{}),
		"alert":        alert.Would(alert.Condition{Kind: alert.HeartbeatStale, Severity: alert.Critical}, time.Time{}),
	} {
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := valid(t, schema(t, name), raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSchemasRefuseWhatParsersRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		schema, raw string
		parse       func([]byte) error
	}{
		"a status of another protocol":  {"status", `{"protocol":2,"at":"2026-11-29T12:00:00Z","dry_run":true,"target":3,"swap":null,"last_swap":null,"request":null,"next":{"state":"","code":"","sentence":""},"hosts":[]}`, parseStatus},
		"a status that is a list":       {"status", `[]`, parseStatus},
		"a request without in":          {"request", `{"out":"a","at":"2026-11-29T12:00:00Z"}`, parseRequest},
		"a request with an empty node":  {"request", `{"out":"a","in":"","at":"2026-11-29T12:00:00Z"}`, parseRequest},
		"a request without a time":      {"request", `{"out":"a","in":"b"}`, parseRequest},
		"a pause without a time":        {"pause", `{"protocol":1}`, parsePause},
		"a pause of another protocol":   {"pause", `{"protocol":2,"at":"2026-11-29T12:00:00Z"}`, parsePause},
		"a health without a time":       {"fleet-health", `{"protocol":1,"healthy":true,"reasons":[],"node_pressure":[],"not_ready_nodes":[],"role_swap":null,"etcd_voters":null}`, parseHealth},
		"a health of another protocol":  {"fleet-health", `{"protocol":2,"at":"2026-11-29T12:00:00Z","healthy":true,"reasons":[],"node_pressure":[],"not_ready_nodes":[],"role_swap":null,"etcd_voters":null}`, parseHealth},
		"a health with less than none":  {"fleet-health", `{"protocol":1,"at":"2026-11-29T12:00:00Z","healthy":true,"reasons":[],"node_pressure":[],"not_ready_nodes":[],"role_swap":null,"etcd_voters":{"count":1,"target":3,"counted_by":"members","up":-1,"tolerance":0}}`, parseHealth},
		"a report without a boot id":    {"report", `{"protocol":1,"at":"2026-11-29T12:00:00Z","counter":1}`, parseReport},
		"a report of a strange phase":   {"report", `{"protocol":1,"at":"2026-11-29T12:00:00Z","boot_id":"b","counter":1,"phase":"asleep"}`, parseReport},
		"a report with a bad member id": {"report", `{"protocol":1,"at":"2026-11-29T12:00:00Z","boot_id":"b","counter":1,"member_id":"xyz"}`, parseReport},
		"a record without voters":       {"record", `{"protocol":1,"prefix":"a/","id":"20261129T120000Z-a-b","out":"a","in":"b","started_at":"2026-11-29T12:00:00Z","cluster_id":"1","out_member":"1"}`, parseRecord},
	} {
		if err := valid(t, schema(t, test.schema), []byte(test.raw)); err == nil {
			t.Errorf("%s: the schema takes it", name)
		}
		if err := test.parse([]byte(test.raw)); err == nil {
			t.Errorf("%s: the parser takes it", name)
		}
	}
}

func parseHealth(raw []byte) error  { _, err := heartbeat.Parse(raw); return err }
func parseStatus(raw []byte) error  { _, err := status.ParseStatus(raw); return err }
func parseRequest(raw []byte) error { _, err := status.ParseRequest(raw); return err }
func parsePause(raw []byte) error   { _, err := status.ParsePause(raw); return err }
func parseReport(raw []byte) error  { _, err := status.ParseReport(raw); return err }
func parseRecord(raw []byte) error  { _, err := status.ParseRecord(string(raw)); return err }

// Every field of a type is in its schema and the other way round.
func TestSchemasNameEveryField(t *testing.T) {
	for name, doc := range documents() {
		raw, err := os.ReadFile(filepath.Join("schemas", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		compare(t, name, reflect.TypeOf(doc), s, s)
	}
}

func compare(t *testing.T, path string, typ reflect.Type, s, root map[string]any) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	s = resolve(s, root)
	switch {
	case typ.Kind() == reflect.Slice:
		items, _ := s["items"].(map[string]any)
		if items == nil {
			t.Errorf("%s is a list in Go and not in the schema", path)
			return
		}
		compare(t, path+"[]", typ.Elem(), items, root)
	case typ.Kind() == reflect.Struct && typ != reflect.TypeFor[time.Time]():
		props, _ := s["properties"].(map[string]any)
		var have, want []string
		for name := range props {
			have = append(have, name)
		}
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			want = append(want, name)
			if p, ok := props[name].(map[string]any); ok {
				compare(t, path+"."+name, f.Type, p, root)
			}
		}
		slices.Sort(have)
		slices.Sort(want)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: type and schema differ: %s", path, diff)
		}
	}
}

func resolve(s, root map[string]any) map[string]any {
	if either, ok := s["anyOf"].([]any); ok {
		s, _ = either[0].(map[string]any)
	}
	if ref, ok := s["$ref"].(string); ok {
		defs, _ := root["$defs"].(map[string]any)
		s, _ = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	return s
}

// zero names a field that has no value, or is empty when all have one.
func zero(v reflect.Value, path string) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return path
		}
		return zero(v.Elem(), path)
	case reflect.Slice:
		if v.Len() == 0 {
			return path
		}
		return zero(v.Index(0), path+"[0]")
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			break
		}
		for f, x := range v.Fields() {
			if missing := zero(x, path+"."+f.Name); missing != "" {
				return missing
			}
		}
		return ""
	}
	if v.IsZero() {
		return path
	}
	return ""
}
