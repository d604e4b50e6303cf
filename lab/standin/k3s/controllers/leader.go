package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lead runs work while this process holds a Lease in kube-system: 45 s long, renewed within 30 s, retried every 2 s,
// under the host's own name, so that two hosts of one name both believe they lead (k3s facts §5.1). lost is called
// when the Lease is lost without ctx having ended: k3s exits 1 then. When ctx ends the Lease is not let go: a real k3s
// is gone before it could be, so the next holder waits for it to expire (docs/k3s.md).
func Lead(ctx context.Context, client kubernetes.Interface, lease, hostname string, log *slog.Logger, work func(context.Context), lost func(reason string)) error {
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: lease,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: lease},
			Client:    client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: hostname},
		},
		LeaseDuration: 45 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: work,
			OnStoppedLeading: func() {
				if ctx.Err() == nil {
					lost("leaderelection lost for " + lease)
				}
			},
			OnNewLeader: func(id string) { log.Info("Lease holder", "lease", lease, "holder", id) },
		},
	})
	if err != nil {
		return fmt.Errorf("lease %s: %w", lease, err)
	}
	e.Run(ctx)
	return nil
}
