package recover_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	. "github.com/exadev/regrade/internal/recover"
)

// nodes draws a node as wild as the API lets one be.
func drawNode(t *rapid.T, name string) Node {
	n := worker(name)
	if rapid.Bool().Draw(t, "server") {
		n = voter(name)
	}
	n.Ready = rapid.SampledFrom([]Ready{ReadyTrue, ReadyFalse, ReadyUnknown, ReadyUnknown, ReadyUnknown, ReadyAbsent, "odd"}).Draw(t, "ready")
	n.Silent = time.Duration(rapid.IntRange(0, 400).Draw(t, "silent")) * time.Hour / 4
	n.Gone = n.Silent + time.Duration(rapid.IntRange(0, 3).Draw(t, "gone"))*24*time.Hour
	if n.Ready != ReadyUnknown {
		n.Silent, n.Gone = 0, 0
	}
	if n.Ready == ReadyFalse {
		n.Speaks = time.Duration(rapid.IntRange(0, 300).Draw(t, "speaks")) * time.Second
	}
	n.Since = now.Add(-time.Duration(rapid.IntRange(-10, 1000).Draw(t, "since")) * time.Hour / 4)
	n.Deleting = rapid.IntRange(0, 9).Draw(t, "deleting") == 0
	n.EtcdIsVoter = rapid.SampledFrom([]string{"", "True", "False", "Unknown"}).Draw(t, "condition")
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{keys.Swap(), keys.Record(), keys.Step(), keys.Cordoned(), "other.example/role-swap", "etcd.k3s.cattle.io/node-name", "x"}), 0, 2, rapid.ID[string]).Draw(t, "annotations") {
		if rapid.Bool().Draw(t, "has") {
			n.Annotations[key] = "v"
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "level") == 0 {
		n.Labels[keys.Level()] = "etcd-only"
	}
	if rapid.Bool().Draw(t, "mark") {
		n.Annotations[mark] = rapid.SampledFrom([]string{"", "soon", FormatMark(now.Add(-1000 * time.Hour)), FormatMark(now)}).Draw(t, "at")
	}
	for _, of := range []SignOf{SignProbe, SignDaemon, SignKubelet} {
		if rapid.IntRange(0, 3).Draw(t, "sign") == 0 {
			n.Signs = append(n.Signs, Sign{Of: of, Still: time.Duration(rapid.IntRange(0, 600).Draw(t, "still")) * time.Second, Moved: rapid.Bool().Draw(t, "moved")})
		}
	}
	n.Taints = append(n.Taints, rapid.SliceOfN(rapid.SampledFrom([]Taint{
		{Key: "a", Effect: "NoSchedule"}, {Key: fleet.TaintOutOfService, Value: "x", Effect: "NoExecute"},
		{Key: fleet.TaintOutOfService, Value: "nodeshutdown", Effect: "NoExecute"},
	}), 0, 2).Draw(t, "taints")...)
	return n
}

func draw(t *rapid.T) (Observation, Policy) {
	o := Observation{Now: now, DateJumped: rapid.Bool().Draw(t, "jumped")}
	names := []string{"me"}
	for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	for _, name := range names {
		o.Nodes = append(o.Nodes, drawNode(t, name))
	}
	if rapid.Bool().Draw(t, "lease") {
		o.Lease = held(rapid.SampledFrom([]string{"", fleet.LeaseHolder, "n1"}).Draw(t, "holder"), rapid.SampledFrom([]string{"", "n0,n2"}).Draw(t, "named"), time.Duration(rapid.IntRange(-1, 30).Draw(t, "renewed"))*time.Minute)
		o.LeaseUnchanged = time.Duration(rapid.IntRange(0, 1800).Draw(t, "unchanged")) * time.Second
	}
	if rapid.IntRange(0, 9).Draw(t, "unread") == 0 {
		o.LeaseProblem = "503"
	}
	o.Probed = rapid.IntRange(0, 3).Draw(t, "probed") > 0
	if rapid.IntRange(0, 9).Draw(t, "signs unread") == 0 {
		o.SignsProblem = "503"
	}
	for _, name := range names {
		if !o.Probed || !rapid.Bool().Draw(t, "witness") {
			continue
		}
		w := Witness{Node: name, Live: rapid.Bool().Draw(t, "live"), Changed: rapid.Bool().Draw(t, "changed"), Period: 15 * time.Second, Written: time.Duration(rapid.IntRange(0, 400).Draw(t, "written")) * time.Second}
		for _, to := range names {
			if f := rapid.SliceOfN(rapid.SampledFrom([]Outcome{Unanswered, Unanswered, Unanswered, Unanswered, Reached, Refused, Untold}), 0, 3).Draw(t, "connects"); len(f) > 0 {
				w.Ways = append(w.Ways, Way{To: to, Connects: f, Answered: rapid.IntRange(0, 4).Draw(t, "answered") > 0})
			}
		}
		o.Witnesses = append(o.Witnesses, w)
	}
	p := DefaultPolicy()
	p.Self = "me"
	p.Evidence = rapid.Bool().Draw(t, "evidence")
	p.MaxPercent = rapid.SampledFrom([]int{50, 100}).Draw(t, "percent")
	p.Prune = rapid.SampledFrom([]time.Duration{0, time.Hour, 24 * time.Hour}).Draw(t, "prune")
	return o, p
}

