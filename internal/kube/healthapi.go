package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/observe"
)

// HealthOptions make a HealthAPI.
type HealthOptions struct {
	Namespace string // empty: fleet.DefaultNamespace
	Keys      fleet.Keys
	// RunnerSelector selects runner pods.
	RunnerSelector string
}

// HealthAPI is what the heartbeat and the alert process have of the API: Nodes, the
// controller's status and their own ConfigMaps by name, and what the checks of
// GitHub's runners need. It needs get and list on nodes, get, or get and patch, on
// those ConfigMaps, and for servers at a level list on Leases of regrade's namespace.
type HealthAPI struct {
	c         client.Client
	core      rest.Interface
	t         *Transport
	namespace string
	keys      fleet.Keys
	runners   labels.Selector
}

// NewHealthAPI makes a HealthAPI on a connection.
func NewHealthAPI(conn *Connection, o HealthOptions) (*HealthAPI, error) {
	h, err := newHealthAPI(conn.Client, conn.Transport, o)
	if err != nil {
		return nil, err
	}
	h.core = conn.core
	return h, nil
}

func newHealthAPI(c client.Client, t *Transport, o HealthOptions) (*HealthAPI, error) {
	if o.Namespace == "" {
		o.Namespace = fleet.DefaultNamespace
	}
	if o.RunnerSelector == "" {
		o.RunnerSelector = fleet.DefaultRunnerSelector
	}
	sel, err := labels.Parse(o.RunnerSelector)
	if err != nil {
		return nil, fmt.Errorf("runner selector %q: %w", o.RunnerSelector, err)
	}
	return &HealthAPI{c: c, t: t, namespace: o.Namespace, keys: o.Keys, runners: sel}, nil
}

// Requests counts the requests sent so far.
func (h *HealthAPI) Requests() int64 { return h.t.Requests() }

// Date is the API server's clock as its last answer gave it.
func (h *HealthAPI) Date() time.Time { return h.t.Date() }

func (h *HealthAPI) did(err error) error { return did(&Connection{Transport: h.t}, err) }

// Nodes implements beat.Cluster. They are read from a quorum: an API server that was
// removed from etcd may go on answering from its cache (safety rule 23).
func (h *HealthAPI) Nodes(ctx context.Context) ([]heartbeat.Node, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	body, err := h.core.Get().Resource("nodes").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", h.did(err))
	}
	defer func() { _ = body.Close() }()
	var nodes []heartbeat.Node
	add := func(n *corev1.Node) { nodes = append(nodes, h.node(n)) }
	if err := eachNode(body, add, func(raw []byte) error { return conditions(raw, add) }); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return nodes, nil
}

// Heartbeats implements beat.Cluster: one list.
func (h *HealthAPI) Heartbeats(ctx context.Context) ([]observe.Heartbeat, error) {
	beats, err := heartbeats(ctx, h.c, h.namespace)
	return beats, h.did(err)
}

// conditions gives a Node with its metadata and conditions to f. The rest is not decoded:
// the images that 1,000 hosts have are more than this process may use.
func conditions(raw []byte, f func(*corev1.Node)) error {
	var n corev1.Node
	m := message(raw)
	for m.more() {
		field, value, ok := m.next()
		if !ok {
			return errors.New("decode: a Node that is no message")
		}
		switch field {
		case nodeMetadata:
			if err := n.ObjectMeta.Unmarshal(value); err != nil {
				return fmt.Errorf("decode: %w", err)
			}
		case nodeStatus:
			status := message(value)
			for status.more() {
				field, value, ok := status.next()
				if !ok {
					return errors.New("decode: a status that is no message")
				}
				if field != statusCondition {
					continue
				}
				var c corev1.NodeCondition
				if err := c.Unmarshal(value); err != nil {
					return fmt.Errorf("decode: %w", err)
				}
				n.Status.Conditions = append(n.Status.Conditions, c)
			}
		}
	}
	if n.Name == "" {
		return errors.New("decode: a Node without a name")
	}
	f(&n)
	return nil
}

