package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
)

// AfterReset is what the first server after a --cluster-reset does once: its own node password may be another than the one
// that the datastore knows, and requests for removal of members that there were are over on every Node (k3s facts §6.1).
func AfterReset(ctx context.Context, n *Nodes, node string) {
	for {
		err := errors.Join(forgetPassword(ctx, n, node), forgetRemovals(ctx, n))
		if err == nil {
			return
		}
		n.Log.Info("Failed to clean up after the reset", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

func forgetPassword(ctx context.Context, n *Nodes, node string) error {
	err := n.Client.CoreV1().Secrets(nodepassword.Namespace).Delete(ctx, nodepassword.SecretName(node), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("node password secret: %w", err)
	}
	return nil
}

func forgetRemovals(ctx context.Context, n *Nodes) error {
	nodes, err := n.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: membership.EtcdLabel})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	var errs []error
	for i := range nodes.Items {
		drop := map[string]*string{}
		for _, a := range []string{membership.RemoveAnnotation, membership.RemovedNameAnnotation} {
			if _, has := nodes.Items[i].Annotations[a]; has {
				drop[a] = nil
			}
		}
		if len(drop) > 0 {
			errs = append(errs, patchMetadata(ctx, n.Client, nodes.Items[i].Name, nil, drop))
		}
	}
	return errors.Join(errs...)
}
