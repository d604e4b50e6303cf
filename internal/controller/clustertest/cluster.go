// Package clustertest is an API server in memory, in regrade's own types, for
// the tests of what observes, executes and decides. Like the real one it
// refuses a write whose resourceVersion is stale, and it fails where a test
// tells it to. Its state can be written as JSON, so that a script can begin with
// one. The suite in conformance.go holds it to what internal/kube does.
package clustertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// Pod is a pod with where it runs and what keeps it from being evicted.
type Pod struct {
	observe.Pod
	Node   string
	Budget string `json:",omitempty"`
}

// State is what the server holds.
type State struct {
	Nodes     map[string]observe.Node
	Lease     observe.Lease
	Maps      map[string]observe.ConfigMap
	Beats     map[string]observe.Heartbeat
	Pods      []Pod                `json:",omitempty"`
	Kubelets  map[string]time.Time `json:",omitempty"`
	Snapshots []swap.Snapshot      `json:",omitempty"`
	Survey    Survey               `json:",omitzero"`
	// Version is the last resourceVersion given.
	Version int
}

// Cluster implements observe.Cluster, execute.Cluster and controller.Waker.
type Cluster struct {
	mu    sync.Mutex
	state State
	calls []string

	// Clock is the server's; nil is time.Now.
	Clock func() time.Time
	// Hook is called before each call with its name, such as "PatchNode n1"; an
	// error fails the call. It may change the state: that is a race.
	Hook func(call string) error
	// Beating renews every heartbeat whenever they are listed.
	Beating bool

	wake chan struct{}
}

// New serves a state.
func New(s State) *Cluster {
	c := &Cluster{state: s, wake: make(chan struct{}, 1)}
	if c.state.Nodes == nil {
		c.state.Nodes = map[string]observe.Node{}
	}
	if c.state.Maps == nil {
		c.state.Maps = map[string]observe.ConfigMap{}
	}
	if c.state.Beats == nil {
		c.state.Beats = map[string]observe.Heartbeat{}
	}
	if c.state.Kubelets == nil {
		c.state.Kubelets = map[string]time.Time{}
	}
	for name, n := range c.state.Nodes {
		n.Name, n.Version = name, c.next()
		c.state.Nodes[name] = n
	}
	for name, m := range c.state.Maps {
		m.Exists, m.Version = true, c.next()
		c.state.Maps[name] = m
	}
	if c.state.Lease.Exists {
		c.state.Lease.Version = c.next()
	}
	return c
}

func (c *Cluster) next() string {
	c.state.Version++
	return strconv.Itoa(c.state.Version)
}

// Edit changes the state as another client would. The versions of Nodes, maps
// and Lease are renewed.
func (c *Cluster) Edit(f func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
	for name, n := range c.state.Nodes {
		n.Name, n.Version = name, c.next()
		c.state.Nodes[name] = n
	}
	for name, m := range c.state.Maps {
		m.Version = c.next()
		c.state.Maps[name] = m
	}
	c.state.Lease.Version = ""
	if c.state.Lease.Exists {
		c.state.Lease.Version = c.next()
	}
}

// State is a copy of what the server holds.
func (c *Cluster) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Nodes, s.Maps, s.Beats = maps.Clone(s.Nodes), maps.Clone(s.Maps), maps.Clone(s.Beats)
	s.Kubelets, s.Pods, s.Snapshots = maps.Clone(s.Kubelets), slices.Clone(s.Pods), slices.Clone(s.Snapshots)
	return s
}

// Calls are the calls since the last one of Calls, in order.
func (c *Cluster) Calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// Poke wakes whoever waits.
func (c *Cluster) Poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Wake implements controller.Waker.
func (c *Cluster) Wake(context.Context) <-chan struct{} { return c.wake }

func (c *Cluster) call(ctx context.Context, name string) error {
	c.mu.Lock()
	c.calls = append(c.calls, name)
	hook := c.Hook
	c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if hook != nil {
		return hook(name)
	}
	return nil
}

// Date implements observe.Cluster: whole seconds, as in the header.
func (c *Cluster) Date() time.Time {
	now := c.Clock
	if now == nil {
		now = time.Now
	}
	return now().UTC().Truncate(time.Second)
}

