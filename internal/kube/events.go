package kube

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/internal/status"
)

// EventNamespace is where events on cluster-scoped objects go, which is where
// kubectl looks for them.
const EventNamespace = metav1.NamespaceDefault

// Tell implements controller.Teller.
func (k *Client) Tell(ctx context.Context, e status.Event) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	now := metav1.NewTime(k.date())
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	const component = "regrade"
	ev := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: EventNamespace, Name: e.Node + "." + strings.ToLower(rand.Text()[:16])},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.Node, UID: types.UID(e.UID)},
		Reason:         e.Reason, Message: e.Message, Type: kind, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: "github.com/exadev/regrade",
	}
	if err := k.c.Create(ctx, ev); err != nil {
		return fmt.Errorf("create event on node %s: %w", e.Node, err)
	}
	return nil
}
