package hostcmd

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
)

// levelCluster is the API by the level half's own credential, as it stands on the disk
// now: a daemon without one does all the rest, and says what it lacks when a step is due.
type levelCluster struct {
	s settings.Host

	mu    sync.Mutex
	api   *kube.Client
	stamp time.Time
}

func (c *levelCluster) get() (*kube.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := private(c.s.Levels.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if c.api != nil && stamp.Equal(c.stamp) {
		return c.api, nil
	}
	var own []string
	if u, err := url.Parse(c.s.Join[c.s.Node]); err == nil && u.Hostname() != "" {
		own = append(own, u.Hostname())
	}
	api, err := kube.ConnectLevel(
		kube.Access{Kubeconfig: c.s.Levels.Kubeconfig, Servers: c.s.Servers, UserAgent: "regrade-level"},
		kube.Options{Namespace: c.s.Namespace, ActuatorConfigMap: c.s.ConfigMap}, own)
	if err != nil {
		return nil, err
	}
	c.api, c.stamp = api, stamp
	return api, nil
}

// asked asks the API, once there is one.
func asked[T any](c *levelCluster, f func(*kube.Client) (T, error)) (T, error) {
	api, err := c.get()
	if err != nil {
		var none T
		return none, err
	}
	return f(api)
}

// Date implements hostd.LevelAPI: the Date of the last answer, zero before the first.
func (c *levelCluster) Date() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api == nil {
		return time.Time{}
	}
	return c.api.Date()
}

// Node implements hostd.LevelAPI.
func (c *levelCluster) Node(ctx context.Context, name string) (n observe.Node, found bool, err error) {
	n, err = asked(c, func(k *kube.Client) (n observe.Node, err error) {
		n, found, err = k.Node(ctx, name)
		return n, err
	})
	return n, found, err
}

// Nodes implements hostd.LevelAPI.
func (c *levelCluster) Nodes(ctx context.Context) ([]observe.Node, error) {
	return asked(c, func(k *kube.Client) ([]observe.Node, error) { return k.Nodes(ctx) })
}

// Lease implements hostd.LevelAPI.
func (c *levelCluster) Lease(ctx context.Context) (observe.Lease, error) {
	return asked(c, func(k *kube.Client) (observe.Lease, error) { return k.Lease(ctx) })
}

// ConfigMap implements hostd.LevelAPI.
func (c *levelCluster) ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error) {
	return asked(c, func(k *kube.Client) (observe.ConfigMap, error) { return k.ConfigMap(ctx, name) })
}

// Pods implements hostd.LevelAPI.
func (c *levelCluster) Pods(ctx context.Context, node string) ([]observe.Pod, error) {
	return asked(c, func(k *kube.Client) ([]observe.Pod, error) { return k.Pods(ctx, node) })
}

// TryEvict implements hostd.LevelAPI.
func (c *levelCluster) TryEvict(ctx context.Context, p observe.Pod) (string, error) {
	return asked(c, func(k *kube.Client) (string, error) { return k.TryEvict(ctx, p) })
}

// Evict implements hostd.LevelAPI.
func (c *levelCluster) Evict(ctx context.Context, p observe.Pod) (string, error) {
	return asked(c, func(k *kube.Client) (string, error) { return k.Evict(ctx, p) })
}

// PatchNode implements hostd.LevelAPI.
func (c *levelCluster) PatchNode(ctx context.Context, name, version string, p execute.NodePatch) error {
	_, err := asked(c, func(k *kube.Client) (struct{}, error) { return struct{}{}, k.PatchNode(ctx, name, version, p) })
	return err
}

// PutLease implements hostd.LevelAPI.
func (c *levelCluster) PutLease(ctx context.Context, version string, l lease.Lease) error {
	_, err := asked(c, func(k *kube.Client) (struct{}, error) { return struct{}{}, k.PutLease(ctx, version, l) })
	return err
}
