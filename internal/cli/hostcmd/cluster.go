package hostcmd

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/status"
)

// cluster is the API by the credential as it stands on the disk now. A daemon
// without one still guards its host and finishes on a tombstone (R-216-21); one
// that is delivered or renewed is taken up without a restart.
type cluster struct {
	s    settings.Host
	wake chan struct{}

	mu      sync.Mutex
	api     *kube.HostAPI
	stamp   time.Time
	avoid   bool
	watches context.Context // nil: a command, which lists once
	stop    context.CancelFunc
}

func newCluster(s settings.Host) *cluster {
	return &cluster{s: s, wake: make(chan struct{}, 1)}
}

// private refuses a credential that others may read (R-D1-11, safety rule 31).
func private(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("kubeconfig: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return time.Time{}, fmt.Errorf("kubeconfig %s: its mode is %#o, want 0600", path, info.Mode().Perm())
	}
	return info.ModTime(), nil
}

// get connects when there is no connection by the present credential.
func (c *cluster) get() (*kube.HostAPI, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := private(c.s.Kubeconfig)
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
	api, err := kube.ConnectHost(
		kube.Access{Kubeconfig: c.s.Kubeconfig, Servers: c.s.Servers, UserAgent: "regrade-host"},
		kube.HostOptions{Node: c.s.Node, Namespace: c.s.Namespace, ConfigMap: c.s.ConfigMap, Own: own})
	if err != nil {
		return nil, err
	}
	api.Avoid(c.avoid)
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	c.api, c.stamp = api, stamp
	if c.watches != nil {
		ctx, stop := context.WithCancel(c.watches)
		c.stop = stop
		go api.Watch(ctx)
		go c.forward(ctx, api.Changed())
	}
	return api, nil
}

func (c *cluster) forward(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			select {
			case c.wake <- struct{}{}:
			default: // one is waiting already
			}
		}
	}
}

// Begin implements API.
func (c *cluster) Begin(ctx context.Context, watch bool) error {
	if watch {
		c.mu.Lock()
		c.watches = ctx
		c.mu.Unlock()
		return nil
	}
	api, err := c.get()
	if err != nil {
		return err
	}
	_, err = api.ListNodes(ctx)
	return err
}

// Read implements hostd.API.
func (c *cluster) Read(ctx context.Context) (hostapi.View, error) {
	api, err := c.get()
	if err != nil {
		return hostapi.View{}, err
	}
	return api.Read(ctx)
}

// Nodes implements hostd.API.
func (c *cluster) Nodes(ctx context.Context) ([]hostapi.Node, error) {
	api, err := c.get()
	if err != nil {
		return nil, err
	}
	return api.Nodes(ctx)
}

// WriteReport implements hostd.API.
func (c *cluster) WriteReport(ctx context.Context, r status.Report) error {
	api, err := c.get()
	if err != nil {
		return err
	}
	return api.WriteReport(ctx, r)
}

// WriteHeartbeat implements hostd.API.
func (c *cluster) WriteHeartbeat(ctx context.Context, b hostapi.Beat) error {
	api, err := c.get()
	if err != nil {
		return err
	}
	return api.WriteHeartbeat(ctx, b)
}

// Changed implements hostd.API.
func (c *cluster) Changed() <-chan struct{} { return c.wake }

// Avoid implements hostd.API.
func (c *cluster) Avoid(own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.avoid = own
	if c.api != nil {
		c.api.Avoid(own)
	}
}
