package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// run is the real controller and one real host daemon a host on a simulated
// cluster, driven one pass at a time. It must be used inside a synctest bubble,
// whose clock is everybody's.
type run struct {
	w      *sim.World
	policy swap.Policy
	hostd  hostd.Policy
	ctx    context.Context

	controllers int
	boss        *actor
	daemons     map[string]*actor
	names       []string
	turn        controller.Turn
	// swaps are the ids of the swaps that were seen under way.
	swaps map[fleet.SwapID]bool
	first string // outcome of the first of two swaps
	// ghosts are controllers that were thought dead and go on.
	ghosts []*actor
	kill   map[string]int
	rng    *rand.Rand
	// disagreed is set when an observation in another order was decided otherwise.
	disagreed string
	due       []dueAt
	copies    []sim.Documents
	clock     map[string]time.Duration // how far each host's clock is off
	gone      map[string]bool          // hosts that never return
	muted     map[string]time.Time     // hosts whose etcd is too slow for their daemon until then
	person    bool                     // somebody changed what regrade does not put right
	jobs      int
	// memory is what each host says of its memory; nil where no level half is on.
	memory map[string]level.Reading
	// alter breaks a rule on purpose.
	alter    func(swap.Decision) swap.Decision
	oldLease bool
	steps    int
}

// shortPolicy has bounds short enough for many runs. The learner stall is
// k3s's, made as short.
func shortPolicy() swap.Policy {
	p := swap.DefaultPolicy()
	p.OperationTimeout = 90 * time.Second
	p.RunnerWait = 2 * time.Minute
	p.LearnerStall = time.Minute
	p.SnapshotTimeout = 30 * time.Second
	p.DrainTimeout = time.Minute
	p.FinishTimeout = 90 * time.Second
	p.Cooldown = time.Minute
	return p
}

func newRun(cfg sim.Config) (*run, error) {
	p := shortPolicy()
	p.Target = cfg.Voters
	cfg.LearnerStall = p.LearnerStall
	cfg.Start, cfg.Clock = time.Now(), time.Now
	w, err := sim.New(cfg)
	if err != nil {
		return nil, err
	}
	r := &run{w: w, policy: p, ctx: context.Background(), names: w.Names(), daemons: map[string]*actor{}, swaps: map[fleet.SwapID]bool{}, kill: map[string]int{},
		rng: rand.New(rand.NewPCG(cfg.Seed, 1)), clock: map[string]time.Duration{}, gone: map[string]bool{}, muted: map[string]time.Time{}}
	r.copies = append(r.copies, w.Copy())
	r.hostd = hostd.DefaultPolicy()
	r.hostd.OperationTimeout, r.hostd.SnapshotTimeout = p.OperationTimeout, p.SnapshotTimeout
	r.hostd.JoinURLs = w.JoinURLs()
	r.newController()
	for _, n := range r.names {
		r.newDaemon(n)
	}
	return r, nil
}

// newController starts a controller with a new id; the old one is gone.
func (r *run) newController() {
	r.controllers++
	a := &actor{name: "controller", due: time.Now()}
	c := controller.New(r.w.Controller().Through(a.apiGate), controller.Rules{Next: r.next, MayRemove: swap.MayRemove}, controller.Settings{
		Self: fmt.Sprintf("controller-%d", r.controllers), Policy: r.policy, LeaseDuration: 3 * r.policy.OperationTimeout,
		Protected: func(l map[string]string) bool {
			k, v, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
			return l[k] == v
		},
	})
	r.boss = a
	var last swap.Action
	a.pass = func() time.Duration {
		t := c.Pass(r.ctx)
		if a == r.boss {
			r.turn = t
		}
		if t.Decision.Swap != nil {
			r.swaps[t.Decision.Swap.ID] = true
		}
		again := t.Decision.Action.Kind == last.Kind && t.Decision.Action.Node == last.Node && t.Decision.Action.Step == last.Step
		last = t.Decision.Action
		switch {
		case t.Acted && !again:
			return 50 * time.Millisecond
		case t.Busy() || t.Err != nil:
			return 2 * time.Second
		}
		return r.policy.Period
	}
}

