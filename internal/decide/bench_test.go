package decide

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// large is a fleet of a thousand Nodes with their probes: 64 eligible, seven of
// them voting, full windows, n1 slow on every link.
func large() (swap.Observation, swap.Policy, []fitness.Host) {
	f := fitnesstest.New(7, 57)
	f.Delay["n1"] = 620 * time.Millisecond
	p := swap.DefaultPolicy()
	p.Target = 7
	o := swap.Observation{Now: now, Self: "c", Status: &status.Status{Protocol: status.Protocol}}
	var members []status.Member
	for i, node := range f.Voters {
		members = append(members, status.Member{
			ID: fitnesstest.Member(node), Name: fmt.Sprintf("%s-%08x", node, i), PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", i+1)},
		})
	}
	var dials []status.Dial
	for _, s := range f.Standbys {
		dials = append(dials, status.Dial{Node: s, OK: true})
	}
	for i := range 1000 {
		h := swap.Host{Name: fmt.Sprintf("n%d", i+1), Fresh: true, Node: swap.Node{Ready: true, Labels: map[string]string{}, Annotations: map[string]string{}}}
		if i < 64 {
			h.Node.Labels[p.Keys.Eligible()] = "true"
			h.Report = &status.Report{Protocol: status.Protocol, Role: fleet.RoleAgent, BootID: "b", K3sVersion: "v1", Preflight: &status.Preflight{OK: true}}
		}
		if i < 7 {
			h.Node.Annotations[fleet.AnnotationEtcdName] = members[i].Name
			h.Report.Role, h.Report.Level, h.Report.MemberID, h.Report.Standbys = fleet.RoleServer, fleet.LevelFull, members[i].ID, dials
			h.Report.AsAgent = &status.Preflight{OK: true}
			h.Report.Etcd = &status.EtcdView{Linearizable: true, ClusterID: 1, Leader: members[0].ID, Members: members, Version: "3.6.14"}
		}
		o.Hosts = append(o.Hosts, h)
	}
	return o, p, f.Hosts()
}

// Figures: verdicts and decision at 1,000 nodes, 64 eligible, full windows
// (design §8: under 5 ms and 10 MB). On a busy machine the processor time is
// what counts.
func BenchmarkVerdictsAndDecision(b *testing.B) {
	o, sp, hosts := large()
	p := DefaultPolicy()
	p.Target = 7
	b.ReportAllocs()
	before := processorTime()
	for b.Loop() {
		d := From(o, sp)
		d.Verdicts = fitness.Judge(hosts, fitness.DefaultPolicy())
		if got := Decide(d, p); got.Pair == nil || got.Pair.Out != "n1" {
			b.Fatal(told(got))
		}
	}
	b.ReportMetric(float64((processorTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

func BenchmarkDecision(b *testing.B) {
	o, sp, hosts := large()
	p := DefaultPolicy()
	p.Target = 7
	d := From(o, sp)
	d.Verdicts = fitness.Judge(hosts, fitness.DefaultPolicy())
	b.ReportAllocs()
	for b.Loop() {
		if got := Decide(d, p); got.Pair == nil {
			b.Fatal(told(got))
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What a swap's observation says reaches the decision, gates and all.
func TestADecisionFromASwapsObservation(t *testing.T) {
	o, sp, hosts := large()
	p := DefaultPolicy()
	p.Target = 7
	decide := func() Decision {
		d := From(o, sp)
		d.Verdicts = fitness.Judge(hosts, fitness.DefaultPolicy())
		return Decide(d, p)
	}
	if d := decide(); d.Pair == nil || d.Pair.Out != "n1" {
		t.Fatal(told(d))
	}
	best := decide().Pair.In
	// The best standby is not staged: the next one comes.
	o.Host(best).Report.Preflight = &status.Preflight{Problems: []status.Problem{{Code: "NotStaged", Sentence: "there is no server configuration"}}}
	if d := decide(); d.Pair == nil || d.Pair.In == best {
		t.Error(told(d))
	}
	o.Host(best).Report.Preflight = &status.Preflight{OK: true}
	// A gate of the fleet holds.
	o.Host("n3").Node.Ready = false
	if d := decide(); d.Pair != nil || d.Code != CodeHeld || d.Reasons[0].Code != swap.CodeNotReady {
		t.Error(told(d))
	}
	o.Host("n3").Node.Ready = true
	// A person's cordon and ours.
	o.Host(best).Node.Unschedulable = true
	if d := decide(); d.Pair == nil || d.Pair.In == best {
		t.Error(told(d))
	}
	// The last swap put n1 in for the best one.
	o.Host(best).Node.Unschedulable = false
	o.Status.LastSwap = &status.LastSwap{Out: best, In: "n1", Outcome: fleet.OutcomeCompleted, EndedAt: now.Add(-time.Hour)}
	if d := decide(); d.Pair == nil || d.Pair.In == best {
		t.Error(told(d))
	}
	o.Status.CooldownUntil = now.Add(time.Minute)
	if d := decide(); d.Pair != nil || d.Reasons[0].Code != CodeCooldown {
		t.Error(told(d))
	}
	o.Status = nil
	if d := decide(); d.Pair != nil || d.Reasons[0].Code != CodeCooldown {
		t.Error(told(d))
	}
	// A voter's list is missing.
	o.Host("n2").Fresh = false
	if d := decide(); d.Pair != nil {
		t.Error(told(d))
	}
}
