package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
)

// CheckPassword compares a presented password with the node's Secret, which it makes where there is none. A mismatch is
// nodepassword.ErrMismatch.
func CheckPassword(ctx context.Context, c kubernetes.Interface, node, password string) error {
	secrets := c.CoreV1().Secrets(nodepassword.Namespace)
	name := nodepassword.SecretName(node)
	s, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return nodepassword.Verify(string(s.Data[nodepassword.Key]), password)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read node password secret: %w", err)
	}
	hash, err := nodepassword.Hash(password)
	if err != nil {
		return err
	}
	yes := true
	s = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: nodepassword.Namespace},
		Type:       nodepassword.SecretType, Immutable: &yes, Data: map[string][]byte{nodepassword.Key: []byte(hash)},
	}
	if n, err := c.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err == nil {
		s.OwnerReferences = []metav1.OwnerReference{ownerOf(n)}
	}
	if _, err := secrets.Create(ctx, s, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node password secret: %w", err)
	}
	return nil
}

func ownerOf(n *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

// CheckLater checks a password once the Node exists. A mismatch only raises a Warning event on the Node: this is how a
// server finds out about its own password, and how etcd-only servers treat agents (k3s facts §9).
func CheckLater(ctx context.Context, n *Nodes, node, password string) {
	for {
		o, err := n.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil {
			if err = CheckPassword(ctx, n.Client, node, password); err == nil {
				return
			}
			if !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err) {
				n.Log.Warn("Node password validation failed", "node", node, "error", err)
				if err = passwordEvent(ctx, n.Client, o, err); err == nil {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

func passwordEvent(ctx context.Context, c kubernetes.Interface, node *corev1.Node, cause error) error {
	now := metav1.Now()
	_, err := c.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: node.Name + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID, APIVersion: "v1"},
		Type:           corev1.EventTypeWarning, Reason: "NodePasswordValidationFailed",
		Message: "Deferred node password secret validation failed: " + cause.Error(),
		Source:  corev1.EventSource{Component: "k3s"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("password event for node %s: %w", node.Name, err)
	}
	return nil
}

// OwnPasswords gives each node password Secret its Node as owner, so that it goes with the Node, and each minute drops
// Secrets older than 10 minutes whose Node is missing.
func OwnPasswords(ctx context.Context, n *Nodes) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := ownOnce(ctx, n, i%6 == 5); err != nil && ctx.Err() == nil {
				n.Log.Error("Failed to own node password secrets", "error", err)
			}
		}
	}
}

func ownOnce(ctx context.Context, n *Nodes, sweep bool) error {
	secrets := n.Client.CoreV1().Secrets(nodepassword.Namespace)
	list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "type=" + nodepassword.SecretType})
	if err != nil {
		return fmt.Errorf("list node password secrets: %w", err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		name := s.Name[:max(0, len(s.Name)-len(nodepassword.SecretName("")))]
		node, err := n.Lister.Get(name)
		switch {
		case err == nil && len(s.OwnerReferences) == 0:
			s.OwnerReferences = []metav1.OwnerReference{ownerOf(node)}
			if _, err := secrets.Update(ctx, s, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("own secret %s: %w", s.Name, err)
			}
		case apierrors.IsNotFound(err) && sweep && time.Since(s.CreationTimestamp.Time) > 10*time.Minute:
			if err := secrets.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("sweep secret %s: %w", s.Name, err)
			}
		}
	}
	return nil
}