// Nodes implements observe.Cluster.
func (c *Cluster) Nodes(ctx context.Context) ([]observe.Node, error) {
	if err := c.call(ctx, "Nodes"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []observe.Node
	for _, n := range c.state.Nodes {
		out = append(out, copied(n))
	}
	return out, nil
}

func copied(n observe.Node) observe.Node {
	n.Labels, n.Annotations, n.Taints = maps.Clone(n.Labels), maps.Clone(n.Annotations), slices.Clone(n.Taints)
	return n
}

// Node implements execute.Cluster.
func (c *Cluster) Node(ctx context.Context, name string) (observe.Node, bool, error) {
	if err := c.call(ctx, "Node "+name); err != nil {
		return observe.Node{}, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.state.Nodes[name]
	return copied(n), ok, nil
}

// Lease implements observe.Cluster.
func (c *Cluster) Lease(ctx context.Context) (observe.Lease, error) {
	if err := c.call(ctx, "Lease"); err != nil {
		return observe.Lease{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.state.Lease
	l.Annotations = maps.Clone(l.Annotations)
	return l, nil
}

// ConfigMap implements observe.Cluster.
func (c *Cluster) ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error) {
	if err := c.call(ctx, "ConfigMap "+name); err != nil {
		return observe.ConfigMap{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.state.Maps[name]
	m.Data = maps.Clone(m.Data)
	return m, nil
}

// Heartbeats implements observe.Cluster.
func (c *Cluster) Heartbeats(ctx context.Context) ([]observe.Heartbeat, error) {
	if err := c.call(ctx, "Heartbeats"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []observe.Heartbeat
	for node, b := range c.state.Beats {
		if !b.Probe {
			b.Node = node // a probe's stands under a key of its own
		}
		if c.Beating {
			b.Renewed = b.Renewed.Add(time.Second)
			c.state.Beats[node] = b
		}
		out = append(out, b)
	}
	return out, nil
}

// Pods implements observe.Cluster.
func (c *Cluster) Pods(ctx context.Context, node string) ([]observe.Pod, error) {
	if err := c.call(ctx, "Pods "+node); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []observe.Pod
	for _, p := range c.state.Pods {
		if p.Node == node {
			out = append(out, p.Pod)
		}
	}
	return out, nil
}

// TryEvict implements observe.Cluster.
func (c *Cluster) TryEvict(ctx context.Context, pod observe.Pod) (string, error) {
	return c.evict(ctx, "TryEvict ", pod, false)
}

// Evict implements execute.Cluster.
func (c *Cluster) Evict(ctx context.Context, pod observe.Pod) (string, error) {
	return c.evict(ctx, "Evict ", pod, true)
}

func (c *Cluster) evict(ctx context.Context, call string, pod observe.Pod, really bool) (string, error) {
	if err := c.call(ctx, call+pod.Namespace+"/"+pod.Name); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.state.Pods, func(p Pod) bool { return p.Namespace == pod.Namespace && p.Name == pod.Name })
	if i < 0 {
		return "", nil
	}
	if b := c.state.Pods[i].Budget; b != "" {
		return b, nil
	}
	if really {
		c.state.Pods = slices.Delete(c.state.Pods, i, i+1)
	}
	return "", nil
}

// KubeletRenewed implements observe.Cluster.
func (c *Cluster) KubeletRenewed(ctx context.Context, node string) (time.Time, error) {
	if err := c.call(ctx, "KubeletRenewed "+node); err != nil {
		return time.Time{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Kubelets[node], nil
}

// Snapshots implements observe.Cluster.
func (c *Cluster) Snapshots(ctx context.Context) ([]swap.Snapshot, error) {
	if err := c.call(ctx, "Snapshots"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.state.Snapshots), nil
}

// PatchNode implements execute.Cluster.
func (c *Cluster) PatchNode(ctx context.Context, name, version string, p execute.NodePatch) error {
	if err := c.call(ctx, "PatchNode "+name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.state.Nodes[name]
	if !ok || n.Version != version {
		return fmt.Errorf("patch node %s: %w", name, execute.ErrConflict)
	}
	n = copied(n)
	n.Labels, n.Annotations = patched(n.Labels, p.Labels), patched(n.Annotations, p.Annotations)
	if p.Unschedulable != nil {
		n.Unschedulable = *p.Unschedulable
	}
	n.Taints = slices.DeleteFunc(n.Taints, func(t swap.Taint) bool {
		return t.Key == p.DropTaint || p.AddTaint != nil && t.Key == p.AddTaint.Key && t.Effect == p.AddTaint.Effect
	})
	if p.AddTaint != nil {
		n.Taints = append(n.Taints, *p.AddTaint)
	}
	n.Version = c.next()
	c.state.Nodes[name] = n
	return nil
}

func patched(have map[string]string, want map[string]*string) map[string]string {
	if have == nil {
		have = map[string]string{}
	}
	for k, v := range want {
		if v == nil {
			delete(have, k)
		} else {
			have[k] = *v
		}
	}
	return have
}

// PutLease implements execute.Cluster.
func (c *Cluster) PutLease(ctx context.Context, version string, l lease.Lease) error {
	if err := c.call(ctx, "PutLease"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Lease.Version != version {
		return fmt.Errorf("put Lease: %w", execute.ErrConflict)
	}
	l.Exists, l.Annotations = true, maps.Clone(l.Annotations)
	c.state.Lease = observe.Lease{Lease: l, Version: c.next()}
	return nil
}

// PatchConfigMap implements execute.Cluster.
func (c *Cluster) PatchConfigMap(ctx context.Context, name, version string, keys map[string]*string) error {
	if err := c.call(ctx, "PatchConfigMap "+name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.state.Maps[name]
	if version != "" && m.Version != version {
		return fmt.Errorf("patch ConfigMap %s: %w", name, execute.ErrConflict)
	}
	c.state.Maps[name] = observe.ConfigMap{
		Exists: true, Version: c.next(), Data: patched(maps.Clone(m.Data), keys),
	}
	return nil
}
