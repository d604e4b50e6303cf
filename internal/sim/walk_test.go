package sim

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// walk visits every state that the small case can come to: three voters, one
// standby, one request, the real controller and the real daemons. Time goes in
// beats. Within a beat each process passes as often as it has something to do, in
// every order, or in one; then a beat passes, in which k3s, etcd and the kubelets each
// make one step. At the beginning of a beat, or anywhere, one of the faults may strike,
// as long as some are left.
type walk struct {
	w       *World
	boss    *controller.Controller
	daemons []*hostd.Daemon
	fresh   *frozen   // a controller that has seen nothing
	started []*frozen // daemons that have just started

	freezer *freezer
	canon   *canon
	changed bool // something in the world was, in the last pass
	sums    sums // of the system as it is
	visited visited

	pos  place
	path []string // for a failure
	// roots are where the first fault strikes, once all is walked without one.
	roots   []root
	layered bool

	faults [faultsMax][]walkFault // the first may be one of these, the second one of those
	budget int
	apart  bool               // the second fault may be one that the first may not
	within int                // beats within which the second fault follows the first; negative is any
	orders [faultsMax + 1]int // for how many beats after so many faults all orders are walked, then one order; negative is for ever
	// bursts: a process that passes goes on until it has nothing more to do. Else
	// any other may pass between two of its actions.
	bursts bool
	// heads is how chance inside k3s falls.
	heads bool
	// anywhere: faults strike between any two passes, else at the beginning of a beat.
	anywhere bool
	// plain takes no short cut: see docs/testing.md, and TestShortCutsLeadToTheSameStates.
	plain bool
	seen  map[digest]bool // every state at the beginning of a beat, where asked for

	tell     func(when string)
	began    time.Duration // of processor time
	states   int
	beats    int // states of those that are the beginning of a beat
	steps    int
	deepest  int
	byFaults [faultsMax + 1]int
	outcomes map[string]int
	wrong    []string
	more     int           // wrongs after which the walk goes on
	examples []string      // of each way to stand still, the first
	limit    time.Duration // of processor time, 0 for none
	stopped  bool
}

const faultsMax = 2

// place is where a walk stands, beside what freezes.
type place struct {
	passed bool // the staying voters have passed in this beat
	begun  bool // one of the controller, s1 and v1 has
	struck int  // faults so far
	since  int  // beats since the last fault
	turn   int  // in one order: whose turn it is
	quiet  int  // in one order: how many have passed since something changed
	beats  int  // not part of the state
	due    []dueBeat
}

// dueBeat ends a fault so many beats from now.
type dueBeat struct {
	in   int
	what string
	host string
}

const beat = 5 * time.Second

// walkPolicy has the product's bounds in beats: each in the same order to the
// others as in the product, and to k3s's own times.
func walkPolicy() (swap.Policy, hostd.Policy, Config) {
	p := swap.DefaultPolicy()
	p.Period, p.JustNow, p.TakeOver = beat, beat, 2*beat
	p.OperationTimeout, p.LearnerStall = 10*beat, 6*beat
	p.RunnerWait, p.DrainTimeout, p.SnapshotTimeout, p.FinishTimeout = 4*beat, 4*beat, 4*beat, 8*beat
	p.Cooldown, p.AbandonBackoff = 2*beat, 2*beat
	h := hostd.DefaultPolicy()
	h.Period, h.OperationTimeout, h.SnapshotTimeout, h.HandOver, h.JoinAlone = beat, p.OperationTimeout, p.SnapshotTimeout, 2*beat, 3*beat
	c := DefaultConfig()
	c.Tick, c.PromotionTick, c.LearnerStall, c.Restart, c.Election = beat, 2*beat, p.LearnerStall, beat, beat
	c.GoneAfter, c.Serve, c.Kubelet, c.Evict = 4*beat, beat, beat, beat
	return p, h, c
}

