package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// LearnerEtcd is what the learner loop needs of etcd. Status calls always answer for the local member: k3s's client is
// bound to one connection and ignores the endpoint it is given (k3s facts §4.1).
type LearnerEtcd interface {
	Status(ctx context.Context) (LocalStatus, error)
	Members(ctx context.Context) ([]membership.Member, error)
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
}

// LocalStatus is the local member's status.
type LocalStatus struct {
	ID, Leader, Applied uint64
	Errors              []string
}

// Learners is the loop's configuration.
type Learners struct {
	Etcd LearnerEtcd
	// Nodes gives the Node cache once there is one; nil before.
	Nodes     func() *Nodes
	Tick      time.Duration
	Stall     time.Duration
	Heartbeat time.Duration
	Log       *slog.Logger
}

// Run acts on every tick where the local member leads, until ctx ends.
func (l Learners) Run(ctx context.Context) {
	tick := time.NewTicker(l.Tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			pass, cancel := context.WithTimeout(ctx, l.Tick)
			if err := l.pass(pass); err != nil && ctx.Err() == nil {
				l.Log.Error("Failed to manage etcd learners", "error", err)
			}
			cancel()
		}
	}
}

func (l Learners) pass(ctx context.Context) error {
	status, err := l.Etcd.Status(ctx)
	if err != nil {
		return fmt.Errorf("check local etcd status for learner management: %w", err)
	}
	if status.ID != status.Leader {
		return nil
	}
	progress, err := l.progress(ctx)
	if err != nil {
		return err
	}
	members, err := l.Etcd.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		if !m.Learner {
			continue
		}
		if err := l.learner(ctx, progress, m, status.Applied); err != nil {
			l.Log.Error("Failed to track learner progress", "member", m.Name, "error", err)
		}
	}
	return l.conditions(ctx, members, status.Errors)
}

func (l Learners) progress(ctx context.Context) (membership.Progress, error) {
	var p membership.Progress
	b, err := l.Etcd.Get(ctx, membership.ProgressKey)
	if err != nil || len(b) == 0 {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return membership.Progress{}, fmt.Errorf("learner progress: %w", err)
	}
	return p, nil
}

func (l Learners) learner(ctx context.Context, progress membership.Progress, m membership.Member, applied uint64) error {
	err := l.Etcd.Promote(ctx, m.ID)
	if err == nil {
		l.Log.Info("Learner has been promoted to voting member", "member", m.Name)
		return nil
	}
	l.Log.Debug("Unable to promote learner", "member", m.Name, "error", err)
	next, evict := membership.Track(progress, m, applied, time.Now(), l.Stall)
	if evict {
		l.Log.Warn("Removing learner: member is not making progress", "member", m.Name)
		return l.Etcd.Remove(ctx, m.ID)
	}
	b, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("learner progress: %w", err)
	}
	return l.Etcd.Put(ctx, membership.ProgressKey, b)
}

// conditions writes EtcdIsVoter on every Node with the etcd label.
func (l Learners) conditions(ctx context.Context, members []membership.Member, leaderErrors []string) error {
	nodes := l.Nodes()
	if nodes == nil {
		return nil
	}
	selected, err := nodes.Lister.List(labels.SelectorFromSet(labels.Set{membership.EtcdLabel: "true"}))
	if err != nil {
		return fmt.Errorf("list etcd nodes: %w", err)
	}
	for _, node := range selected {
		if err := l.condition(ctx, nodes, node, membership.Voter(view(node), members, leaderErrors)); err != nil {
			l.Log.Error("Failed to set condition "+membership.ConditionType, "node", node.Name, "error", err)
		}
	}
	return nil
}

func (l Learners) condition(ctx context.Context, nodes *Nodes, node *corev1.Node, next membership.Condition) error {
	now := time.Now()
	var old *membership.Condition
	var heartbeat time.Time
	transition := metav1.NewTime(now)
	for _, c := range node.Status.Conditions {
		if c.Type == membership.ConditionType {
			old = &membership.Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
			heartbeat = c.LastHeartbeatTime.Time
			transition = c.LastTransitionTime
		}
	}
	write, moved := membership.WriteCondition(old, heartbeat, next, now, l.Heartbeat)
	if !write {
		return nil
	}
	if moved {
		transition = metav1.NewTime(now)
	}
	b, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: membership.ConditionType, Status: corev1.ConditionStatus(next.Status), Reason: next.Reason, Message: next.Message,
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: transition,
	}}}})
	if err != nil {
		return fmt.Errorf("condition: %w", err)
	}
	_, err = nodes.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, b, metav1.PatchOptions{}, "status")
	return err
}
