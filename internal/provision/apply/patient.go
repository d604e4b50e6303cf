package apply

import (
	"context"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sleep"
)

// patience is how long an API server may be out of breath: a fleet's smallest board is
// busy just when something is installed.
const patience = time.Minute

// patient asks again where that may help. Everything that a turn asks for may be asked twice.
type patient struct{ Cluster }

func again[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		v, err := ask()
		if !kube.Transient(err) || !sleep.For(ctx, time.Second) {
			return v, err
		}
	}
}

func (p patient) Lease(ctx context.Context) (observe.Lease, error) {
	return again(ctx, func() (observe.Lease, error) { return p.Cluster.Lease(ctx) })
}

func (p patient) Nodes(ctx context.Context) ([]observe.Node, error) {
	return again(ctx, func() ([]observe.Node, error) { return p.Cluster.Nodes(ctx) })
}

func (p patient) Heartbeats(ctx context.Context) ([]observe.Heartbeat, error) {
	return again(ctx, func() ([]observe.Heartbeat, error) { return p.Cluster.Heartbeats(ctx) })
}

func (p patient) PatchNode(ctx context.Context, name, version string, n execute.NodePatch) error {
	_, err := again(ctx, func() (struct{}, error) { return struct{}{}, p.Cluster.PatchNode(ctx, name, version, n) })
	return err
}

func (p patient) Apply(ctx context.Context, o kube.Object, check bool) (kube.Installed, error) {
	return again(ctx, func() (kube.Installed, error) { return p.Cluster.Apply(ctx, o, check) })
}

func (p patient) Create(ctx context.Context, o kube.Object, check bool) (kube.Installed, error) {
	return again(ctx, func() (kube.Installed, error) { return p.Cluster.Create(ctx, o, check) })
}

func (p patient) Delete(ctx context.Context, o kube.Object, check bool) (kube.Installed, error) {
	return again(ctx, func() (kube.Installed, error) { return p.Cluster.Delete(ctx, o, check) })
}

func (p patient) Labelled(ctx context.Context, labels map[string]string, namespaces ...string) ([]kube.Object, error) {
	return again(ctx, func() ([]kube.Object, error) { return p.Cluster.Labelled(ctx, labels, namespaces...) })
}

func (p patient) Token(ctx context.Context, namespace, name string) (k3s.Secret, []byte, error) {
	type both struct {
		token k3s.Secret
		ca    []byte
	}
	b, err := again(ctx, func() (both, error) {
		token, ca, err := p.Cluster.Token(ctx, namespace, name)
		return both{token, ca}, err
	})
	return b.token, b.ca, err
}

func (p patient) RootCA(ctx context.Context) ([]byte, error) {
	return again(ctx, func() ([]byte, error) { return p.Cluster.RootCA(ctx) })
}
