package hostd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/platformtest"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

const (
	clusterID = fleet.MemberID(0xc1)
	idA       = fleet.MemberID(0xa)
	idB       = fleet.MemberID(0xb)
	idC       = fleet.MemberID(0xc)
	idD       = fleet.MemberID(0xd)
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// rig is one real daemon over a fake host, a cluster of a, b and c with a
// standby d, and an etcd that behaves as k3s's would on this host.
type rig struct {
	rested int // how often the daemon said that it has nothing more to do
	t      *testing.T
	node   string
	host   *platformtest.Fake
	now    time.Time
	wall   bool // the clock of a synctest bubble in place of now
	wake   chan struct{}
	read   int

	self    *swap.Node
	lease   lease.Lease
	nodes   []hostapi.Node
	apiDown bool
	avoided bool

	members  []status.Member
	leader   fleet.MemberID
	ownID    fleet.MemberID
	etcdDown bool             // the server runs, its etcd does not answer
	silent   []fleet.MemberID // other voters that do not answer
	stuck    bool             // leadership does not move
	moves    int              // how often it was asked to
	neverWAL bool
	learns   bool          // a learner is not promoted yet
	slow     time.Duration // the own etcd answers after this long
	pre      []status.Problem

	reports []status.Report
	wrote   []time.Time // when each report was, by the bubble's clock
	beats   []hostapi.Beat
	locals  int
	asked   int
	daemon  *hostd.Daemon
	command *hostd.Command
	lock    hostd.Lock
	levels  *hostd.LevelSettings // nil: the level half is off
	boots   int
	mu      sync.Mutex        // what a bubble's test changes while the daemon runs
	joins   map[string]string // joins() when nil
	after   func(what string) // comes after each answer to the daemon, when there is one
	log     *slog.Logger
}

func keys() fleet.Keys { return fleet.DefaultKeys() }

func joins() map[string]string {
	return map[string]string{"a": "https://10.0.0.1:6443", "b": "https://10.0.0.2:6443", "c": "https://10.0.0.3:6443", "d": "https://10.0.0.4:6443"}
}

func member(node string, id fleet.MemberID, n int) status.Member {
	return status.Member{ID: id, Name: node + "-0000000" + fmt.Sprint(n),
		PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", n)}, ClientURLs: []string{fmt.Sprintf("https://10.0.0.%d:2379", n)}}
}

// id is the swap of a (out) for d (in).
var id = fleet.NewSwapID(start, "a", "d")

// newRig makes the host of a node: a, b and c vote, d is the standby.
func newRig(t *testing.T, node string) *rig {
	r := &rig{t: t, node: node, now: start, host: platformtest.NewFake("boot-0"), leader: idA, self: &swap.Node{
		Labels: map[string]string{keys().Eligible(): "true"}, Annotations: map[string]string{}, InternalIP: "10.0.0.4",
	}}
	r.members = []status.Member{member("a", idA, 1), member("b", idB, 2), member("c", idC, 3)}
	r.ownID = map[string]fleet.MemberID{"a": idA, "b": idB, "c": idC}[node]
	r.host.OnAdvance = r.k3s
	r.host.Change(func(f *platform.Facts) {
		f.K3sVersion = "v1.36.3+k3s1"
		if r.ownID != 0 {
			f.Files.Role, f.Files.WAL, f.Datastore, f.EtcdCerts = fleet.RoleServer, true, true, true
			f.Files.Identity = rolefile.Identity{ClusterID: clusterID, MemberID: r.ownID}
			f.Server.State, f.Server.Process, f.Server.Level, f.Server.Since = platform.StateActive, true, fleet.LevelFull, start
			f.Shims = 3
		} else {
			f.Files.Role = fleet.RoleAgent
			f.Agent.State, f.Agent.Process, f.Agent.Since = platform.StateActive, true, start
		}
	})
	if r.ownID != 0 {
		r.self.Labels[fleet.LabelEtcd] = "true"
	}
	r.restart()
	return r
}

// restart is a new daemon process on the same host.
func (r *rig) restart() {
	p := hostd.DefaultPolicy()
	if p.JoinURLs = r.joins; p.JoinURLs == nil {
		p.JoinURLs = joins()
	}
	r.daemon = hostd.New(hostd.Settings{
		Node: r.node, Policy: p, Host: r.host, API: r, Etcd: etcd{r}, Ways: r, Lock: r.lock,
		Now: func() time.Time { return r.now }, Command: r.command, Log: r.log, Levels: r.levels,
	})
}

func (r *rig) reboot() {
	r.boots++
	r.host.Reboot(fmt.Sprintf("boot-%d", r.boots))
	r.restart()
}

// k3s is what k3s and etcd do while time passes.
func (r *rig) k3s(f *platform.Facts) {
	if !f.Server.Process {
		return
	}
	if !f.Files.WAL {
		if r.neverWAL || !f.Files.JoiningNow() {
			return
		}
		f.Files.WAL, f.Datastore, f.EtcdCerts, f.MemberName = true, true, true, "d-00000004"
		r.ownID = idD
		m := member(r.node, idD, 4)
		m.Learner = true
		r.members = append(r.members, m)
		return
	}
	if i := r.index(r.ownID); i >= 0 && r.members[i].Learner {
		if r.learns {
			return
		}
		r.members[i].Learner = false
		return
	}
	if r.up(f) && f.Server.State == platform.StateActivating {
		f.Server.State = platform.StateActive
	}
}

func (r *rig) index(id fleet.MemberID) int {
	return slices.IndexFunc(r.members, func(m status.Member) bool { return m.ID == id })
}

func (r *rig) up(f *platform.Facts) bool {
	return f.Server.Process && f.Files.WAL && !r.etcdDown && r.index(r.ownID) >= 0
}

// do changes the rig while the daemon's loop runs.
func (r *rig) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// The API.

func (r *rig) answered(what string) {
	if r.after != nil {
		r.after(what)
	}
}

func (r *rig) Read(context.Context) (hostapi.View, error) {
	defer r.answered("view")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	if r.apiDown {
		return hostapi.View{}, errors.New("no candidate is ready")
	}
	if r.wall {
		r.now = time.Now()
	}
	server := "https://10.0.0.2:6443"
	if r.node == "b" {
		server = "https://10.0.0.3:6443"
	}
	return hostapi.View{Date: r.now, Server: server, Self: r.self, Lease: r.lease}, nil
}

func (r *rig) Nodes(context.Context) ([]hostapi.Node, error) { return r.nodes, nil }

func (r *rig) WriteReport(_ context.Context, rep status.Report) error {
	defer r.answered("report")
	if r.apiDown {
		return errors.New("no candidate is ready")
	}
	r.reports = append(r.reports, rep)
	r.wrote = append(r.wrote, time.Now())
	return nil
}

func (r *rig) WriteHeartbeat(_ context.Context, b hostapi.Beat) error {
	last := r.reports[len(r.reports)-1]
	if last.Counter != b.Counter || last.BootID != b.BootID {
		r.t.Errorf("the heartbeat vouches for report %d of %s, the last written is %d of %s", b.Counter, b.BootID, last.Counter, last.BootID)
	}
	r.beats = append(r.beats, b)
	return nil
}

func (r *rig) Changed() <-chan struct{} { return r.wake }
func (r *rig) Avoid(own bool)           { r.avoided = own }

// The ways.

func (r *rig) Preflight(context.Context, hostapi.PreflightInput) status.Preflight {
	return status.Preflight{OK: len(r.pre) == 0, Problems: slices.Clone(r.pre)}
}

func (r *rig) Dial(_ context.Context, standbys []hostapi.Standby) []status.Dial {
	var out []status.Dial
	for _, s := range standbys {
		out = append(out, status.Dial{Node: s.Node, OK: true})
	}
	return out
}

// etcd is a second receiver, because Ask and Read would clash in meaning.
type etcd struct{ r *rig }

func (e etcd) Local(ctx context.Context) hostapi.Member {
	defer e.r.answered("own etcd")
	var slow time.Duration
	e.r.do(func() { e.r.locals++; slow = e.r.slow })
	if slow > 0 {
		select {
		case <-ctx.Done():
			return hostapi.Member{View: status.EtcdView{Error: "no answer in time"}}
		case <-time.After(slow):
		}
	}
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	f := e.r.host.Facts()
	if !e.r.up(&f) {
		return hostapi.Member{View: status.EtcdView{Error: "connection refused"}}
	}
	m := e.r.members[e.r.index(e.r.ownID)]
	out := hostapi.Member{Answers: true, ID: m.ID, Learner: m.Learner, View: status.EtcdView{ClusterID: clusterID, Leader: e.r.leader}}
	if !m.Learner {
		out.View.Linearizable, out.View.Members = true, slices.Clone(e.r.members)
	}
	return out
}

func (e etcd) Ask(_ context.Context, urls []string) (hostapi.Answer, error) {
	e.r.asked++
	if len(urls) == 0 {
		return hostapi.Answer{}, errors.New("nobody to ask")
	}
	return hostapi.Answer{URL: "https://10.0.0.3:2379", ClusterID: clusterID, Members: slices.Clone(e.r.members)}, nil
}

func (e etcd) Answering(_ context.Context, _, _ fleet.MemberID, members []status.Member) []fleet.MemberID {
	defer e.r.answered("others")
	var ids []fleet.MemberID
	for _, m := range members {
		if !slices.Contains(e.r.silent, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (e etcd) MoveLeader(_ context.Context, to fleet.MemberID) error {
	e.r.moves++
	if !e.r.stuck {
		e.r.leader = to
	}
	return nil
}

// order puts a step on the Node as the controller does, under its Lease.
func (r *rig) order(step fleet.Step) {
	r.self.Labels[keys().DesiredRole()] = string(step.DesiredRole())
	r.self.Annotations[keys().Swap()] = string(id)
	if step != "" {
		r.self.Annotations[keys().Step()] = string(step)
	}
	r.self.Annotations[keys().JoinNode()] = "b"
	r.self.Annotations[keys().LeadTo()] = "b"
	r.self.Annotations[keys().Record()] = status.Record{
		Protocol: status.Protocol, Prefix: fleet.DefaultPrefix, ID: id, Out: "a", In: "d", Started: start,
		ClusterID: clusterID, OutMember: idA, Voters: []status.RecordVoter{{Node: "a", ID: idA}, {Node: "b", ID: idB}, {Node: "c", ID: idC}},
	}.String()
	r.hold()
}

func (r *rig) hold() {
	r.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: r.now, Duration: time.Hour,
		Annotations: map[string]string{fleet.LeaseSwapID: string(id)}}
}

// pass is one pass and the time until the next.
func (r *rig) pass() {
	r.t.Helper()
	wake, err := r.daemon.Pass(context.Background())
	if err != nil && !r.apiDown {
		r.t.Fatalf("pass: %v", err)
	}
	if !wake.Again {
		r.now = r.now.Add(wake.After)
		r.host.Advance()
	}
	r.check()
}

// check holds in every moment of every test.
func (r *rig) check() {
	r.t.Helper()
	f := r.host.Facts()
	if f.Server.Process && f.Agent.Process {
		r.t.Fatal("a k3s server and a k3s agent run at once (safety rule 10)")
	}
	if f.Server.Process && f.PeerPort {
		r.t.Fatal("the daemon holds the peer port of a server that runs")
	}
	if rolefile.MayStart(f.Files, fleet.RoleServer).May && rolefile.MayStart(f.Files, fleet.RoleAgent).May {
		r.t.Fatalf("both roles may start: %+v", f.Files)
	}
}

// until passes until the condition holds.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	for range 400 {
		if cond() {
			return
		}
		r.pass()
	}
	r.t.Fatalf("never: %s\ndecision %+v\njournal %+v\nfacts %+v\ncalls %s", what, r.daemon.Decision(), r.journal(), r.host.Facts(), strings.Join(r.host.Calls, ", "))
}

func (r *rig) journal() hostd.Journal {
	j, err := hostd.ParseJournal(r.host.Facts().Journal)
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

func (r *rig) settled(step fleet.Step, phase fleet.Phase) func() bool {
	return func() bool { j := r.journal(); return j.Step == step && j.Phase == phase }
}

func (r *rig) report() status.Report {
	r.t.Helper()
	if len(r.reports) == 0 {
		r.t.Fatal("no report was written")
	}
	return r.reports[len(r.reports)-1]
}

// remove takes a member out of the lists, as k3s does on the annotation.
func (r *rig) remove(id fleet.MemberID) {
	r.members = slices.DeleteFunc(r.members, func(m status.Member) bool { return m.ID == id })
}

func (r *rig) gone() { r.self.Annotations[keys().MemberGone()] = string(id) }

// calls are the effects without the daemon's own notes.
func (r *rig) calls() []string {
	return slices.DeleteFunc(slices.Clone(r.host.Calls), func(c string) bool {
		return c == "journal" || strings.HasPrefix(c, "identity") || strings.HasPrefix(c, "peer-port")
	})
}
