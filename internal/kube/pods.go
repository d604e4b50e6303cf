package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exadev/regrade/internal/observe"
)

const podNodeField = "spec.nodeName"

// Pods implements observe.Cluster.
func (k *Client) Pods(ctx context.Context, node string) ([]observe.Pod, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var list corev1.PodList
	if err := k.c.List(ctx, &list, client.MatchingFields{podNodeField: node}); err != nil {
		return nil, fmt.Errorf("list pods on %s: %w", node, err)
	}
	pods := make([]observe.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = fromPod(&list.Items[i])
	}
	return pods, nil
}

// TryEvict implements observe.Cluster.
func (k *Client) TryEvict(ctx context.Context, pod observe.Pod) (string, error) {
	return k.evict(ctx, pod, []string{metav1.DryRunAll})
}

// Evict implements execute.Cluster.
func (k *Client) Evict(ctx context.Context, pod observe.Pod) (string, error) {
	return k.evict(ctx, pod, nil)
}

func (k *Client) evict(ctx context.Context, pod observe.Pod, dryRun []string) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	e := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
	}
	if pod.UID != "" {
		uid := types.UID(pod.UID)
		e.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	// 429 is a budget's answer where it names one, else that of a server that has too
	// much to do: nothing is known then.
	err := k.c.SubResource("eviction").Create(ctx, p, e, &client.SubResourceCreateOptions{
		CreateOptions: client.CreateOptions{DryRun: dryRun},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Gone, or another pod by now under the same name.
		return "", nil
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause), strings.Contains(err.Error(), "more than one PodDisruptionBudget"):
		return refusal(err), nil
	}
	return "", fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// refusal is the API server's sentence with the causes that name the budget.
func refusal(err error) string {
	words := err.Error()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return words
	}
	for _, c := range status.Status().Details.Causes {
		if c.Message != "" && !strings.Contains(words, c.Message) {
			words += ": " + c.Message
		}
	}
	return words
}
