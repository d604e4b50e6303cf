package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/fleet"
)

const (
	watchSeconds = 300
	rewatchAfter = 2 * time.Second
)

// Wake watches the Nodes, the reports and the requests, and says when something
// in them changed that a pass looks at: the status that the pass itself writes
// and the times in a Node's conditions do not wake it. A watch that ends or
// fails is begun again.
func (k *Client) Wake(ctx context.Context) <-chan struct{} {
	wake := make(chan struct{}, 1)
	named := func(name string) *client.ListOptions {
		return options(k.namespace, "metadata.name="+name)
	}
	go k.watch(ctx, wake, &corev1.NodeList{}, options("", ""))
	go k.watch(ctx, wake, &corev1.ConfigMapList{}, named(k.actuators))
	go k.watch(ctx, wake, &corev1.ConfigMapList{}, named(fleet.ConfigMapStatus))
	return wake
}

func options(namespace, field string) *client.ListOptions {
	seconds := int64(watchSeconds)
	return &client.ListOptions{
		Namespace: namespace,
		Raw:       &metav1.ListOptions{TimeoutSeconds: &seconds, FieldSelector: field},
	}
}

func (k *Client) watch(ctx context.Context, wake chan<- struct{}, list client.ObjectList, o *client.ListOptions) {
	seen := map[string]uint64{}
	for ctx.Err() == nil {
		if w, end, err := begin(ctx, k.c, list, o); err == nil {
			drainWatch(ctx, w, seen, wake)
			end()
		}
		pause := time.NewTimer(rewatchAfter)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// begin begins a watch. A server answers within the time of a request, and ends the
// watch by itself after watchSeconds: one that does neither is given up here, for a
// watch that nobody answers would never be begun again.
func begin(ctx context.Context, c client.WithWatch, list client.ObjectList, o *client.ListOptions) (w watch.Interface, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(RequestTimeout, cancel)
	w, err = c.Watch(ctx, list, o)
	if inTime := late.Stop(); err != nil || !inTime {
		cancel()
		if err == nil {
			w.Stop()
			err = context.DeadlineExceeded
		}
		return nil, nil, fmt.Errorf("begin a watch: %w", err)
	}
	over := time.AfterFunc(watchSeconds*time.Second+RequestTimeout, cancel)
	return w, func() {
		over.Stop()
		w.Stop()
		cancel()
	}, nil
}

func drainWatch(ctx context.Context, w watch.Interface, seen map[string]uint64, wake chan<- struct{}) {
	for {
		var ev watch.Event
		var ok bool
		select {
		case <-ctx.Done():
			return
		case ev, ok = <-w.ResultChan():
		}
		if !ok || ev.Type == watch.Error {
			return
		}
		if changed(ev, seen) {
			select {
			case wake <- struct{}{}:
			default: // one is waiting already
			}
		}
	}
}

// changed says whether an event shows something new of what a pass reads.
func changed(ev watch.Event, seen map[string]uint64) bool {
	o, ok := ev.Object.(client.Object)
	if !ok {
		return false
	}
	if ev.Type == watch.Deleted {
		delete(seen, o.GetName())
		return true
	}
	now := fingerprint(o)
	before, known := seen[o.GetName()]
	seen[o.GetName()] = now
	return !known || before != now
}

func fingerprint(o client.Object) uint64 {
	h := fnv.New64a()
	switch o := o.(type) {
	case *corev1.Node:
		// fmt prints maps in the order of their keys.
		_, _ = fmt.Fprintf(h, "%v", fromNode(o).Node)
	case *corev1.ConfigMap:
		data := maps.Clone(o.Data)
		delete(data, fleet.KeyStatus)
		_, _ = fmt.Fprintf(h, "%q", data)
	}
	return h.Sum64()
}
