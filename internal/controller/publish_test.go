package controller_test

import (
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

func voter(name string, id fleet.MemberID, members ...status.Member) swap.Host {
	return swap.Host{Name: name, Fresh: true, Report: &status.Report{
		Role: fleet.RoleServer, MemberID: id, Etcd: &status.EtcdView{Linearizable: true, Members: members},
	}}
}

// Found by a breaker: what a host daemon that does nothing said stood in its report alone.
// The break check: failed and refused steps alone.
func TestTheStatusNamesAHostWhoseDaemonDoesNothing(t *testing.T) { // safety rule 24
	for _, c := range []struct {
		phase fleet.Phase
		code  string
		shown bool
	}{
		{"", "BadJournal", true}, {"", "BadRoleFile", true}, {fleet.PhaseDone, "BadIdentity", true}, {fleet.PhaseRunning, "ForeignCluster", true},
		{fleet.PhaseDone, "LevelUnnoted", true}, {fleet.PhaseFailed, "EtcdNotBack", true}, {fleet.PhaseRefused, "NotServer", true},
		{fleet.PhaseRunning, "Starting", false}, {fleet.PhaseDone, "", false}, {"", "", false}, // what passes is the swap's to say
	} {
		h := voter("a", 1)
		h.Report.Phase, h.Report.Code, h.Report.Message = c.phase, c.code, "words"
		o := swap.Observation{Now: time.Unix(100, 0), Hosts: []swap.Host{h}}
		rs := controller.Compose(nil, &o, swap.Decision{State: swap.Idle, Code: "X"}, swap.DefaultPolicy()).Hosts[0].Reasons
		if c.shown != (len(rs) == 1 && rs[0].Code == c.code && rs[0].Sentence == "words" && rs[0].Node == "a") || !c.shown && len(rs) != 0 {
			t.Errorf("phase %q, code %q: %+v", c.phase, c.code, rs)
		}
	}
}

// R-E2-29, R-E2-30, R-228-35.
func TestTheStatusShowsEveryHost(t *testing.T) {
	list := []status.Member{{ID: 1, Name: "a-00000000"}, {ID: 2, Name: "b-00000000"}, {ID: 3, Name: "c-00000000", Learner: true}}
	o := swap.Observation{
		Now: time.Unix(100, 0), Self: "me", Request: &status.Request{Out: "a", In: "c"},
		Hosts: []swap.Host{
			voter("a", 1, list...), voter("b", 2, list...),
			{Name: "c", Node: swap.Node{Ready: true, Labels: map[string]string{keys.Eligible(): "true"}}, Fresh: true, Report: &status.Report{
				Role: fleet.RoleAgent, Preflight: &status.Preflight{Problems: []status.Problem{{Code: "NotStaged", Sentence: "no server.yaml"}}},
			}},
			{Name: "d", ReportProblem: "no JSON", Node: swap.Node{Labels: map[string]string{keys.Level(): "etcd-only", keys.Pinned(): "true"}}},
			{Name: "agent", Node: swap.Node{Ready: true, Labels: map[string]string{"kubernetes.io/os": "linux"}}},
			{Name: "f", Fresh: true, Report: &status.Report{Role: fleet.RoleAgent, SkewMS: -90_000}},
			{Name: "e", Node: swap.Node{Annotations: map[string]string{keys.Cordoned(): "x"}}},
		},
	}
	p := swap.DefaultPolicy()
	st := controller.Compose(nil, &o, swap.Decision{State: swap.Idle, Code: "X"}, p)
	if len(st.Hosts) != 6 || st.OtherNodes != 1 || st.Request != o.Request || !slices.Equal(st.Pending, []string{"e"}) || st.Controller != "me" {
		t.Fatalf("got %+v", st)
	}
	a, c, d := st.Hosts[0], st.Hosts[2], st.Hosts[3]
	if !a.Voter || a.MemberID != 1 || len(a.Members) != 3 || a.Level != fleet.LevelFull {
		t.Errorf("a: %+v", a)
	}
	if c.Voter || !c.Learner || !c.Eligible || !c.Ready || c.Level != "" || len(c.Reasons) != 1 || c.Reasons[0].Code != "NotStaged" {
		t.Errorf("c: %+v", c)
	}
	if d.Level != fleet.LevelEtcdOnly || !d.Pinned || len(d.Reasons) != 1 || d.Reasons[0].Code != swap.CodeBadReport {
		t.Errorf("d: %+v", d)
	}
	if f := st.Hosts[4]; len(f.Reasons) != 1 || f.Reasons[0].Code != swap.CodeSkew {
		t.Errorf("f: %+v", f)
	}
	// R-F-02: two voters are even, since the first sight of it.
	if !st.EvenSince.Equal(o.Now) {
		t.Errorf("even since %s", st.EvenSince)
	}
	later := o
	later.Now = time.Unix(200, 0)
	if again := controller.Compose(&st, &later, swap.Decision{}, p); !again.EvenSince.Equal(o.Now) || !again.CooldownUntil.Equal(st.CooldownUntil) {
		t.Errorf("even since %s, cooldown until %s", again.EvenSince, again.CooldownUntil)
	}
	later.Hosts = later.Hosts[2:] // nobody tells the members: nothing is known, nothing is forgotten
	if again := controller.Compose(&st, &later, swap.Decision{}, p); !again.EvenSince.Equal(o.Now) {
		t.Errorf("even since %s", again.EvenSince)
	}
	list[2].Learner = false
	odd := o
	odd.Hosts = []swap.Host{voter("a", 1, list...)}
	if again := controller.Compose(&st, &odd, swap.Decision{}, p); !again.EvenSince.IsZero() {
		t.Errorf("odd, and even since %s", again.EvenSince)
	}
	split := o
	split.Hosts = []swap.Host{voter("a", 1, list...), voter("b", 2, list[:1]...)}
	if again := controller.Compose(&st, &split, swap.Decision{}, p); again.Hosts[0].Voter {
		t.Error("a votes by one of two lists that disagree")
	}
}
