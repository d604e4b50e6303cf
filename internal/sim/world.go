package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Errors that the world gives besides those of the ports. ErrKilled ends a pass
// whose process a fault has killed: nothing it does after that has an effect.
var (
	ErrKilled      = errors.New("the process was killed")
	ErrUnreachable = errors.New("no API server answers")
)

// Config is the cluster a World begins with: voters, then standbys, all healthy.
type Config struct {
	Seed     uint64
	Voters   int
	Standbys int
	Start    time.Time
	Version  string // k3s version of every host
	Keys     fleet.Keys

	// Tick is how finely the world moves; PromotionTick, LearnerStall, Restart,
	// Election, GoneAfter and Serve are k3s's, etcd's and Kubernetes' own times.
	Tick          time.Duration
	PromotionTick time.Duration // 15 s (k3s-facts §4.1)
	LearnerStall  time.Duration // 5 min (k3s-facts §4.1)
	Restart       time.Duration // RestartSec, 5 s (k3s-facts §1.4)
	Election      time.Duration // 5 s (k3s-facts §11.1)
	GoneAfter     time.Duration // silence before a Node is NotReady, 40 s; a kubelet renews four times as often
	Serve         time.Duration // promoted until its etcd serves clients, 5 s (lab-notes)
	Kubelet       time.Duration // process start until the kubelet's first heartbeat
	Evict         time.Duration // eviction accepted until the pod is gone

	// TombstoneWhenDown: a member removed while down writes a tombstone when it
	// starts. Never seen on a real k3s (k3s-facts §5.3).
	TombstoneWhenDown bool

	// Datastore is etcd; nil is the one in memory.
	Datastore Datastore
	// Clock, when set, is followed: every call first moves the world up to it.
	Clock func() time.Time
}

// DefaultConfig has k3s's own times.
func DefaultConfig() Config {
	return Config{
		Seed: 1, Voters: 3, Standbys: 1,
		Start:         time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Version:       "v1.34.4+k3s1",
		Keys:          fleet.DefaultKeys(),
		Tick:          500 * time.Millisecond,
		PromotionTick: 15 * time.Second,
		LearnerStall:  5 * time.Minute,
		Restart:       5 * time.Second,
		Election:      5 * time.Second,
		GoneAfter:     40 * time.Second,
		Serve:         5 * time.Second,
		Kubelet:       3 * time.Second,
		Evict:         time.Second,
	}
}

// World is the cluster. Its methods may be called from several goroutines; the
// order of calls decides what happens, so a test calls from one.
type World struct {
	mu  sync.Mutex
	cfg Config
	rng *rand.Rand
	// coin is what falls one way or the other inside k3s; nil leaves it to chance.
	coin func() bool

	now, nextTick time.Time

	hosts []*Host
	api   *API
	etcd  Datastore
	k3s   k3s

	// noCondition drops the start conditions, as units without them would.
	noCondition bool

	// cut: the process whose pass is running has been killed. left counts the
	// effects it may still have before that; negative is no limit.
	cut  bool
	left int

	// dateOff is how far the API servers' clock is off; failing are the clients
	// whose writes fail.
	dateOff time.Duration
	clocks  map[string]time.Duration // of single API servers, besides
	failing map[string]failing

	log []Event
	// changes counts what was changed from outside k3s, or happened by itself.
	changes int
	watch   []func(Event)
	guard   *guard
	wakers  []*waker
	read    map[string]parsed // what the guard has read of records, by their text
}

// parsed is a record as read from its text.
type parsed struct {
	record status.Record
	err    error
}

// recordOf reads a record, each text once: the guard does after every event.
func (w *World) recordOf(text string) (status.Record, error) {
	p, known := w.read[text]
	if !known {
		if w.read == nil || len(w.read) > 1000 {
			w.read = map[string]parsed{}
		}
		p.record, p.err = status.ParseRecord(text)
		w.read[text] = p
	}
	return p.record, p.err
}

// Effect is one change made from outside k3s: by the controller (By is empty)
// or by the daemon of a host.
type Effect struct {
	By   string
	What string
	Node string
}

// Event is what happened, for a person and for the invariants. k3s's own doings
// have By "k3s", faults "fault".
type Event struct {
	At time.Time
	Effect
}

func (e Event) String() string {
	by := e.By
	if by == "" {
		by = "controller"
	}
	s := fmt.Sprintf("%s %s: %s", e.At.Format("15:04:05.0"), by, e.What)
	if e.Node != "" {
		s += " [" + e.Node + "]"
	}
	return s
}

// New makes a healthy cluster: voters v1, v2, ..., standbys s1, s2, ....
func New(cfg Config) (*World, error) {
	w := &World{
		cfg:  cfg,
		rng:  rand.New(rand.NewPCG(cfg.Seed, 0x5eed)),
		now:  cfg.Start,
		api:  newAPI(),
		k3s:  k3s{removedAt: map[fleet.MemberID]time.Time{}, unstarted: map[fleet.MemberID]time.Time{}},
		left: -1,

		failing: map[string]failing{}, clocks: map[string]time.Duration{},
	}
	w.nextTick = w.now.Add(cfg.Tick)
	w.etcd = cfg.Datastore
	if w.etcd == nil {
		w.etcd = newRaft(w)
	}
	for i := range cfg.Voters {
		w.addHost(fmt.Sprintf("v%d", i+1), i+1, fleet.RoleServer)
	}
	for i := range cfg.Standbys {
		w.addHost(fmt.Sprintf("s%d", i+1), cfg.Voters+i+1, fleet.RoleAgent)
	}
	slices.SortFunc(w.hosts, func(a, b *Host) int { return cmp.Compare(a.Name, b.Name) })
	if err := w.found(); err != nil {
		return nil, err
	}
	return w, nil
}

