package swap

import (
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// The fleet of the tests: n1, n2 and n3 vote, n1 goes out and leads etcd, n4
// comes in. Times are fixed.
var (
	t0   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	keys = fleet.DefaultKeys()
	swID = fleet.NewSwapID(t0, "n1", "n4")
)

const clusterID = fleet.MemberID(0xc1)

func memberID(n int) fleet.MemberID { return fleet.MemberID(0xa0 + n) }

type given struct{ Observation }

func member(n int, learner bool) status.Member {
	return status.Member{
		ID: memberID(n), Name: fmt.Sprintf("n%d-%08x", n, n), Learner: learner,
		PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", n)}, ClientURLs: []string{fmt.Sprintf("https://10.0.0.%d:2379", n)},
	}
}

func etcdView(members ...status.Member) *status.EtcdView {
	return &status.EtcdView{Linearizable: true, ClusterID: clusterID, Leader: memberID(1), Members: members, Version: "3.6.14", AppliedIndex: 100}
}

// calm is a healthy fleet at target three with nothing to do.
func calm() *given {
	g := &given{Observation{Now: t0.Add(time.Hour), Self: "controller-1", Status: &status.Status{Protocol: status.Protocol}}}
	for n := 1; n <= 3; n++ {
		g.Hosts = append(g.Hosts, Host{
			Name: fmt.Sprintf("n%d", n), Fresh: true, PodsRead: true, KubeletChanged: true,
			Node: Node{
				UID: fmt.Sprintf("uid-%d", n), Ready: true, EtcdIsVoter: "True", InternalIP: fmt.Sprintf("10.0.0.%d", n), KubeletVersion: "v1.34.2+k3s1",
				Labels: map[string]string{keys.Eligible(): "true", fleet.LabelEtcd: "true", fleet.LabelControlPlane: "true"},
				Annotations: map[string]string{
					fleet.AnnotationEtcdName: member(n, false).Name, fleet.AnnotationEtcdAddress: fmt.Sprintf("10.0.0.%d", n),
				},
			},
			Report: &status.Report{
				Protocol: status.Protocol, Role: fleet.RoleServer, Level: fleet.LevelFull, BootID: "boot", Counter: 1, K3sVersion: "v1.34.2+k3s1",
				ClusterID: clusterID, MemberID: memberID(n), Etcd: etcdView(member(1, false), member(2, false), member(3, false)),
				Standbys: []status.Dial{{Node: "n4", OK: true}}, AsAgent: &status.Preflight{OK: true},
			},
		})
	}
	g.Hosts = append(g.Hosts, Host{
		Name: "n4", Fresh: true, PodsRead: true, KubeletChanged: true,
		Node: Node{
			UID: "uid-4", Ready: true, InternalIP: "10.0.0.4", KubeletVersion: "v1.34.2+k3s1",
			Labels: map[string]string{keys.Eligible(): "true"}, Annotations: map[string]string{},
		},
		Report: &status.Report{
			Protocol: status.Protocol, Role: fleet.RoleAgent, BootID: "boot", Counter: 1, K3sVersion: "v1.34.2+k3s1",
			Preflight: &status.Preflight{OK: true},
		},
	})
	return g
}

func (g *given) host(n int) *Host { return g.Host(fmt.Sprintf("n%d", n)) }

func (g *given) with(f func(*given)) *given { f(g); return g }

func (g *given) asked() *given {
	g.Request = &status.Request{Out: "n1", In: "n4", At: g.Now.Add(-time.Minute)}
	return g
}

func (g *given) automatic(dryRun bool) *given {
	g.Automatic = &Pair{Out: "n1", In: "n4"}
	_ = dryRun
	return g
}

func record() status.Record {
	r := status.Record{
		Protocol: status.Protocol, Prefix: keys.Prefix(), ID: swID, Out: "n1", In: "n4", Manual: true, Started: t0,
		ClusterID: clusterID, OutMember: memberID(1),
	}
	for n := 1; n <= 3; n++ {
		r.Voters = append(r.Voters, status.RecordVoter{Node: fmt.Sprintf("n%d", n), ID: memberID(n), Name: member(n, false).Name})
	}
	return r
}

func (g *given) leased() *given {
	g.Lease = lease.Lease{
		Exists: true, Holder: fleet.LeaseHolder, RenewTime: g.Now, AcquireTime: t0, Duration: 900 * time.Second,
		Annotations: map[string]string{
			fleet.LeaseSwapID: string(swID), fleet.LeaseSwapNodes: "n1,n4", fleet.LeaseController: "controller-1", fleet.LeaseRecord: record().String(),
		},
	}
	return g
}

// taken: the Lease was taken so long ago.
func (g *given) taken(ago time.Duration) *given {
	rec := record()
	rec.Started = g.Now.Add(-ago)
	g.leased().Lease.Annotations[fleet.LeaseRecord] = rec.String()
	return g
}

// faltering: n4's servers to join cannot say who the members are.
func (g *given) faltering() *given {
	g.host(4).Report.Preflight = &status.Preflight{Problems: []status.Problem{{Code: status.CodeJoinHostFalters, Sentence: "https://10.0.0.2:6443: /db/info says status 500"}}}
	return g
}

func (g *given) mark(n int) *given { return g.markWith(n, record()) }

func (g *given) markWith(n int, r status.Record) *given {
	a := g.host(n).Node.Annotations
	a[keys.Swap()], a[keys.Record()], a[keys.Controller()] = string(r.ID), r.String(), "controller-1"
	return g
}

// steps are the states the status says were reached, with how long ago.
func (g *given) steps(since map[State]time.Duration) *given {
	sw := &status.Swap{ID: swID, Out: "n1", In: "n4", StartedAt: t0}
	for _, s := range allStates {
		if d, ok := since[s]; ok {
			sw.Steps = append(sw.Steps, status.StepTime{Step: string(s), At: g.Now.Add(-d)})
			sw.Step, sw.StepSince = string(s), g.Now.Add(-d)
		}
	}
	g.Status.Swap = sw
	return g
}

// begun: Lease and records stand.
func begun() *given { return calm().leased().mark(1).mark(4) }

func (g *given) cordon(n int) *given {
	g.host(n).Node.Unschedulable = true
	g.host(n).Node.Annotations[keys.Cordoned()] = string(swID)
	return g
}

// cordoned: both hosts are cordoned and empty.
func cordoned() *given { return begun().cordon(1).cordon(4) }

const snapshotName = fleet.SnapshotPrefix + "20261129T120000Z-n1-n4-n2-1764417600"

// published: the cluster shows the snapshot as ready.
func (g *given) published() *given {
	g.Snapshots = []Snapshot{{Name: snapshotName, Node: "n2", Ready: true}}
	return g
}

// noted: the record on a Node names it.
func (g *given) noted(n int, name string) *given {
	rec, err := status.ParseRecord(g.host(n).Node.Annotations[keys.Record()])
	if err != nil {
		panic(err)
	}
	rec.Snapshot = name
	return g.markWith(n, rec)
}

// snapshot: it is there, and the records say so.
func (g *given) snapshot() *given { return g.published().noted(4, snapshotName).noted(1, snapshotName) }

func (g *given) order(n int, s fleet.Step) *given {
	h := g.host(n)
	h.Node.Annotations[keys.Step()] = string(s)
	h.Node.Labels[keys.DesiredRole()] = string(s.DesiredRole())
	return g
}

func (g *given) reported(n int, s fleet.Step, ph fleet.Phase, change ...func(*status.Report)) *given {
	r := g.host(n).Report
	r.Swap, r.Step, r.Phase = swID, s, ph
	for _, c := range change {
		c(r)
	}
	return g
}

// unwritten: IN votes, and its disk had no room for its role.
func unwritten(g *given) {
	r := g.host(4).Report
	r.Role, r.Phase, r.Code, r.Message = fleet.RoleAgent, fleet.PhaseRunning, "EffectFailed", "role: write role: no space left on device; it is tried again"
}

// unreadable: the role file of OUT is garbage.
func unreadable(r *status.Report) {
	r.Role, r.Code, r.Message = "", "BadRoleFile", `/etc/github-runner/role: role "serv"`
}

// promoting: IN has its order and its host is at work.
func promoting() *given {
	g := cordoned().snapshot().order(4, fleet.StepPromote).reported(4, fleet.StepPromote, fleet.PhaseRunning)
	g.host(4).Report.Role, g.host(4).Report.Preflight = fleet.RoleServer, nil
	g.host(4).Node.Ready = false
	return g.steps(map[State]time.Duration{Promote: 20 * time.Second})
}

// lists gives the hosts the same list.
func (g *given) lists(members []status.Member, hosts ...int) *given {
	for _, n := range hosts {
		g.host(n).Report.Etcd = etcdView(members...)
	}
	return g
}

func learnerIn() *given {
	return promoting().lists([]status.Member{member(1, false), member(2, false), member(3, false), member(4, true)}, 1, 2, 3)
}

func four() []status.Member {
	return []status.Member{member(1, false), member(2, false), member(3, false), member(4, false)}
}

// voting: IN votes; its own etcd does not answer yet.
func voting() *given {
	g := promoting().lists(four(), 1, 2, 3)
	g.host(4).Report.MemberID = memberID(4)
	g.host(4).KubeletChanged = false
	return g.steps(map[State]time.Duration{Promote: 40 * time.Second, Settle: 10 * time.Second})
}

// serving: IN's etcd answers and its Node is Ready again.
func serving() *given {
	g := voting().lists(four(), 4)
	h := g.host(4)
	h.Node.Ready, h.KubeletChanged = true, true
	h.Node.Labels[fleet.LabelEtcd], h.Node.Labels[fleet.LabelControlPlane] = "true", "true"
	h.Node.Annotations[fleet.AnnotationEtcdName], h.Node.Annotations[fleet.AnnotationEtcdAddress] = member(4, false).Name, "10.0.0.4"
	h.Report.Phase = fleet.PhaseDone
	return g
}

func recordWithIn() status.Record {
	r := record()
	r.InMember = memberID(4)
	return r
}

// settledIn: the records hold IN's id; OUT is next.
func settledIn() *given {
	g := serving().markWith(1, recordWithIn()).markWith(4, recordWithIn())
	return g.steps(map[State]time.Duration{Promote: time.Minute, Settle: 30 * time.Second, DrainOut: 5 * time.Second})
}

func (g *given) taint(n int) *given {
	h := g.host(n)
	h.Node.Taints = append(h.Node.Taints, Taint{Key: keys.Taint(), Value: fleet.TaintValue, Effect: "NoSchedule"})
	return g
}

// leader is etcd's leader as every list shows it.
func (g *given) leader(n int) *given {
	id := memberID(n)
	if n == 0 {
		id = 0
	}
	for i := range g.Hosts {
		if r := g.Hosts[i].Report; r != nil && r.Etcd != nil {
			r.Etcd.Leader = id
		}
	}
	return g
}

// steppingDown: OUT has its order.
func steppingDown() *given {
	g := settledIn().taint(1).order(1, fleet.StepStepDown).reported(1, fleet.StepStepDown, fleet.PhaseRunning)
	g.host(1).Node.Labels[keys.Level()] = string(fleet.LevelEtcdOnly)
	return g.steps(map[State]time.Duration{Promote: time.Minute, Settle: 30 * time.Second, DrainOut: 20 * time.Second, StepDown: 5 * time.Second})
}

// steppedDown: OUT runs etcd alone and does not lead.
func steppedDown() *given {
	g := steppingDown().reported(1, fleet.StepStepDown, fleet.PhaseDone).leader(2)
	h := g.host(1)
	h.Node.Ready, h.Node.EtcdIsVoter = false, "False"
	h.Report.Level, h.Report.Leaving, h.Report.Role = fleet.LevelEtcdOnly, true, fleet.RoleAgent
	return g
}

// removing: k3s is asked.
func removing() *given {
	g := steppedDown()
	g.host(1).Node.Annotations[fleet.AnnotationEtcdRemove] = "true"
	g.steps(map[State]time.Duration{Promote: time.Minute, Settle: 40 * time.Second, DrainOut: 30 * time.Second, StepDown: 20 * time.Second, Remove: 2 * time.Second})
	return g
}

// told: k3s has taken the request off and named the member; the lists lag.
func told() *given {
	g := removing()
	a := g.host(1).Node.Annotations
	delete(a, fleet.AnnotationEtcdRemove)
	delete(a, fleet.AnnotationEtcdName)
	delete(a, fleet.AnnotationEtcdAddress)
	a[fleet.AnnotationEtcdRemovedName] = member(1, false).Name
	return g
}

func without1() []status.Member {
	return []status.Member{member(2, false), member(3, false), member(4, false)}
}

// removed: the staying voters' lists are without OUT.
func removed() *given {
	g := removing().lists(without1(), 2, 3, 4).leader(2)
	a := g.host(1).Node.Annotations
	delete(a, fleet.AnnotationEtcdRemove)
	delete(a, fleet.AnnotationEtcdName)
	delete(a, fleet.AnnotationEtcdAddress)
	a[fleet.AnnotationEtcdRemovedName] = member(1, false).Name
	g.host(1).Report.Etcd = nil
	return g
}

// finishing: role-member-gone stands.
func finishing() *given {
	g := removed()
	g.host(1).Node.Annotations[keys.MemberGone()] = string(swID)
	return g.steps(map[State]time.Duration{Promote: time.Minute, StepDown: 20 * time.Second, Remove: 10 * time.Second, Finish: 5 * time.Second})
}

// uncordonedIn: IN is free for pods.
func uncordonedIn() *given {
	g := finishing()
	g.host(4).Node.Unschedulable = false
	delete(g.host(4).Node.Annotations, keys.Cordoned())
	return g
}

// agentOut: OUT's host says that it is an agent.
func agentOut() *given {
	g := uncordonedIn().reported(1, fleet.StepFinishDemote, fleet.PhaseDone)
	r := g.host(1).Report
	r.Role, r.Leaving, r.Level, r.MemberID = fleet.RoleAgent, false, "", 0
	g.host(1).KubeletChanged = false
	return g
}

func (g *given) cleaned(n int) *given {
	h := g.host(n)
	for _, l := range append(fleet.ServerLabels(), keys.Level()) {
		delete(h.Node.Labels, l)
	}
	for _, a := range fleet.EtcdAnnotations() {
		delete(h.Node.Annotations, a)
	}
	h.Node.Taints = nil
	return g
}

func (g *given) ended(o fleet.Outcome) *given {
	g.Status.Swap = nil
	g.Status.LastSwap = &status.LastSwap{ID: swID, Out: "n1", In: "n4", Outcome: o, EndedAt: g.Now}
	return g
}

// takenBack: IN is ordered to roll back and is no member.
func takenBack() *given {
	g := promoting().order(4, fleet.StepRollback).reported(4, fleet.StepRollback, fleet.PhaseRunning)
	return g.steps(map[State]time.Duration{Promote: 10 * time.Minute, Rollback: 5 * time.Second})
}

// readAnew: n4's daemon said 5 s ago that its server has ended, and every other
// host has read the lists since.
func (g *given) readAnew() *given {
	for n := 1; n <= 3; n++ {
		g.host(n).ReadWithin = 4 * time.Second
	}
	g.host(4).StoppedAge = 5 * time.Second
	return g
}

// restoring: IN's member is gone for good.
func restoring() *given {
	g := takenBack().reported(4, fleet.StepRollback, fleet.PhaseDone, func(r *status.Report) { r.Role, r.Stopped = fleet.RoleAgent, true })
	h := g.host(4)
	h.Node.Annotations[keys.MemberGone()] = string(swID)
	h.Node.Ready = true
	return g.steps(map[State]time.Duration{Promote: 10 * time.Minute, Rollback: 20 * time.Second, Restore: 5 * time.Second})
}

// outNodeGone and inNodeGone: the Node was deleted this long ago.
func (g *given) outNodeGone(ago time.Duration) *given { return g.nodeGone("n1", ago) }
func (g *given) inNodeGone(ago time.Duration) *given  { return g.nodeGone("n4", ago) }

func (g *given) nodeGone(name string, ago time.Duration) *given {
	g.Hosts = slices.DeleteFunc(g.Hosts, func(h Host) bool { return h.Name == name })
	sw := g.Status.Swap
	sw.Step, sw.StepSince = string(Begin), g.Now.Add(-ago)
	return g
}

// unmarked: both Nodes have lost every annotation of the swap.
func (g *given) unmarked() *given {
	for _, n := range []int{1, 4} {
		for _, a := range keys.SwapAnnotations() {
			delete(g.host(n).Node.Annotations, a)
		}
	}
	return g
}

func pod(name string, change func(*Pod)) Pod {
	p := Pod{Namespace: "default", Name: name, Owned: true}
	if change != nil {
		change(&p)
	}
	return p
}

func runner(p *Pod) { p.Protected = true }

func policy() Policy {
	p := DefaultPolicy()
	p.DryRun = false
	return p
}
