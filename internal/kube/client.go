package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
)

// Client is the controller's and the command line's half: it implements
// observe.Cluster and execute.Cluster.
type Client struct {
	c         client.WithWatch
	date      func() time.Time
	requests  func() int64
	server    func() string
	core      rest.Interface // nil where no log can be read
	namespace string
	actuators string
}

// Options of a Client.
type Options struct {
	// Namespace of regrade's own objects; empty means fleet.DefaultNamespace.
	Namespace string
	// ActuatorConfigMap is watched beside the status; empty means fleet.ConfigMapActuators.
	ActuatorConfigMap string
}

var (
	_ observe.Cluster = (*Client)(nil)
	_ execute.Cluster = (*Client)(nil)
)

// NewClient makes a Client on a connection.
func NewClient(conn *Connection, o Options) *Client {
	k := newClient(conn.Client, conn.Transport.Date, o)
	k.requests, k.server, k.core = conn.Transport.Requests, conn.Transport.Host, conn.core
	return k
}

func newClient(c client.WithWatch, date func() time.Time, o Options) *Client {
	if o.Namespace == "" {
		o.Namespace = fleet.DefaultNamespace
	}
	if o.ActuatorConfigMap == "" {
		o.ActuatorConfigMap = fleet.ConfigMapActuators
	}
	return &Client{c: c, date: date, namespace: o.Namespace, actuators: o.ActuatorConfigMap}
}

// Date implements observe.Cluster.
func (k *Client) Date() time.Time { return k.date() }

// Requests counts the requests sent so far.
func (k *Client) Requests() int64 {
	if k.requests == nil {
		return 0
	}
	return k.requests()
}

// Server is host and port of the API server that is used now, empty when not known.
func (k *Client) Server() string {
	if k.server == nil {
		return ""
	}
	return k.server()
}

// Selector reads a label selector, such as the one of the runner pods. An empty
// one is refused: it would match every pod.
func Selector(s string) (func(map[string]string) bool, error) {
	sel, err := labels.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", s, err)
	}
	if sel.Empty() {
		return nil, errors.New("label selector: empty, which would match every pod")
	}
	return func(m map[string]string) bool { return sel.Matches(labels.Set(m)) }, nil
}

// bounded ends a request after RequestTimeout.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, RequestTimeout)
}

// each is one request of several: each has its own time, so that a server that takes
// most of it for every answer is slow and no more (safety rule 23).
func each(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return request(ctx)
}

// Nodes implements observe.Cluster.
func (k *Client) Nodes(ctx context.Context) ([]observe.Node, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list corev1.NodeList
	if err := k.c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]observe.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = fromNode(&list.Items[i])
	}
	return nodes, nil
}

// Node implements execute.Cluster.
func (k *Client) Node(ctx context.Context, name string) (observe.Node, bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var n corev1.Node
	err := k.c.Get(ctx, client.ObjectKey{Name: name}, &n)
	switch {
	case apierrors.IsNotFound(err):
		return observe.Node{}, false, nil
	case err != nil:
		return observe.Node{}, false, fmt.Errorf("get node %s: %w", name, err)
	}
	return fromNode(&n), true, nil
}

// ConfigMap implements observe.Cluster.
func (k *Client) ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var cm corev1.ConfigMap
	err := k.c.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: name}, &cm)
	switch {
	case apierrors.IsNotFound(err):
		return observe.ConfigMap{}, nil
	case err != nil:
		return observe.ConfigMap{}, fmt.Errorf("get ConfigMap %s/%s: %w", k.namespace, name, err)
	}
	return observe.ConfigMap{Exists: true, Version: cm.ResourceVersion, Data: cm.Data}, nil
}

// beating selects the heartbeats of host daemons and probes: one list for both.
func beating() (labels.Selector, error) {
	r, err := labels.NewRequirement(fleet.HeartbeatLabel, selection.In, []string{fleet.HeartbeatLabelValue, fleet.ProbeHeartbeatLabelValue})
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(*r), nil
}

// Heartbeats implements observe.Cluster.
func (k *Client) Heartbeats(ctx context.Context) ([]observe.Heartbeat, error) {
	return heartbeats(ctx, k.c, k.namespace)
}

func heartbeats(ctx context.Context, c client.Client, namespace string) ([]observe.Heartbeat, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list coordinationv1.LeaseList
	marked, err := beating()
	if err == nil {
		err = c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: marked})
	}
	if err != nil {
		return nil, fmt.Errorf("list heartbeat Leases in %s: %w", namespace, err)
	}
	var beats []observe.Heartbeat
	for i := range list.Items {
		if b, ok := fromHeartbeat(&list.Items[i]); ok {
			beats = append(beats, b)
		}
	}
	return beats, nil
}

// KubeletRenewed implements observe.Cluster.
func (k *Client) KubeletRenewed(ctx context.Context, node string) (time.Time, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var l coordinationv1.Lease
	err := k.c.Get(ctx, client.ObjectKey{Namespace: fleet.KubeletLeaseNamespace, Name: node}, &l)
	switch {
	case apierrors.IsNotFound(err):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("get Lease %s/%s: %w", fleet.KubeletLeaseNamespace, node, err)
	case l.Spec.RenewTime == nil:
		return time.Time{}, nil
	}
	return l.Spec.RenewTime.UTC(), nil
}