// Whatever is observed: whom the taint must never reach, whom it must, whose Node is
// never deleted, and that others' taints are never touched.
func TestWhateverIsObservedNobodyElseIsTainted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, p := draw(t)
		d := Decide(o, p)
		out, more := 0, 0
		for i := range o.Nodes {
			if slices.ContainsFunc(o.Nodes[i].Taints, func(x Taint) bool { return x.Key == fleet.TaintOutOfService }) {
				out++
			}
		}
		for i := range d.Verdicts {
			if d.Verdicts[i].Action == ActTaint {
				more++
			}
		}
		if more > 0 && out+more > max(1, p.MaxPercent*len(o.Nodes)/100) {
			t.Fatalf("%d of %d nodes are out of service, and %d more are tainted", out, len(o.Nodes), more)
		}
		verdicts := map[string]*Verdict{}
		for i := range d.Verdicts {
			v := &d.Verdicts[i]
			verdicts[v.Node] = v
			if len(v.Reasons) == 0 {
				t.Fatalf("%s: no word of why", v.Node)
			}
			if (v.Action == ActNone) != (v.Write == nil) {
				t.Fatalf("%s: %q and %+v", v.Node, v.Action, v.Write)
			}
		}
		for i := range o.Nodes {
			n := &o.Nodes[i]
			v := verdicts[n.Name]
			if v == nil {
				if n.Ready != ReadyTrue {
					t.Fatalf("%s is not Ready and nothing is said of it", n.Name)
				}
				continue
			}
			_, swapping := n.Annotations[keys.Swap()]
			_, recorded := n.Annotations[keys.Record()]
			_, foreign := n.Annotations["other.example/role-swap"]
			_, level := n.Labels[keys.Level()]
			named := (o.Lease.At(now) == lease.Held || o.LeaseUnchanged <= o.Lease.Duration) && slices.Contains(o.Lease.Exempt(o.Lease.RenewTime), n.Name)
			switch v.Action {
			case ActTaint:
				switch {
				case n.Ready != ReadyUnknown:
					t.Fatalf("%s is %q and was tainted", n.Name, n.Ready)
				case n.Silent < p.After:
					t.Fatalf("%s was tainted after %s", n.Name, n.Silent)
				case n.Name == p.Self:
					t.Fatal("the own node was tainted")
				case swapping || recorded || foreign:
					t.Fatalf("%s is of a swap and was tainted", n.Name)
				case level:
					t.Fatalf("%s is at a level and was tainted", n.Name)
				case named || o.LeaseProblem != "":
					t.Fatalf("%s is in the Lease, or may be, and was tainted", n.Name)
				case slices.ContainsFunc(n.Taints, func(x Taint) bool { return x.Key == fleet.TaintOutOfService }):
					t.Fatalf("%s was tainted twice", n.Name)
				}
				if !slices.Equal(v.Write.Taints[:len(n.Taints)], n.Taints) || len(v.Write.Taints) != len(n.Taints)+1 {
					t.Fatalf("%v becomes %v", n.Taints, v.Write.Taints)
				}
				for _, sign := range n.Signs {
					if sign.Still < p.After {
						t.Fatalf("%+v of %s, which was tainted", sign, n.Name)
					}
				}
				if o.SignsProblem != "" {
					t.Fatalf("%s was tainted and nobody knows what goes on there", n.Name)
				}
				if n.Labels[fleet.LabelEtcd] != fleet.True || n.EtcdIsVoter == "False" || !p.Evidence || !o.Probed {
					break
				}
				missed := 0
				for _, w := range o.Witnesses {
					way := (*Way)(nil)
					for k := range w.Ways {
						if w.Ways[k].To == n.Name {
							way = &w.Ways[k]
						}
					}
					if w.Node == n.Name || way == nil || !w.Live || !w.Changed || w.Written >= n.Silent || w.Written > 2*time.Minute {
						continue
					}
					if way.Connects[0] == Reached || way.Connects[0] == Refused {
						t.Fatalf("%s has an answer of %s, which was tainted", w.Node, n.Name)
					}
					if way.Answered && slices.Equal(way.Connects, []Outcome{Unanswered, Unanswered, Unanswered}) {
						missed++
					}
				}
				if missed < 2 {
					t.Fatalf("%s was tainted on the word of %d", n.Name, missed)
				}
			case ActClear:
				if _, marked := n.Annotations[mark]; !marked || n.Ready != ReadyTrue && (n.Ready != ReadyFalse || n.Speaks < p.After) {
					t.Fatalf("%s was cleared", n.Name)
				}
				for _, x := range n.Taints {
					ours := x.Key == fleet.TaintOutOfService && x.Value == "nodeshutdown"
					if slices.Contains(v.Write.Taints, x) == ours {
						t.Fatalf("%v becomes %v", n.Taints, v.Write.Taints)
					}
				}
			case ActPrune:
				_, etcd := n.Labels[fleet.LabelEtcd]
				_, member := n.Annotations["etcd.k3s.cattle.io/node-name"]
				if p.Prune == 0 || etcd || member || swapping || recorded || foreign || level || named || n.Name == p.Self || n.Ready != ReadyUnknown || n.EtcdIsVoter == "True" || !v.OutOfService || n.Silent < p.After || n.Gone < p.Prune || o.SignsProblem != "" {
					t.Fatalf("%+v was deleted", n)
				}
			}
		}
	})
}

