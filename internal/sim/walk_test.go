package sim

import (
	"context"
	"encoding/json"
	"fmt"
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
// every order; then a beat passes, in which k3s, etcd and the kubelets each make
// one step. At the beginning of a beat, or anywhere, one of the faults may strike,
// as long as some are left.
type walk struct {
	w       *World
	boss    *controller.Controller
	daemons []*hostd.Daemon
	fresh   frozen // a controller that has seen nothing
	started []frozen

	freezer *freezer
	canon   *canon
	visited map[digest]bool

	pos  place
	path []string // for a failure

	faults []walkFault
	budget int
	within int // beats within which the second fault follows the first
	orders int // beats after a fault in which all orders are walked; then one order
	// bursts: a process that passes goes on until it has nothing more to do. Else
	// any other may pass between two of its actions.
	bursts bool
	// anywhere: faults strike between any two passes, else at the beginning of a beat.
	anywhere bool

	states, steps, deepest, ends int
	byFaults                     [3]int
	outcomes                     map[string]int
	wrong                        []string
	limit                        time.Duration // of processor time, 0 for none
	stopped                      bool
}

// place is where a walk stands, beside what freezes.
type place struct {
	passed [processes]bool // which processes have passed in this beat
	begun  bool            // one of the controller, s1 and v1 has
	struck int             // faults so far
	since  int             // beats since the last fault
	beats  int             // not part of the state
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
	h.Period, h.OperationTimeout, h.SnapshotTimeout, h.HandOver = beat, p.OperationTimeout, p.SnapshotTimeout, 2*beat
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
	k := &walk{w: w, visited: map[digest]bool{}, outcomes: map[string]int{}}
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
	k.freezer = &freezer{flat: map[reflect.Type]bool{}, anchor: func(t reflect.Type) bool {
		return own[t] || t.String() == "observe.Observer" || t.String() == "execute.Executor"
	}}
	k.canon = newCanon(w, k.boss, k.daemons)
	for _, d := range k.daemons {
		k.started = append(k.started, k.freezer.freeze(d).only("hostd.Daemon", "sim.HostAPI"))
	}
	k.fresh = k.freezer.freeze(k.boss)
	// The controller's world is the one that goes on; only what it keeps is put back.
	k.fresh = k.fresh.only("controller.Controller", "observe.Observer", "execute.Executor")
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

// only are the anchors of these types.
func (f frozen) only(types ...string) frozen {
	var out frozen
	for i, p := range f.at {
		if slices.Contains(types, p.Type().Elem().String()) {
			out.at, out.contents = append(out.at, p), append(out.contents, f.contents[i])
		}
	}
	return out
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
	return i == 0 || slices.ContainsFunc(of(i), k.runs)
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
	k.pos.passed[i] = true
	k.pos.begun = k.pos.begun || i != staying
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

// faultsNow are the faults that may strike here.
func (k *walk) faultsNow() []walkFault {
	if k.pos.struck == k.budget || k.pos.begun && !k.anywhere || k.pos.struck > 0 && k.pos.since > k.within {
		return nil
	}
	var may []walkFault
	for _, f := range k.faults {
		if f.may == nil || f.may(k) {
			may = append(may, f)
		}
	}
	return may
}

func (k *walk) beat() {
	k.pos.beats++
	k.pos.since++
	k.pos.passed, k.pos.begun = [processes]bool{}, false
	var left []dueBeat
	for _, d := range k.pos.due {
		if d.in--; d.in > 0 {
			left = append(left, d)
		} else {
			k.end(d)
		}
	}
	k.pos.due = left
	k.w.Advance(beat)
}

// digest is the state that the walk stands in.
func (k *walk) digest() digest {
	since := 0
	if k.pos.struck > 0 {
		since = min(k.pos.since, max(k.within, k.orders)+1)
	}
	own := fmt.Append(nil, k.pos.struck, since, k.pos.due, k.pos.begun, k.pos.passed[staying])
	return k.canon.of(own, k.w, k.boss, k.daemons[0], k.daemons[1], k.daemons[2], k.daemons[3])
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

// explore walks on from a state that was not seen before, depth first.
func (k *walk) explore(d digest) {
	k.visited[d] = true
	k.states++
	k.byFaults[k.pos.struck]++
	k.deepest = max(k.deepest, k.pos.beats)
	if k.limit > 0 && k.states%64 == 0 && spent() > k.limit {
		k.stopped = true
	}
	if v := k.w.guard.violations; len(v) > 0 {
		k.fail(v[0].String())
		return
	}
	if k.over() {
		k.ends++
		k.outcome()
		return
	}
	here, pos := k.freezer.freeze(k.w, k.boss, k.daemons[0], k.daemons[1], k.daemons[2], k.daemons[3]), k.pos
	// try does one thing, walks on from what came of it, and says whether anything did.
	try := func(name string, do func()) bool {
		k.freezer.thaw(here)
		k.pos = pos
		k.pos.due = slices.Clone(pos.due)
		k.w.log = k.w.log[:0]
		k.path = append(k.path, name)
		k.steps++
		do()
		next := k.digest()
		if !k.visited[next] && !k.halted() {
			k.explore(next)
		}
		k.path = k.path[:len(k.path)-1]
		return next != d
	}
	ready := true
	for i := range processes {
		if k.halted() {
			return
		}
		k.freezer.thaw(here)
		k.pos = pos
		if !k.alive(i) {
			continue
		}
		if !k.bursts && i == staying && pos.begun && !pos.passed[i] && !ready {
			ready = false
			continue
		}
		changed := try(names[i], func() { k.pass(i) })
		ready = ready && !changed
		if changed && pos.struck > 0 && pos.since > k.orders {
			break // one order is enough so long after the fault
		}
	}
	if ready && !k.halted() {
		try("beat", k.beat)
	}
	k.freezer.thaw(here)
	k.pos = pos
	for _, f := range k.faultsNow() {
		if k.halted() {
			return
		}
		try("! "+f.name, func() {
			k.pos.struck++
			k.pos.since = 0
			f.do(k)
		})
	}
}

// spent is this process's processor time: the machine may be busy with others.
func spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (k *walk) halted() bool { return k.stopped || len(k.wrong) > 0 }

// outcome counts how the swap ended.
func (k *walk) outcome() {
	what := "no outcome"
	if st, err := status.ParseStatus([]byte(k.w.api.ConfigMaps[fleet.ConfigMapStatus].Data[fleet.KeyStatus])); err == nil && st.LastSwap != nil {
		what = string(st.LastSwap.Outcome)
		if len(st.LastSwap.Reasons) > 0 {
			what += ", " + st.LastSwap.Reasons[0].Code
		}
	}
	k.outcomes[what]++
}

func (k *walk) fail(what string) {
	k.wrong = append(k.wrong, what+"\n  by "+strings.Join(k.path, ", "))
}