func newWalk(next func(swap.Observation, swap.Policy) swap.Decision) (*walk, error) {
	p, hp, cfg := walkPolicy()
	w, err := New(cfg)
	if err != nil {
		return nil, err
	}
	k := &walk{w: w, visited: visited{}, within: -1, orders: [faultsMax + 1]int{-1}, outcomes: map[string]int{}}
	hp.JoinURLs = w.JoinURLs()
	now := func() time.Time { return w.now }
	k.boss = controller.New(w.Controller(), controller.Rules{Next: next, MayRemove: swap.MayRemove}, controller.Settings{
		Self: "controller", Policy: p, LeaseDuration: 2 * p.OperationTimeout, Now: now,
		Protected: func(map[string]string) bool { return false },
	})
	for _, n := range w.Names() {
		k.daemons = append(k.daemons, hostd.New(hostd.Settings{
			Node: n, Policy: hp, Host: w.Machine(n), API: w.HostAPI(n), Etcd: w.HostEtcd(n), Ways: w.Ways(n), Now: now,
		}))
	}
	own := map[reflect.Type]bool{}
	for _, v := range []any{World{}, raft{}, Machine{}, HostAPI{}, HostEtcd{}, Ways{}, HostLock{}, Cluster{}, waker{}, controller.Controller{}, hostd.Daemon{}} {
		own[reflect.TypeOf(v)] = true
	}
	k.freezer = newFreezer(func(t reflect.Type) bool {
		return own[t] || t.String() == "observe.Observer" || t.String() == "execute.Executor"
	}, "World.log", "World.read", "World.changes", "Daemon.facts", "Daemon.decision") // the last ones are for the wait between two passes
	k.freezer.part(w)
	k.freezer.part(k.boss)
	k.fresh = k.freezer.freeze(theBoss)
	for i, d := range k.daemons {
		k.freezer.part(d)
		k.started = append(k.started, k.freezer.freeze(theDaemons+i))
	}
	k.canon = newCanon(w, k.boss, k.daemons)
	// Chance inside k3s falls the same way each time.
	w.coin = func() bool { return k.heads }
	for range 4 {
		k.everybody()
		w.Advance(beat)
	}
	w.Guard()
	raw, err := json.Marshal(status.Request{Out: "v1", In: "s1", At: w.now})
	if err != nil {
		return nil, err
	}
	w.api.setKeys(fleet.ConfigMapStatus, map[string]*string{fleet.KeyRequest: new(string(raw))})
	return k, nil
}

// The parts of the system, each frozen by itself: a pass of one process leaves
// what the others keep as it is.
const (
	theWorld = iota
	theBoss
	theDaemons
	theParts = theDaemons + 4
)

// parts are those that a pass of a process may change, beside the world.
func parts(i int) []int {
	return [processes][]int{{theBoss}, {theDaemons}, {theDaemons + 1}, {theDaemons + 2, theDaemons + 3}}[i]
}

func (k *walk) everybody() {
	for range 4 {
		for i := range processes {
			k.pass(i)
		}
	}
}

// processes are the controller, the daemons of s1 and v1, and those of the voters
// that stay, which pass one right after the other: before all others in a beat, or
// when these have nothing more to do.
const (
	processes = 4
	staying   = 3
)

var names = [processes]string{"controller", "s1", "v1", "v2 and v3"}

// of are the indices of a process's daemons: the hosts are s1, v1, v2, v3.
func of(i int) []int { return [processes][]int{nil, {0}, {1}, {2, 3}}[i] }

// alive says whether a process can pass at all.
func (k *walk) alive(i int) bool {
	if i == 0 {
		return !slices.ContainsFunc(k.pos.due, func(d dueBeat) bool { return d.what == "controller comes back" })
	}
	return slices.ContainsFunc(of(i), k.runs)
}

func (k *walk) runs(daemon int) bool {
	h := k.w.hosts[daemon]
	return h.Up && !h.Paused && !k.held(h.Name)
}

// held: a daemon that stands still until it is due to go on.
func (k *walk) held(host string) bool {
	return slices.ContainsFunc(k.pos.due, func(d dueBeat) bool { return d.what == "daemon goes on" && d.host == host })
}

