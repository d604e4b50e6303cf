package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// Cluster is the API as a client at a place sees it: the controller's port
// (observe.Cluster and execute.Cluster) in front of the world.
type Cluster struct {
	w    *World
	from string
	gate Gate
}

// Controller is the API as the controller sees it.
func (w *World) Controller() *Cluster { return &Cluster{w: w} }

// LevelAPI is the API as the level half of a host's daemon sees it.
func (w *World) LevelAPI(name string) *Cluster { return &Cluster{w: w, from: name} }

var (
	_ observe.Cluster = (*Cluster)(nil)
	_ execute.Cluster = (*Cluster)(nil)
)

// read runs f under the lock after a request that an API server answered.
func (c *Cluster) read(ctx context.Context, what string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := c.gate.pass(what); err != nil {
		return err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if err := c.w.request(c.from, what); err != nil {
		return err
	}
	return f()
}

// write is a read with one effect.
func (c *Cluster) write(ctx context.Context, what, node string, may func() error, do func()) error {
	return c.read(ctx, what, func() error {
		if err := may(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return c.w.apiWrite(Effect{By: c.from, What: what, Node: node}, do)
	})
}

// Nodes implements observe.Cluster.
func (c *Cluster) Nodes(ctx context.Context) (nodes []observe.Node, err error) {
	err = c.read(ctx, "list nodes", func() error {
		for _, name := range c.w.api.names() {
			nodes = append(nodes, c.w.api.node(name).read())
		}
		return nil
	})
	return nodes, err
}

// Node implements execute.Cluster.
func (c *Cluster) Node(ctx context.Context, name string) (node observe.Node, found bool, err error) {
	err = c.read(ctx, "get node "+name, func() error {
		if n := c.w.api.node(name); n != nil {
			node, found = n.read(), true
		}
		return nil
	})
	return node, found, err
}

// Lease implements both ports.
func (c *Cluster) Lease(ctx context.Context) (l observe.Lease, err error) {
	err = c.read(ctx, "get lease", func() error {
		l.Lease, l.Version = c.w.api.Lease, version(c.w.api.leaseAt)
		l.Annotations = maps.Clone(l.Annotations)
		return nil
	})
	return l, err
}

// ConfigMap implements both ports.
func (c *Cluster) ConfigMap(ctx context.Context, name string) (cm observe.ConfigMap, err error) {
	err = c.read(ctx, "get configmap "+name, func() error {
		cm = c.w.api.configMap(name)
		return nil
	})
	return cm, err
}

// Heartbeats implements observe.Cluster.
func (c *Cluster) Heartbeats(ctx context.Context) (beats []observe.Heartbeat, err error) {
	err = c.read(ctx, "list heartbeats", func() error {
		for _, name := range slices.Sorted(maps.Keys(c.w.api.Heartbeats)) {
			beats = append(beats, c.w.api.Heartbeats[name])
		}
		return nil
	})
	return beats, err
}

// Pods implements both ports.
func (c *Cluster) Pods(ctx context.Context, node string) (pods []observe.Pod, err error) {
	err = c.read(ctx, "list pods of "+node, func() error {
		for _, p := range c.w.api.Pods {
			if p.Node == node {
				q := p.Pod
				q.Labels = maps.Clone(p.Labels)
				pods = append(pods, q)
			}
		}
		return nil
	})
	return pods, err
}

func (w *World) pod(p observe.Pod) *Pod {
	for _, q := range w.api.Pods {
		if q.UID == p.UID {
			return q
		}
	}
	return nil
}

// TryEvict implements both ports.
func (c *Cluster) TryEvict(ctx context.Context, pod observe.Pod) (refusal string, err error) {
	err = c.read(ctx, "try to evict "+pod.Name, func() error {
		if p := c.w.pod(pod); p != nil {
			refusal = p.Blocked
		}
		return nil
	})
	return refusal, err
}

// Evict implements execute.Cluster.
func (c *Cluster) Evict(ctx context.Context, pod observe.Pod) (refusal string, err error) {
	err = c.read(ctx, "evict "+pod.Name, func() error {
		p := c.w.pod(pod)
		if p == nil {
			return nil
		}
		if refusal = p.Blocked; refusal != "" {
			return nil
		}
		return c.w.apiWrite(Effect{By: c.from, What: "evict " + pod.Name, Node: p.Node}, func() {
			if p.evicted.IsZero() {
				p.evicted, p.Terminating = c.w.now, true
			}
		})
	})
	return refusal, err
}

// PatchNode implements execute.Cluster.
func (c *Cluster) PatchNode(ctx context.Context, name, at string, p execute.NodePatch) error {
	var n *Node
	return c.write(ctx, "patch node: "+describe(p), name, func() error {
		n = c.w.api.node(name)
		if n == nil || version(n.version) != at {
			return execute.ErrConflict
		}
		return nil
	}, func() {
		apply(n.Labels, p.Labels)
		apply(n.Annotations, p.Annotations)
		if p.Unschedulable != nil {
			n.Unschedulable = *p.Unschedulable
		}
		if p.DropTaint != "" {
			n.Taints = slices.DeleteFunc(n.Taints, func(t swap.Taint) bool { return t.Key == p.DropTaint })
		}
		if t := p.AddTaint; t != nil {
			n.Taints = slices.DeleteFunc(n.Taints, func(o swap.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect })
			n.Taints = append(n.Taints, *t)
		}
		c.w.api.touch(n)
	})
}

// PutLease implements execute.Cluster.
func (c *Cluster) PutLease(ctx context.Context, at string, l lease.Lease) error {
	what := "release lease"
	if l.Holder != "" {
		what = "lease held by " + l.Holder
	}
	return c.write(ctx, what, "", func() error {
		if version(c.w.api.leaseAt) != at {
			return execute.ErrConflict
		}
		return nil
	}, func() {
		l.Exists, l.Annotations = true, maps.Clone(l.Annotations)
		c.w.api.Lease, c.w.api.leaseAt = l, c.w.api.next()
	})
}

// PatchConfigMap implements execute.Cluster.
func (c *Cluster) PatchConfigMap(ctx context.Context, name, at string, keys map[string]*string) error {
	return c.write(ctx, "write configmap "+name, "", func() error {
		if at != "" && c.w.api.configMap(name).Version != at {
			return execute.ErrConflict
		}
		return nil
	}, func() { c.w.api.setKeys(name, keys) })
}

// KubeletRenewed implements observe.Cluster.
func (c *Cluster) KubeletRenewed(ctx context.Context, node string) (at time.Time, err error) {
	err = c.read(ctx, "get kubelet lease "+node, func() error {
		at = c.w.api.Kubelets[node]
		return nil
	})
	return at, err
}

// Snapshots implements observe.Cluster.
func (c *Cluster) Snapshots(ctx context.Context) (s []swap.Snapshot, err error) {
	err = c.read(ctx, "list etcd snapshots", func() error {
		s = slices.Clone(c.w.api.Snapshots)
		return nil
	})
	return s, err
}

// Date implements observe.Cluster.
func (c *Cluster) Date() time.Time {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.follow()
	return c.w.dateOf(c.from, false).UTC().Truncate(time.Second)
}

// describe names a patch's changes, sorted, for the log of events.
func describe(p execute.NodePatch) string {
	var parts []string
	for _, m := range []map[string]*string{p.Labels, p.Annotations} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			switch v := m[k]; {
			case v == nil:
				parts = append(parts, k+"-")
			case len(*v) > 60:
				parts = append(parts, k+"=...")
			default:
				parts = append(parts, k+"="+*v)
			}
		}
	}
	if p.Unschedulable != nil {
		parts = append(parts, fmt.Sprintf("unschedulable=%t", *p.Unschedulable))
	}
	if p.AddTaint != nil {
		parts = append(parts, "+taint "+p.AddTaint.Key)
	}
	if p.DropTaint != "" {
		parts = append(parts, "-taint "+p.DropTaint)
	}
	return fmt.Sprint(parts)
}
