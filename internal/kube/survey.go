package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/observe"
)

// ownName is the label of every object of regrade's; ownPart tells them apart.
const (
	ownName = "app.kubernetes.io/name"
	ownPart = "app.kubernetes.io/component"
)

// OwnPods are regrade's pods in every namespace.
func (k *Client) OwnPods(ctx context.Context) ([]observe.OwnPod, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list corev1.PodList
	if err := k.c.List(ctx, &list, client.MatchingLabels{ownName: "regrade"}); err != nil {
		return nil, fmt.Errorf("list regrade's pods: %w", err)
	}
	out := make([]observe.OwnPod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, fromOwnPod(&list.Items[i]))
	}
	return out, nil
}

func fromOwnPod(p *corev1.Pod) observe.OwnPod {
	o := observe.OwnPod{
		Namespace: p.Namespace, Name: p.Name, Component: p.Labels[ownPart], Node: p.Spec.NodeName, Phase: string(p.Status.Phase),
		Terminating: p.DeletionTimestamp != nil, Created: p.CreationTimestamp.UTC(),
	}
	if len(p.Spec.Containers) > 0 {
		o.Container, o.Image = p.Spec.Containers[0].Name, p.Spec.Containers[0].Image
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			o.Ready = c.Status == corev1.ConditionTrue
		}
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			o.Waiting = c.Reason + ": " + c.Message
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name != o.Container {
			continue
		}
		o.Restarts = int(s.RestartCount)
		if w := s.State.Waiting; w != nil {
			o.Waiting = w.Reason
		}
		if t := s.LastTerminationState.Terminated; t != nil {
			o.Ended = fmt.Sprintf("%s, status %d, at %s", t.Reason, t.ExitCode, t.FinishedAt.UTC().Format(time.RFC3339))
		}
	}
	return o
}

// Log are the last lines of a pod's log, no more than limit bytes of them, of the
// container that runs now or, with previous, of the one before.
func (k *Client) Log(ctx context.Context, pod observe.OwnPod, previous bool, lines, limit int64) ([]byte, error) {
	if k.core == nil {
		return nil, errors.New("logs cannot be read on this connection")
	}
	for {
		raw, err := k.log(ctx, pod, previous, lines, limit)
		if err != nil {
			return nil, fmt.Errorf("log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		// The kubelet cuts such lines off at their end, where the news is.
		if int64(len(raw)) < limit || lines < 16 {
			return raw, nil
		}
		lines /= 4
	}
}

func (k *Client) log(ctx context.Context, pod observe.OwnPod, previous bool, lines, limit int64) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	o := &corev1.PodLogOptions{Container: pod.Container, Previous: previous, TailLines: &lines, LimitBytes: &limit, Timestamps: true}
	r, err := k.core.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("log").VersionedParams(o, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(io.LimitReader(r, limit))
}

// Told are the Events of a namespace, at most so many.
func (k *Client) Told(ctx context.Context, namespace string, most int64) ([]observe.Told, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list corev1.EventList
	if err := k.c.List(ctx, &list, client.InNamespace(namespace), client.Limit(most)); err != nil {
		return nil, fmt.Errorf("list events in %s: %w", namespace, err)
	}
	out := make([]observe.Told, 0, len(list.Items))
	for _, e := range list.Items {
		last := e.LastTimestamp.Time
		if last.IsZero() {
			last = e.EventTime.Time
		}
		from := e.Source.Component
		if from == "" {
			from = e.ReportingController
		}
		out = append(out, observe.Told{
			Object: e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name,
			Type:   e.Type, Reason: e.Reason, Message: e.Message, Count: int(e.Count), From: from, Last: utc(last),
		})
	}
	return out, nil
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// Conditions are those of every Node, by its name.
func (k *Client) Conditions(ctx context.Context) (map[string][]observe.Condition, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list corev1.NodeList
	if err := k.c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := map[string][]observe.Condition{}
	for i := range list.Items {
		n := &list.Items[i]
		for _, c := range n.Status.Conditions {
			out[n.Name] = append(out[n.Name], observe.Condition{
				Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Changed: utc(c.LastTransitionTime.Time),
			})
		}
	}
	return out, nil
}
