package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// HostOptions make a HostAPI.
type HostOptions struct {
	Node      string
	Namespace string // empty: fleet.DefaultNamespace
	ConfigMap string // empty: fleet.ConfigMapActuators
	// Own are this host's own addresses and names: a server among the candidates
	// that is one of them is left out while the host avoids it.
	Own []string
}

// HostAPI is the host daemon's half: own Node and Lease from a quorum, all
// Nodes from a watch, the report and the heartbeat (R-D1-07, R-D1-09,
// R-216-11). It needs get, list and watch on nodes, get on the regrade Lease,
// get and patch on the one ConfigMap, and create, get and patch on Leases of
// regrade's namespace.
type HostAPI struct {
	o      HostOptions
	all    *Connection
	others *Connection // without this host itself; nil when that leaves none
	avoid  atomic.Bool

	mu     sync.Mutex
	nodes  map[string]hostapi.Node
	listed bool
	wake   chan struct{}
}

// ConnectHost connects. Watching begins with Watch.
func ConnectHost(a Access, o HostOptions) (*HostAPI, error) {
	if len(a.Servers) == 0 {
		return nil, errors.New("kubernetes access: no API servers to try")
	}
	all, err := Connect(a)
	if err != nil {
		return nil, err
	}
	rest := a.without(o.Own)
	var others *Connection
	switch {
	case len(rest.Servers) == len(a.Servers):
		others = all
	case len(rest.Servers) > 0:
		if others, err = Connect(rest); err != nil {
			return nil, err
		}
	}
	return newHostAPI(all, others, o), nil
}

// without leaves a host's own API server out.
func (a Access) without(own []string) Access {
	a.Servers = slices.DeleteFunc(slices.Clone(a.Servers), func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && slices.Contains(append([]string{"localhost", "127.0.0.1", "::1"}, own...), u.Hostname())
	})
	return a
}

// ConnectLevel connects the level half of a host daemon, to the other hosts' API servers
// alone: the own one is what its steps stop and start (R-112-17).
func ConnectLevel(a Access, o Options, own []string) (*Client, error) {
	rest := a.without(own)
	if len(rest.Servers) == 0 {
		return nil, errors.New("kubernetes access: no API server but this host's own is configured")
	}
	conn, err := Connect(rest)
	if err != nil {
		return nil, err
	}
	return NewClient(conn, o), nil
}

func newHostAPI(all, others *Connection, o HostOptions) *HostAPI {
	if o.Namespace == "" {
		o.Namespace = fleet.DefaultNamespace
	}
	if o.ConfigMap == "" {
		o.ConfigMap = fleet.ConfigMapActuators
	}
	return &HostAPI{o: o, all: all, others: others, wake: make(chan struct{}, 1)}
}

// Avoid leaves this host's own API server out from now on, or takes it back in.
func (h *HostAPI) Avoid(own bool) { h.avoid.Store(own) }

// Changed gives a value when a watched Node changed.
func (h *HostAPI) Changed() <-chan struct{} { return h.wake }

func (h *HostAPI) conn() (*Connection, error) {
	if !h.avoid.Load() {
		return h.all, nil
	}
	if h.others == nil {
		return nil, errors.New("no API server but this host's own is configured, and that one is on its way out")
	}
	return h.others, nil
}

// did looks at what a server answered: one that does not know this host's credentials,
// or is too busy for it, is left for the next that is ready. One that answers with an
// error of its own, as an etcd-only server's 503, the transport has left already.
func did(c *Connection, err error) error {
	if err == nil {
		return nil
	}
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok {
		if code := s.Status().Code; code == 401 || code == 429 {
			c.Transport.leave()
		}
	}
	return err
}

// leave doubts the server that is used now.
func (t *Transport) leave() {
	t.mu.Lock()
	i := t.current
	t.mu.Unlock()
	t.doubt(i)
}