// next is swap.Next, asked a second time with everything in another order that
// has none (the hosts of an Observation are sorted): two routes to one plan
// must agree.
func (r *run) next(o swap.Observation, p swap.Policy) swap.Decision {
	d := swap.Next(o, p)
	if diff := cmp.Diff(d, swap.Next(r.shuffled(o), p)); diff != "" && r.disagreed == "" {
		r.disagreed = fmt.Sprintf("in state %s another order of the same facts gives another decision (-sorted +shuffled):\n%s", d.State, diff)
	}
	if r.alter != nil {
		d = r.alter(d)
	}
	return d
}

func (r *run) shuffled(o swap.Observation) swap.Observation {
	o.Hosts, o.Snapshots = slices.Clone(o.Hosts), slices.Clone(o.Snapshots)
	shuffle(r.rng, o.Snapshots)
	for i := range o.Hosts {
		h := &o.Hosts[i]
		h.Pods, h.Node.Taints = slices.Clone(h.Pods), slices.Clone(h.Node.Taints)
		shuffle(r.rng, h.Pods)
		shuffle(r.rng, h.Node.Taints)
		if h.Report == nil || h.Report.Etcd == nil {
			continue
		}
		rep, etcd := *h.Report, *h.Report.Etcd
		etcd.Members, rep.Standbys = slices.Clone(etcd.Members), slices.Clone(rep.Standbys)
		shuffle(r.rng, etcd.Members)
		shuffle(r.rng, rep.Standbys)
		rep.Etcd, h.Report = &etcd, &rep
	}
	return o
}

func shuffle[T any](rng *rand.Rand, s []T) {
	rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

func (r *run) newDaemon(name string) {
	if old := r.daemons[name]; old != nil {
		old.kill()
	}
	a := &actor{name: name, due: time.Now(), muteUntil: r.muted[name]}
	off := r.clock[name]
	d := hostd.New(hostd.Settings{
		Node: name, Policy: r.hostd,
		Host: r.w.Machine(name).Through(a.gate), API: r.w.HostAPI(name).Through(a.apiGate), Etcd: r.w.HostEtcd(name).Through(a.gate),
		Ways: r.w.Ways(name), Lock: r.w.HostLock(name),
		Now:    func() time.Time { return time.Now().Add(off) },
		Levels: r.levels(name, a),
	})
	r.w.Inspect(name, func(h *sim.Host) { a.boot = h.Boots })
	a.pass = func() time.Duration {
		wake, _ := d.Pass(r.ctx)
		if wake.Again {
			return 50 * time.Millisecond
		}
		return min(wake.After, 2*time.Second) // watches wake it in a swap; here it just looks
	}
	r.daemons[name] = a
}

// step lets the next process pass. A process named in kill dies after so many
// effects of that pass.
func (r *run) step() {
	r.catchUp()
	next := r.boss
	for _, g := range r.ghosts {
		if g.due.Before(next.due) {
			next = g
		}
	}
	for _, n := range r.names {
		if a := r.daemons[n]; r.runs(n) && a.due.Before(next.due) {
			next = a
		}
	}
	if d := time.Until(next.due); d > 0 {
		time.Sleep(d)
	}
	r.w.Now() // the world follows
	n, dies := r.kill[next.name]
	if dies {
		delete(r.kill, next.name)
		r.w.KillAfter(n)
	}
	wait := next.turn()
	if next == r.boss && next.asleep && next.replaced {
		next.name = "ghost"
		r.ghosts = append(r.ghosts, next)
		r.newController()
		r.later(next.rest+time.Minute, func() { r.bury(next) })
	}
	r.steps++
	if r.steps%40 == 0 {
		r.copies = append(r.copies, r.w.Copy())
	}
	next.due = time.Now().Add(max(wait, 50*time.Millisecond))
	if !dies {
		return
	}
	r.w.Revive()
	if next == r.boss {
		next.kill()
		r.newController()
		r.boss.due = time.Now().Add(10 * time.Second) // a pod takes its time
	} else if _, ok := r.daemons[next.name]; ok {
		r.w.DaemonDied(next.name)
		r.newDaemon(next.name)
		r.daemons[next.name].due = time.Now().Add(5 * time.Second)
	}
}

// mute makes a host's etcd too slow for its own daemon.
func (r *run) mute(name string, d time.Duration) {
	r.muted[name] = time.Now().Add(d)
	r.daemons[name].muteUntil = r.muted[name]
}

// bury ends a controller that was thought dead.
func (r *run) bury(ghost *actor) {
	ghost.kill()
	r.ghosts = slices.DeleteFunc(r.ghosts, func(g *actor) bool { return g == ghost })
}

// later does something once d has passed.
func (r *run) later(d time.Duration, do func()) {
	r.due = append(r.due, dueAt{time.Now().Add(d), do})
}

func (r *run) catchUp() {
	var left, now []dueAt
	for _, d := range r.due {
		if time.Now().Before(d.at) {
			left = append(left, d)
		} else {
			now = append(now, d)
		}
	}
	r.due = left
	for _, d := range now {
		d.do()
	}
}

type dueAt struct {
	at time.Time
	do func()
}

// runs says whether a host's daemon can run, and replaces one that a reboot
// has ended.
func (r *run) runs(name string) (ok bool) {
	boots := 0
	r.w.Inspect(name, func(h *sim.Host) { ok, boots = h.Up && !h.Paused, h.Boots })
	if ok && boots != r.daemons[name].boot {
		r.w.DaemonDied(name)
		r.newDaemon(name)
	}
	return ok
}

// spend lets everybody pass for a while.
func (r *run) spend(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		r.step()
	}
}