func (k *walk) pass(i int) {
	k.pos.passed = k.pos.passed || i == staying
	k.pos.begun = k.pos.begun || i != staying
	k.w.log = k.w.log[:0]
	k.touched(i)
	changes := k.w.changes
	defer func() { k.changed = k.w.changes != changes }()
	for range 40 {
		again := false
		if i == 0 {
			again = k.boss.Pass(context.Background()).Acted
		}
		for _, d := range of(i) {
			if k.runs(d) {
				wake, _ := k.daemons[d].Pass(context.Background())
				again = again || wake.Again
			}
		}
		if !again || !k.bursts {
			return
		}
	}
}

// touched: a pass may have changed the world and what the process keeps.
func (k *walk) touched(i int) {
	k.freezer.touched(theWorld)
	for _, p := range parts(i) {
		k.freezer.touched(p)
	}
}

// mayStrike: faults may strike here.
func (k *walk) mayStrike() bool {
	return k.pos.struck < k.budget && (!k.pos.begun || k.anywhere) && (k.pos.struck == 0 || k.within < 0 || k.pos.since <= k.within)
}

func (k *walk) oneBeat() {
	k.pos.beats++
	k.pos.since++
	k.pos.passed, k.pos.begun, k.pos.turn, k.pos.quiet = false, false, 0, 0
	due := k.pos.due
	k.pos.due = nil
	for _, d := range due {
		if d.in--; d.in > 0 {
			k.pos.due = append(k.pos.due, d)
		} else {
			k.end(d)
		}
	}
	k.w.Advance(beat)
	k.freezer.touched(theWorld)
}