// The order of nodes and witnesses does not matter, and an observation that went
// through JSON decides the same: it can become a test.
func TestADecisionIsAFunctionOfTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, p := draw(t)
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var again Observation
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(again.Nodes)
		slices.Reverse(again.Witnesses)
		if diff := cmp.Diff(Decide(o, p), Decide(again, p)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// What Needs leaves unread is never needed: a decision made with it all is the same.
func TestWhatIsNotReadIsNotNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, p := draw(t)
		need := Needs(o.Nodes, p)
		blind := o
		if !need.Signs {
			blind.SignsProblem = "not read"
			blind.Nodes = slices.Clone(o.Nodes)
			for i := range blind.Nodes {
				blind.Nodes[i].Signs = nil
			}
		}
		if !need.Lease {
			blind.Lease, blind.LeaseUnchanged, blind.LeaseProblem = lease.Lease{}, 0, "not read"
		}
		if !need.Probes {
			blind.Witnesses, blind.WitnessProblem = nil, "not read"
		}
		a, b := Decide(o, p), Decide(blind, p)
		for i := range a.Verdicts {
			if a.Verdicts[i].Action != b.Verdicts[i].Action {
				t.Fatalf("%+v, blind %+v", a.Verdicts[i], b.Verdicts[i])
			}
		}
	})
}

func FuzzParseMark(f *testing.F) {
	for _, s := range []string{"2026-11-30T12:00:00Z", "2026-11-30T12:00:00+01:00", "", "yesterday", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseMark(s)
		if err != nil {
			return
		}
		again, err := ParseMark(FormatMark(at))
		if err != nil || !again.Equal(at.Truncate(time.Second)) {
			t.Errorf("%q gives %s, which gives %s, %v", s, at, again, err)
		}
	})
}