func (r *run) request(out, in string) {
	raw, err := json.Marshal(status.Request{Out: out, In: in, At: r.w.Now()})
	if err != nil {
		panic(err)
	}
	text := string(raw)
	_ = r.w.Controller().PatchConfigMap(r.ctx, fleet.ConfigMapStatus, "", map[string]*string{fleet.KeyRequest: &text})
}

// status reads the published status, nil when there is none.
func (r *run) status() *status.Status {
	cm, err := r.w.Controller().ConfigMap(r.ctx, fleet.ConfigMapStatus)
	if err != nil {
		return nil
	}
	s, err := status.ParseStatus([]byte(cm.Data[fleet.KeyStatus]))
	if err != nil {
		return nil
	}
	return &s
}

// idle says whether nothing is asked for and nothing is under way.
func (r *run) idle() bool {
	l, err := r.w.Controller().Lease(r.ctx)
	if err != nil || l.Holder != "" && !r.leftLease(l.Lease) {
		return false
	}
	cm, err := r.w.Controller().ConfigMap(r.ctx, fleet.ConfigMapStatus)
	if err != nil || cm.Data[fleet.KeyRequest] != "" {
		return false
	}
	nodes, err := r.w.Controller().Nodes(r.ctx)
	if err != nil {
		return false
	}
	for _, n := range nodes {
		if n.Annotations[r.policy.Keys.Swap()] != "" || n.Annotations[r.policy.Keys.Cordoned()] != "" {
			return false
		}
	}
	return r.turn.Err == nil && r.turn.Decision.State == swap.Idle && !r.turn.Decision.Acts()
}

// settle passes until nothing is under way, and says whether that came.
func (r *run) settle(within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); {
		if r.idle() && len(r.left()) == 0 {
			return true
		}
		r.spend(5 * time.Second)
	}
	return r.idle()
}

// leftLease: a Lease that was put back from a backup has run out and is nobody's.
func (r *run) leftLease(l lease.Lease) bool {
	return r.oldLease && l.At(r.w.Controller().Date()) == lease.Expired
}

// left is what of a swap is left behind: not what was there before, where no swap
// came to it, nor a Lease put back from a backup, which runs out.
func (r *run) left() []string {
	l, err := r.w.Controller().Lease(r.ctx)
	return slices.DeleteFunc(r.w.Clean(), func(c string) bool {
		return strings.Contains(c, staleMember) || strings.HasPrefix(c, "the Lease") && err == nil && r.leftLease(l.Lease)
	})
}
