package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// cluster is the real controller and a real host daemon a host, on simulated
// hosts and a simulated API, with real etcd members behind.
type cluster struct {
	world *sim.World
	etcd  *datastore
	judge *judge
	say   *narrator
	hostd hostd.Policy

	ctx     context.Context
	running sync.WaitGroup
	mu      sync.Mutex
	daemons map[string]context.CancelFunc
	turn    controller.Turn
}

func newCluster(ctx context.Context, o options, t timing, d *datastore, say *narrator) (*cluster, error) {
	cfg := sim.DefaultConfig()
	cfg.Voters, cfg.Standbys = o.voters(), o.hosts-o.voters()
	cfg.Start, cfg.Clock, cfg.Datastore = time.Now(), time.Now, d
	cfg.Tick, cfg.PromotionTick, cfg.GoneAfter = 100*time.Millisecond, t.promotion, t.gone
	cfg.Restart, cfg.Kubelet, cfg.Evict = time.Second, time.Second, 500*time.Millisecond
	w, err := sim.New(cfg)
	if err != nil {
		return nil, err
	}
	c := &cluster{world: w, etcd: d, say: say, ctx: ctx, daemons: map[string]context.CancelFunc{}}
	c.hostd = hostd.DefaultPolicy()
	c.hostd.Period, c.hostd.JoinURLs = time.Second, w.JoinURLs()
	urls := map[string]string{}
	for _, n := range d.nodes {
		urls[n.host] = n.peerURL() + "/version"
	}
	c.judge = newJudge(newProbes(urls, t.window, t.period()), t)
	w.OnEvent(say.event)
	return c, nil
}

// start runs everything until the context ends; wait waits for that.
func (c *cluster) start(t timing) {
	p := swap.DefaultPolicy()
	p.Target, p.DryRun, p.Period, p.Cooldown = len(c.world.Voters()), false, time.Second, 2*time.Second
	boss := controller.New(c.world.Controller(), controller.Rules{
		Next: swap.Next, MayRemove: swap.MayRemove, Judge: c.judge.judge,
	}, controller.Settings{Self: "demo-controller", Policy: p, Protected: protected})
	c.spawn(func() {
		boss.Run(c.ctx, c.world.Controller(), func(t controller.Turn) {
			c.mu.Lock()
			c.turn = t
			c.mu.Unlock()
			c.say.turn(t, c.judge)
		})
	})
	c.spawn(func() { // the world moves by itself
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-c.ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				c.world.Now()
			}
		}
	})
	c.spawn(func() { c.judge.probes.run(c.ctx, t.sample) })
	for _, name := range c.world.Names() {
		c.startDaemon(name)
	}
}

func (c *cluster) spawn(f func()) {
	c.running.Add(1)
	go func() { defer c.running.Done(); f() }()
}

func (c *cluster) startDaemon(name string) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	c.daemons[name] = cancel
	c.mu.Unlock()
	w := c.world
	d := hostd.New(hostd.Settings{
		Node: name, Policy: c.hostd,
		Host: w.Machine(name), API: w.HostAPI(name), Etcd: fresh{w.HostEtcd(name), c.etcd, name},
		Ways: w.Ways(name), Lock: w.HostLock(name),
	})
	c.spawn(func() { _ = d.Run(ctx) }) // its errors are its host's death
}

// crash takes a host's power, its daemon and its etcd; boot brings it back.
func (c *cluster) crash(name string) {
	c.mu.Lock()
	c.daemons[name]()
	c.mu.Unlock()
	c.world.Crash(name)
	c.world.DaemonDied(name)
}

func (c *cluster) boot(name string) {
	c.etcd.nodes[name].link.restore()
	c.world.Boot(name)
	c.startDaemon(name)
}

// pods puts some work on the two hosts of the coming swap.
func (c *cluster) pods(out, in string, job time.Duration) {
	key, value, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
	c.world.AddPod(sim.Pod{Node: out, Ends: time.Now().Add(job), Pod: observe.Pod{
		Namespace: "runners", Name: "job", UID: "job", Owner: "EphemeralRunner", Labels: map[string]string{key: value},
	}})
	for _, host := range []string{out, in} {
		c.world.AddPod(sim.Pod{Node: host, Pod: observe.Pod{Namespace: "default", Name: "web-" + host, UID: host, Owner: "ReplicaSet"}})
	}
}

func protected(labels map[string]string) bool {
	key, value, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
	return labels[key] == value
}

// state is what the last pass of the controller saw and decided.
func (c *cluster) state() controller.Turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turn
}

// lastSwap reads the published outcome, nil before there is one.
func (c *cluster) lastSwap() *status.LastSwap {
	cm, err := c.world.Controller().ConfigMap(c.ctx, fleet.ConfigMapStatus)
	if err != nil {
		return nil
	}
	var s status.Status
	if json.Unmarshal([]byte(cm.Data[fleet.KeyStatus]), &s) != nil {
		return nil
	}
	return s.LastSwap
}

// until waits for something, or says that it did not come.
func (c *cluster) until(within time.Duration, what string, ok func() bool) error {
	deadline := time.After(within)
	for !ok() {
		select {
		case <-c.ctx.Done():
			if errors.Is(c.ctx.Err(), context.Canceled) {
				return c.ctx.Err()
			}
			return c.late("the time for the whole demo is over", what)
		case <-deadline:
			return c.late("not within "+within.String(), what)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// late names what did not come and where the controller stands instead.
func (c *cluster) late(when, what string) error {
	d := c.state().Decision
	return fmt.Errorf("%s: %s (the controller is at %s: %s; waits %v)", when, what, d.State, d.Sentence, d.Waits)
}