// digest is the state: all that anybody keeps (base), and where the walk stands.
func (k *walk) digest() (d, base digest) {
	base = k.sums.whole()
	own := append(make([]byte, 0, 96), base[:]...)
	own = append(own, byte(k.pos.turn), byte(k.pos.quiet), flag(k.pos.begun), flag(k.pos.passed))
	for _, due := range k.pos.due {
		own = append(append(append(own, byte(due.in)), due.what...), due.host...)
	}
	return sum(own), base
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// over: nothing is asked for and nothing under way.
func (k *walk) over() bool {
	a := k.w.api
	if a.Lease.Holder != "" || len(k.pos.due) > 0 {
		return false
	}
	if cm := a.ConfigMaps[fleet.ConfigMapStatus]; cm == nil || cm.Data[fleet.KeyRequest] != "" {
		return false
	}
	for _, n := range a.Nodes {
		if n.Annotations[k.w.cfg.Keys.Swap()] != "" || n.Annotations[k.w.cfg.Keys.Cordoned()] != "" {
			return false
		}
	}
	return len(k.w.Clean()) == 0
}

// moment is the whole system and the place where the walk stands.
type moment struct {
	parts [theParts]*frozen
	sums  sums
	pos   place
	path  int
}

func (k *walk) freeze() moment {
	m := moment{pos: k.pos, path: len(k.path), sums: k.sums}
	for i := range m.parts {
		m.parts[i] = k.freezer.freeze(i)
	}
	return m
}

func (k *walk) thaw(m moment) {
	for i := range m.parts {
		k.freezer.thaw(i, m.parts[i])
	}
	k.pos, k.path, k.sums = m.pos, k.path[:m.path], m.sums
}

// arrive notes the state that the walk has come to and says whether to go on from it.
func (k *walk) arrive(d digest) bool {
	if v := k.w.guard.violations; len(v) > 0 {
		if !k.halted() {
			k.fail(v[0].String())
		}
		return false
	}
	if k.halted() || !k.isNew(d) {
		return false
	}
	k.states++
	k.byFaults[k.pos.struck]++
	k.deepest = max(k.deepest, k.pos.beats)
	if k.beginning() {
		k.beats++
		if k.seen != nil {
			k.seen[d] = true
		}
	}
	if k.limit > 0 && k.states%64 == 0 && spent()-k.began > k.limit {
		k.stopped = true
	}
	// A swap is over once a beat begins with nothing more to do: the beat before has
	// shown that nothing follows.
	if k.beginning() && k.over() {
		k.outcome()
		return false
	}
	return true
}

// explore walks on from a state, depth first.
func (k *walk) explore() {
	d, base := k.digest()
	one := k.oneOrder()
	if one && k.short() && k.beginning() {
		k.line(d)
		return
	}
	if !k.arrive(d) {
		return
	}
	here := k.freeze()
	strike := k.mayStrike()
	// try does one thing, walks on from what came of it, and says whether anything did.
	try := func(name string, do func()) bool {
		k.path = append(k.path, name)
		k.steps++
		do()
		changed := k.sums.whole() != base
		if one && name != beatPasses {
			k.pos.turn = (k.pos.turn + 1) % processes
			k.pos.quiet++
			if changed {
				k.pos.quiet = 0
			}
		}
		if changed || one {
			k.explore()
		}
		k.thaw(here)
		return changed
	}
	switch i := here.pos.turn; {
	case one && here.pos.quiet >= processes:
		try(beatPasses, func() { k.oneBeat(); k.sumAll() })
	case one:
		i = inTurn[i]
		try(names[i], func() {
			if k.alive(i) {
				k.pass(i)
				k.sum(i)
			}
		})
	default:
		k.allOrders(here, try)
	}
	if strike {
		k.strikes(here)
	}
}

const beatPasses = "beat"

func (k *walk) allOrders(here moment, try func(string, func()) bool) {
	ready := true
	for i := range processes {
		if k.halted() {
			return
		}
		if !k.alive(i) {
			continue
		}
		if !k.bursts && i == staying && here.pos.begun && !here.pos.passed && !ready {
			ready = false
			continue
		}
		changed := try(names[i], func() { k.pass(i); k.sum(i) })
		ready = ready && !changed
	}
	if ready && !k.halted() {
		try(beatPasses, func() { k.oneBeat(); k.sumAll() })
	}
}

// beginning: nobody has passed in this beat.
func (k *walk) beginning() bool { return !k.pos.begun && !k.pos.passed && k.pos.turn == 0 }

// oneOrder: so long after the last fault one order is enough.
func (k *walk) oneOrder() bool {
	n := k.orders[k.pos.struck]
	return n >= 0 && k.pos.since >= n
}

// strikes lets each fault strike here that may.
func (k *walk) strikes(here moment) {
	if here.pos.struck == 0 && !k.plain && !k.layered {
		k.roots = append(k.roots, root{here, slices.Clone(k.path)})
		return
	}
	for _, f := range k.faults[here.pos.struck] {
		if k.halted() {
			return
		}
		k.thaw(here)
		if f.may != nil && !f.may(k) {
			continue
		}
		k.path = append(k.path, "! "+f.name)
		k.steps++
		k.pos.struck++
		k.pos.since = 0
		f.do(k)
		k.freezer.touched(theWorld)
		k.sumAll()
		k.explore()
	}
	k.thaw(here)
}

// spent is this process's processor time: the machine may be busy with others.
func spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (k *walk) halted() bool { return k.stopped || len(k.wrong) > k.more }

// outcome counts how the swap ended.
func (k *walk) outcome() { k.outcomes[k.word()]++ }

func (k *walk) word() string {
	what := "no outcome"
	if st, err := status.ParseStatus([]byte(k.w.api.ConfigMaps[fleet.ConfigMapStatus].Data[fleet.KeyStatus])); err == nil && st.LastSwap != nil {
		what = string(st.LastSwap.Outcome)
		if len(st.LastSwap.Reasons) > 0 {
			what += ", " + st.LastSwap.Reasons[0].Code
		}
	}
	return what
}

func (k *walk) fail(what string) {
	k.wrong = append(k.wrong, what+"\n  by "+strings.Join(k.path, ", "))
}
