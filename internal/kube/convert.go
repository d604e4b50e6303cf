package kube

import (
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

func fromNode(n *corev1.Node) observe.Node {
	o := observe.Node{
		Name: n.Name, Version: n.ResourceVersion,
		Node: swap.Node{
			UID: string(n.UID), Labels: n.Labels, Annotations: n.Annotations,
			Unschedulable:  n.Spec.Unschedulable,
			KubeletVersion: n.Status.NodeInfo.KubeletVersion,
			Deleting:       n.DeletionTimestamp != nil,
		},
	}
	for _, t := range n.Spec.Taints {
		o.Taints = append(o.Taints, swap.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			o.Ready = c.Status == corev1.ConditionTrue
		case fleet.ConditionEtcdIsVoter:
			o.EtcdIsVoter = string(c.Status)
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			o.InternalIP = a.Address
			break
		}
	}
	return o
}

func fromHeartbeat(l *coordinationv1.Lease) (observe.Heartbeat, bool) {
	probe := l.Labels[fleet.HeartbeatLabel] == fleet.ProbeHeartbeatLabelValue
	prefix := fleet.HeartbeatPrefix
	if probe {
		prefix = fleet.ProbeHeartbeatPrefix
	}
	node, ok := strings.CutPrefix(l.Name, prefix)
	if !ok || node == "" {
		return observe.Heartbeat{}, false
	}
	h := observe.Heartbeat{
		Node: node, Probe: probe, BootID: l.Annotations[fleet.HeartbeatBootID], Counter: l.Annotations[fleet.HeartbeatCounter],
	}
	if l.Spec.RenewTime != nil {
		h.Renewed = l.Spec.RenewTime.UTC()
	}
	return h, true
}

func fromLease(l *coordinationv1.Lease) lease.Lease {
	o := lease.Lease{Exists: true, Annotations: l.Annotations}
	if l.Spec.HolderIdentity != nil {
		o.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		o.RenewTime = l.Spec.RenewTime.UTC()
	}
	if l.Spec.AcquireTime != nil {
		o.AcquireTime = l.Spec.AcquireTime.UTC()
	}
	if l.Spec.LeaseDurationSeconds != nil {
		o.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return o
}

// intoLease writes what a Lease of ours says into an API object. Fields that
// the API server refuses when empty are left out.
func intoLease(o lease.Lease, l *coordinationv1.Lease) {
	l.Annotations = maps.Clone(o.Annotations)
	l.Spec = coordinationv1.LeaseSpec{LeaseTransitions: l.Spec.LeaseTransitions}
	if o.Holder != "" {
		l.Spec.HolderIdentity = &o.Holder
	}
	if !o.RenewTime.IsZero() {
		l.Spec.RenewTime = &metav1.MicroTime{Time: o.RenewTime}
	}
	if !o.AcquireTime.IsZero() {
		l.Spec.AcquireTime = &metav1.MicroTime{Time: o.AcquireTime}
	}
	if s := int32(o.Duration / time.Second); s > 0 {
		l.Spec.LeaseDurationSeconds = &s
	}
}

func fromPod(p *corev1.Pod) observe.Pod {
	o := observe.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Labels: p.Labels,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Terminating: p.DeletionTimestamp != nil,
	}
	_, o.Mirror = p.Annotations[corev1.MirrorPodAnnotationKey]
	if owner := metav1.GetControllerOf(p); owner != nil {
		o.Owner = owner.Kind
	}
	return o
}
