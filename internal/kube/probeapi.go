package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
)

// ProbeOptions make a ProbeAPI.
type ProbeOptions struct {
	Node      string
	Namespace string // empty: fleet.DefaultNamespace
	Keys      fleet.Keys
}

// ProbeAPI is a probe's half: the Nodes that matter to it, its own key of the
// ConfigMap of the probes, and its heartbeat Lease. It needs get and list on
// nodes, get and patch on that ConfigMap by name (R-185-28), and create, get and
// patch on Leases of regrade's namespace.
type ProbeAPI struct {
	c client.Client
	t *Transport
	o ProbeOptions
}

// NewProbeAPI makes a ProbeAPI on a connection.
func NewProbeAPI(conn *Connection, o ProbeOptions) *ProbeAPI {
	if o.Namespace == "" {
		o.Namespace = fleet.DefaultNamespace
	}
	return &ProbeAPI{c: conn.Client, t: conn.Transport, o: o}
}

// Requests counts the requests sent so far.
func (p *ProbeAPI) Requests() int64 { return p.t.Requests() }

// Nodes implements probe.Cluster in two lists that a label selects, so that the
// rest of a big cluster costs a probe nothing: the servers with etcd whole, and
// the names of the eligible hosts. They come from the API server's cache
// (resourceVersion 0) and cost etcd nothing: a probe decides nothing on them.
func (p *ProbeAPI) Nodes(ctx context.Context) (servers []hostapi.Node, eligible []string, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	cached := &metav1.ListOptions{ResourceVersion: "0"}
	var list corev1.NodeList
	if err := p.c.List(ctx, &list, &client.ListOptions{Raw: cached}, client.HasLabels{fleet.LabelEtcd}); err != nil {
		return nil, nil, fmt.Errorf("list nodes with etcd: %w", p.did(err))
	}
	for i := range list.Items {
		n := fromNode(&list.Items[i])
		servers = append(servers, hostapi.Node{Name: n.Name, Node: n.Node})
	}
	var names metav1.PartialObjectMetadataList
	names.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := p.c.List(ctx, &names, &client.ListOptions{Raw: cached}, client.MatchingLabels{p.o.Keys.Eligible(): fleet.True}); err != nil {
		return nil, nil, fmt.Errorf("list eligible nodes: %w", p.did(err))
	}
	for i := range names.Items {
		eligible = append(eligible, names.Items[i].Name)
	}
	return servers, eligible, nil
}

// Entry implements probe.Cluster: the own key's value, empty when there is none.
func (p *ProbeAPI) Entry(ctx context.Context) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	cm := p.configMap()
	err := p.c.Get(ctx, client.ObjectKeyFromObject(cm), cm)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get ConfigMap %s/%s: %w", cm.Namespace, cm.Name, p.did(err))
	}
	return cm.Data[p.o.Node], nil
}

// PutEntry implements probe.Cluster. The answer has the whole map, whose size is
// what each write costs etcd.
func (p *ProbeAPI) PutEntry(ctx context.Context, entry string) (mapBytes int, err error) {
	return p.patch(ctx, &entry)
}

// DropEntry implements probe.Cluster. A map that is not there has no entry.
func (p *ProbeAPI) DropEntry(ctx context.Context) error {
	if _, err := p.patch(ctx, nil); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (p *ProbeAPI) patch(ctx context.Context, value *string) (size int, err error) {
	raw, err := json.Marshal(map[string]any{"data": map[string]*string{p.o.Node: value}})
	if err != nil {
		return 0, fmt.Errorf("probe entry: %w", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	cm := p.configMap()
	// The controller makes the map; this role may not, for a right to create
	// cannot be given by name.
	if err := p.c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return 0, fmt.Errorf("patch ConfigMap %s/%s: %w", cm.Namespace, cm.Name, p.did(err))
	}
	for k, v := range cm.Data {
		size += len(k) + len(v)
	}
	return size, nil
}

func (p *ProbeAPI) configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.o.Namespace, Name: fleet.ConfigMapProbe}}
}

// Beat implements probe.Cluster.
func (p *ProbeAPI) Beat(ctx context.Context, b hostapi.Beat) error {
	return p.did(beat(ctx, p.c, p.o.Namespace, fleet.ProbeHeartbeatPrefix, fleet.ProbeHeartbeatLabelValue, p.o.Node, b))
}

// did leaves a server that answers but cannot serve.
func (p *ProbeAPI) did(err error) error { return did(&Connection{Transport: p.t}, err) }

// beat writes a heartbeat Lease: one patch, and a create the first time.
func beat(ctx context.Context, c client.Client, namespace, prefix, component, node string, b hostapi.Beat) error {
	at := metav1.NewMicroTime(b.At)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: prefix + node,
			Labels:      map[string]string{fleet.HeartbeatLabel: component},
			Annotations: map[string]string{fleet.HeartbeatBootID: b.BootID, fleet.HeartbeatCounter: strconv.FormatUint(b.Counter, 10)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &at},
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": l.Labels, "annotations": l.Annotations},
		"spec":     map[string]any{"holderIdentity": node, "renewTime": at},
	})
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	name := l.Namespace + "/" + l.Name
	patched := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}}
	err = each(ctx, func(ctx context.Context) error {
		return c.Patch(ctx, patched, client.RawPatch(types.MergePatchType, patch))
	})
	if apierrors.IsNotFound(err) {
		if err := each(ctx, func(ctx context.Context) error { return c.Create(ctx, l) }); err != nil {
			return fmt.Errorf("create Lease %s: %w", name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("patch Lease %s: %w", name, err)
	}
	return nil
}