// node is judged by its conditions, never by a word in a listing: "NotReady" has
// "Ready" in it (fleet-components §3).
func (h *HealthAPI) node(n *corev1.Node) heartbeat.Node {
	o := heartbeat.Node{Name: n.Name, Labels: n.Labels}
	_, o.Swap = n.Annotations[h.keys.Swap()]
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			o.Ready = c.Status == corev1.ConditionTrue
		case c.Type == fleet.ConditionEtcdIsVoter:
			o.EtcdIsVoter = string(c.Status)
		case strings.HasSuffix(string(c.Type), "Pressure") && c.Status == corev1.ConditionTrue:
			o.Pressure = append(o.Pressure, string(c.Type))
		}
	}
	return o
}

// RoleStatus implements beat.Cluster.
func (h *HealthAPI) RoleStatus(ctx context.Context) (string, error) {
	data, err := h.ConfigMap(ctx, fleet.ConfigMapStatus)
	return data[fleet.KeyStatus], err
}

// ConfigMap is the data of one, nil when there is none.
func (h *HealthAPI) ConfigMap(ctx context.Context, name string) (map[string]string, error) {
	data, _, err := h.versioned(ctx, name)
	return data, err
}

// versioned is the data of a ConfigMap and its resourceVersion.
func (h *HealthAPI) versioned(ctx context.Context, name string) (data map[string]string, version string, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var cm corev1.ConfigMap
	err = h.c.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, &cm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("get ConfigMap %s/%s: %w", h.namespace, name, h.did(err))
	}
	return cm.Data, cm.ResourceVersion, nil
}

// patch sets keys of a ConfigMap, which must be there: these roles may not create one,
// for a right to create cannot be given by name. over is the resourceVersion that it must
// have, empty for any; the result is the one it has then.
func (h *HealthAPI) patch(ctx context.Context, name string, data map[string]string, over string) (version string, err error) {
	patch := map[string]any{"data": data}
	if over != "" {
		patch["metadata"] = map[string]string{"resourceVersion": over}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	err = h.c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw))
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no ConfigMap %s/%s: regrade manifests makes it", h.namespace, name)
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.IsInvalid(err):
		return "", fmt.Errorf("patch ConfigMap %s/%s: %w (%w)", h.namespace, name, err, heartbeat.ErrTooLarge)
	case err != nil:
		return "", fmt.Errorf("patch ConfigMap %s/%s: %w", h.namespace, name, h.did(err))
	}
	return cm.ResourceVersion, nil
}

// HealthMap publishes into the ConfigMap fleet-health, and is where an alert process
// reads it.
type HealthMap struct{ API *HealthAPI }

// Name of the publisher.
func (HealthMap) Name() string { return "configmap" }

// Publish implements a publisher.
func (m HealthMap) Publish(ctx context.Context, files heartbeat.Files) error {
	data := map[string]string{}
	for name, content := range files {
		data[name] = string(content)
	}
	_, err := m.API.patch(ctx, fleet.ConfigMapHealth, data, "")
	return err
}

// Read is a file as it is published, nil when it is not.
func (m HealthMap) Read(ctx context.Context, name string) ([]byte, error) {
	data, err := m.API.ConfigMap(ctx, fleet.ConfigMapHealth)
	if v, ok := data[name]; ok {
		return []byte(v), nil
	}
	return nil, err
}

// HealthSource reads fleet-health.json from that ConfigMap.
type HealthSource struct{ API *HealthAPI }

// Read gives it, and the API server's clock, which dated it.
func (s HealthSource) Read(ctx context.Context) ([]byte, time.Time, error) {
	raw, err := HealthMap(s).Read(ctx, fleet.KeyHealth)
	if err == nil && raw == nil {
		err = fmt.Errorf("ConfigMap %s/%s has no %s", s.API.namespace, fleet.ConfigMapHealth, fleet.KeyHealth)
	}
	return raw, s.API.Date(), err
}

// AlertState keeps the state of the alert process in the ConfigMap fleet-alert.
type AlertState struct{ API *HealthAPI }

// Load is what is kept, nil when nothing is, and its resourceVersion.
func (s AlertState) Load(ctx context.Context) (raw []byte, version string, err error) {
	data, version, err := s.API.versioned(ctx, fleet.ConfigMapAlert)
	if v, ok := data[fleet.KeyAlertState]; ok {
		raw = []byte(v)
	}
	return raw, version, err
}

