package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// Nodes is the shared cache of Nodes with one queue per handler.
type Nodes struct {
	Client kubernetes.Interface
	Lister corelisters.NodeLister
	Log    *slog.Logger

	informer cache.SharedIndexInformer
}

// StartNodes starts the cache. It fills once an apiserver answers.
func StartNodes(ctx context.Context, client kubernetes.Interface, log *slog.Logger) *Nodes {
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	n := &Nodes{Client: client, Lister: nodes.Lister(), Log: log, informer: nodes.Informer()}
	factory.Start(ctx.Done())
	return n
}

// Handle calls f for each Node event until ctx ends. An error is retried: with back-off from 5 ms to 30 s, after 30
// failures every 2 min (k3s facts §5.1 step 8).
func (n *Nodes) Handle(ctx context.Context, name string, f func(context.Context, *corev1.Node) error) error {
	q := &retryQueue{
		failures: map[string]int{}, timers: map[string]*time.Timer{}, waiting: map[string]bool{}, wake: make(chan string, 256),
	}
	reg, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { q.add(ctx, o) },
		UpdateFunc: func(_, o any) { q.add(ctx, o) },
	})
	if err != nil {
		return fmt.Errorf("handler %s: %w", name, err)
	}
	defer func() { _ = n.informer.RemoveEventHandler(reg) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case key := <-q.wake:
			q.taken(key)
			node, err := n.Lister.Get(key)
			if err != nil {
				q.done(key)
				continue
			}
			if err := f(ctx, node.DeepCopy()); err != nil {
				level := slog.LevelError
				if apierrors.IsConflict(err) {
					level = slog.LevelDebug // another handler was faster; the retry reads the Node again
				}
				n.Log.Log(ctx, level, "error syncing node", "node", key, "handler", name, "error", err)
				q.retry(ctx, key)
				continue
			}
			q.done(key)
		}
	}
}

type retryQueue struct {
	mu       sync.Mutex
	failures map[string]int
	timers   map[string]*time.Timer
	// waiting are the keys in wake, each there once.
	waiting map[string]bool
	wake    chan string
}

func (q *retryQueue) add(ctx context.Context, o any) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	q.push(ctx, node.Name)
}

func (q *retryQueue) push(ctx context.Context, key string) {
	q.mu.Lock()
	known := q.waiting[key]
	q.waiting[key] = true
	q.mu.Unlock()
	if known {
		return
	}
	select {
	case q.wake <- key:
	case <-ctx.Done():
	}
}

func (q *retryQueue) taken(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, key)
}

func (q *retryQueue) done(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, key)
	if t := q.timers[key]; t != nil {
		t.Stop()
		delete(q.timers, key)
	}
}

func (q *retryQueue) retry(ctx context.Context, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failures[key]++
	if t := q.timers[key]; t != nil {
		t.Stop()
	}
	q.timers[key] = time.AfterFunc(retryDelay(q.failures[key]), func() { q.push(ctx, key) })
}

// retryDelay is the wait before retry number n (1 and up).
func retryDelay(n int) time.Duration {
	if n > 30 {
		return 2 * time.Minute
	}
	d := 5 * time.Millisecond
	for i := 1; i < n && d < 30*time.Second; i++ {
		d *= 2
	}
	return min(d, 30*time.Second)
}

// view is what the rules read of a Node.
func view(n *corev1.Node) membership.Node {
	return membership.Node{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations, Deleting: n.DeletionTimestamp != nil}
}

// patchMetadata merges labels and annotations into a Node; nil deletes.
func patchMetadata(ctx context.Context, c kubernetes.Interface, node string, labels, annotations map[string]*string) error {
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	b, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return fmt.Errorf("patch of node %s: %w", node, err)
	}
	if _, err := c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, b, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", node, err)
	}
	return nil
}

// setFinalizers replaces a Node's finalizers, tested by resourceVersion.
func setFinalizers(ctx context.Context, c kubernetes.Interface, node *corev1.Node, finalizers []string) error {
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": node.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("finalizers of node %s: %w", node.Name, err)
	}
	if _, err := c.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, b, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("finalizers of node %s: %w", node.Name, err)
	}
	return nil
}