// Now is the virtual time, which is also the API server's Date unless a fault
// has set that off.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.follow()
	return w.now
}

// Names are the hosts' names, sorted.
func (w *World) Names() []string {
	names := make([]string, len(w.hosts))
	for i, h := range w.hosts {
		names[i] = h.Name
	}
	return names
}

// Advance moves the clock and everything that happens by itself.
func (w *World) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance(d)
}

func (w *World) advance(d time.Duration) {
	end := w.now.Add(d)
	for !w.nextTick.After(end) {
		w.now, w.nextTick = w.nextTick, w.nextTick.Add(w.cfg.Tick)
		w.tick()
	}
	w.now = end
}

// follow catches up with the outer clock, where there is one.
func (w *World) follow() {
	if w.cfg.Clock == nil {
		return
	}
	if d := w.cfg.Clock().Sub(w.now); d > 0 {
		w.advance(d)
	}
}

func (w *World) tick() {
	w.etcd.Tick(w.now)
	for _, h := range w.hosts {
		w.tickHost(h)
	}
	w.tickK3s()
	w.tickKubernetes()
	if w.guard != nil {
		w.guard.look(w, Event{At: w.now, Effect: Effect{By: "k3s", What: "time passes"}})
	}
}

// effect carries out one change from outside k3s, unless the process has been
// killed before it, and lets the invariants look at what came of it.
func (w *World) effect(e Effect, do func() error) error {
	if w.left == 0 {
		w.cut = true
		w.record(Effect{By: "fault", What: "killed before: " + e.What, Node: e.By})
		return fmt.Errorf("%s: %w", e.What, ErrKilled)
	}
	if w.left > 0 {
		w.left--
	}
	if err := do(); err != nil {
		return err
	}
	w.record(e)
	return nil
}

// record notes an event and shows it to the watchers and the invariants.
func (w *World) record(e Effect) {
	ev := Event{At: w.now, Effect: e}
	w.log = append(w.log, ev)
	w.changes++
	for _, f := range w.watch {
		f(ev)
	}
	w.wake(ev)
	if w.guard != nil {
		w.guard.look(w, ev)
	}
}

func (w *World) k3sDid(what, node string) { w.record(Effect{By: "k3s", What: what, Node: node}) }

// OnEvent calls f with every event, under the world's lock.
func (w *World) OnEvent(f func(Event)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch = append(w.watch, f)
}

// Log are the events so far.
func (w *World) Log() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

// KillAfter lets the process whose pass runs next have n more effects; the one
// after that and everything later fails with ErrKilled. Revive ends it.
func (w *World) KillAfter(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.cut = n, false
}

// Revive lifts KillAfter and says whether the process was killed.
func (w *World) Revive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.cut
	w.left, w.cut = -1, false
	return was
}

// heads is chance inside k3s.
func (w *World) heads() bool {
	if w.coin != nil {
		return w.coin()
	}
	return w.rng.IntN(2) == 0
}

// host returns a host by name, nil for the controller.
func (w *World) host(name string) *Host {
	for _, h := range w.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// reaches says whether a connection from one place to a host's ports goes
// through. The controller (empty) is on the network's side of a partition.
func (w *World) reaches(from, to string) bool {
	t := w.host(to)
	if t == nil || !t.Up || t.Paused {
		return false
	}
	if from == to {
		return true
	}
	if t.Isolated {
		return false
	}
	f := w.host(from)
	return f == nil || (f.Up && !f.Isolated)
}

// found makes the cluster as it is after a long quiet time.
func (w *World) found() error {
	w.api.ConfigMaps[fleet.ConfigMapActuators] = &ConfigMap{version: w.api.next(), Data: map[string]string{}}
	w.api.ConfigMaps[fleet.ConfigMapStatus] = &ConfigMap{version: w.api.next(), Data: map[string]string{}}
	for _, h := range w.hosts {
		n := &Node{Name: h.Name, ReadySince: w.now}
		n.Node = swap.Node{
			UID:            "uid-" + h.Name,
			Labels:         map[string]string{w.cfg.Keys.Eligible(): fleet.True},
			Annotations:    map[string]string{},
			Ready:          true,
			InternalIP:     h.IP,
			KubeletVersion: w.cfg.Version,
		}
		w.api.Nodes[h.Name] = n
		w.api.Kubelets[h.Name] = w.now
		if h.first == fleet.RoleServer {
			w.foundServer(h, n)
		}
		w.api.touch(n)
	}
	var seeds []Seed
	for _, h := range w.hosts {
		if h.first == fleet.RoleServer {
			seeds = append(seeds, Seed{Host: h.Name, Name: h.Data.Name})
		}
	}
	ids, err := w.etcd.Found(seeds)
	if err != nil {
		return fmt.Errorf("found the cluster: %w", err)
	}
	for i, s := range seeds {
		w.host(s.Host).Data.Member = ids[i]
	}
	w.etcd.Tick(w.now)
	return nil
}

// Voters are the voters' member ids by host, as etcd has committed them.
func (w *World) Voters() map[string]fleet.MemberID {
	w.mu.Lock()
	defer w.mu.Unlock()
	voters := map[string]fleet.MemberID{}
	members, _ := w.etcd.Members()
	for _, m := range members {
		if h := w.memberHost(m); h != nil && !m.Learner {
			voters[h.Name] = m.ID
		}
	}
	return voters
}