// Save writes it over a resourceVersion.
func (s AlertState) Save(ctx context.Context, raw []byte, over string) (version string, err error) {
	version, err = s.API.patch(ctx, fleet.ConfigMapAlert, map[string]string{fleet.KeyAlertState: string(raw)}, over)
	if apierrors.IsConflict(err) {
		return "", fmt.Errorf("%w: %w", alert.ErrTaken, err)
	}
	return version, err
}

// Labels and kinds of Actions Runner Controller (fleet-components §3).
const (
	runnerController  = "gha-rs-controller"
	labelScaleSet     = "actions.github.com/scale-set-name"
	labelScaleSetSpot = "actions.github.com/scale-set-namespace"
)

var runnerSetKind = schema.GroupVersionKind{Group: "actions.github.com", Version: "v1alpha1", Kind: "AutoscalingRunnerSet"}

// Runners implements beat.Cluster.
func (h *HealthAPI) Runners(ctx context.Context, w heartbeat.Wanted) *heartbeat.Runners {
	r := &heartbeat.Runners{}
	if w.Controller {
		if err := h.runnerController(ctx, w.Namespace, r); err != nil {
			r.ControllerProblem = err.Error()
		}
	}
	if len(w.ScaleSets) > 0 {
		listens, err := h.listeners(ctx, w.Namespace)
		for _, name := range w.ScaleSets {
			set := heartbeat.ScaleSet{Name: name, Listening: listens[name]}
			found, ferr := h.scaleSet(ctx, name)
			if set.Found = found; err != nil {
				set.Problem = err.Error()
			} else if ferr != nil {
				set.Problem = ferr.Error()
			}
			r.ScaleSets = append(r.ScaleSets, set)
		}
	}
	if w.Pods {
		var err error
		if r.Unschedulable, err = h.unschedulable(ctx); err != nil {
			r.PodsProblem = err.Error()
		}
	}
	return r
}

func (h *HealthAPI) runnerController(ctx context.Context, namespace string, r *heartbeat.Runners) error {
	return each(ctx, func(ctx context.Context) error {
		var list appsv1.DeploymentList
		if err := h.c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": runnerController}); err != nil {
			return fmt.Errorf("list deployments in %s: %w", namespace, h.did(err))
		}
		r.ControllerFound = len(list.Items) > 0
		for i := range list.Items {
			r.Controllers += int(list.Items[i].Status.ReadyReplicas)
		}
		return nil
	})
}

// listeners are the scale sets, as namespace/release, of which a listener pod runs.
func (h *HealthAPI) listeners(ctx context.Context, namespace string) (map[string]bool, error) {
	listens := map[string]bool{}
	err := each(ctx, func(ctx context.Context) error {
		var list corev1.PodList
		if err := h.c.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{labelScaleSet}); err != nil {
			return fmt.Errorf("list listeners in %s: %w", namespace, h.did(err))
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				listens[p.Labels[labelScaleSetSpot]+"/"+p.Labels[labelScaleSet]] = true
			}
		}
		return nil
	})
	return listens, err
}

func (h *HealthAPI) scaleSet(ctx context.Context, set string) (found bool, err error) {
	namespace, name, _ := strings.Cut(set, "/")
	err = each(ctx, func(ctx context.Context) error {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(runnerSetKind)
		err := h.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get AutoscalingRunnerSet %s: %w", set, h.did(err))
		}
		found = true
		return nil
	})
	return found, err
}

// unschedulable are runner pods that no node takes, the first that was so first.
func (h *HealthAPI) unschedulable(ctx context.Context) (pods []heartbeat.Pod, err error) {
	err = each(ctx, func(ctx context.Context) error {
		var list corev1.PodList
		if err := h.c.List(ctx, &list, client.MatchingLabelsSelector{Selector: h.runners}); err != nil {
			return fmt.Errorf("list runner pods: %w", h.did(err))
		}
		for i := range list.Items {
			p := &list.Items[i]
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
					pods = append(pods, heartbeat.Pod{Name: p.Namespace + "/" + p.Name, Since: c.LastTransitionTime.UTC()})
				}
			}
		}
		return nil
	})
	slices.SortStableFunc(pods, func(a, b heartbeat.Pod) int {
		return a.Since.Compare(b.Since)
	})
	return pods, err
}