// Read implements hostd.API: two reads without a resourceVersion.
func (h *HostAPI) Read(ctx context.Context) (hostapi.View, error) {
	c, err := h.conn()
	if err != nil {
		return hostapi.View{}, err
	}
	var v hostapi.View
	one, cancel := bounded(ctx)
	defer cancel()
	var n corev1.Node
	err = c.Client.Get(one, client.ObjectKey{Name: h.o.Node}, &n)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return hostapi.View{}, fmt.Errorf("get node %s: %w", h.o.Node, did(c, err))
	default:
		self := fromNode(&n).Node
		v.Self = &self
	}
	two, cancel := bounded(ctx)
	defer cancel()
	var l coordinationv1.Lease
	err = c.Client.Get(two, leaseKey(), &l)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return hostapi.View{}, fmt.Errorf("get Lease %s: %w", leaseKey(), did(c, err))
	default:
		v.Lease = fromLease(&l)
	}
	v.Date, v.Server = c.Transport.Date(), c.Transport.Server()
	if v.Date.IsZero() {
		return hostapi.View{}, fmt.Errorf("API server %s: its answers carry no Date", v.Server)
	}
	return v, nil
}

// WriteReport implements hostd.API.
func (h *HostAPI) WriteReport(ctx context.Context, r status.Report) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{h.o.Node: string(raw)}})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	c, err := h.conn()
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.o.Namespace, Name: h.o.ConfigMap}}
	if err := c.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch ConfigMap %s/%s: %w", h.o.Namespace, h.o.ConfigMap, did(c, err))
	}
	return nil
}

// WriteHeartbeat implements hostd.API.
func (h *HostAPI) WriteHeartbeat(ctx context.Context, b hostapi.Beat) error {
	c, err := h.conn()
	if err != nil {
		return err
	}
	return did(c, beat(ctx, c.Client, h.o.Namespace, fleet.HeartbeatPrefix, fleet.HeartbeatLabelValue, h.o.Node, b))
}

// Nodes implements hostd.API: what the watch last showed, sorted by name.
func (h *HostAPI) Nodes(context.Context) ([]hostapi.Node, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.listed {
		return nil, errors.New("nodes: not listed yet")
	}
	out := make([]hostapi.Node, 0, len(h.nodes))
	for _, n := range h.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b hostapi.Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// pageSize keeps the memory of a list small on a big cluster.
const pageSize = 100

// ListNodes reads all Nodes once; a command without a watch needs no more.
func (h *HostAPI) ListNodes(ctx context.Context) (version string, err error) {
	c, err := h.conn()
	if err != nil {
		return "", err
	}
	seen := map[string]hostapi.Node{}
	page := &client.ListOptions{Limit: pageSize}
	for {
		var list corev1.NodeList
		one, cancel := bounded(ctx)
		err := c.Client.List(one, &list, page)
		cancel()
		if err != nil {
			return "", fmt.Errorf("list nodes: %w", did(c, err))
		}
		for i := range list.Items {
			n := fromNode(&list.Items[i])
			seen[n.Name] = hostapi.Node{Name: n.Name, Node: n.Node}
		}
		if version = list.ResourceVersion; list.Continue == "" {
			break
		}
		page.Continue = list.Continue
	}
	h.mu.Lock()
	h.nodes, h.listed = seen, true
	h.mu.Unlock()
	h.tell()
	return version, nil
}

// Watch keeps the Nodes until ctx ends. A watch only wakes (safety rule 23): one
// that breaks is begun again with a list.
func (h *HostAPI) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		if version, err := h.ListNodes(ctx); err == nil {
			h.follow(ctx, version)
		}
		pause := time.NewTimer(rewatchAfter)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (h *HostAPI) follow(ctx context.Context, version string) {
	c, err := h.conn()
	if err != nil {
		return
	}
	o := options("", "")
	o.Raw.ResourceVersion = version
	w, end, err := begin(ctx, c.Client, &corev1.NodeList{}, o)
	if err != nil {
		return
	}
	defer end()
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.ResultChan():
			if !ok || ev.Type == watch.Error {
				return
			}
			h.take(ev)
		}
	}
}

func (h *HostAPI) take(ev watch.Event) {
	n, ok := ev.Object.(*corev1.Node)
	if !ok {
		return
	}
	o := fromNode(n)
	h.mu.Lock()
	before, known := h.nodes[o.Name]
	changed := true
	if ev.Type == watch.Deleted {
		delete(h.nodes, o.Name)
	} else {
		h.nodes[o.Name] = hostapi.Node{Name: o.Name, Node: o.Node}
		changed = !known || fmt.Sprint(before.Node) != fmt.Sprint(o.Node)
	}
	h.mu.Unlock()
	if changed {
		h.tell()
	}
}

func (h *HostAPI) tell() {
	select {
	case h.wake <- struct{}{}:
	default: // one is waiting already
	}
}
