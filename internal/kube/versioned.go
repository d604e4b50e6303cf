package kube

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// versioned refuses an answer without a resource version. Every object and every list of
// a Kubernetes has one. JSON of another server, and an object of another kind, are read
// as an object that holds nothing: no Nodes, a free Lease, a status without a swap. What
// is missing must not read as "no swap" (safety rules 24 and 25).
type versioned struct {
	client.WithWatch
	t *Transport
}

func (v versioned) checked(o interface{ GetResourceVersion() string }, err error) error {
	if err != nil || o.GetResourceVersion() != "" {
		return err
	}
	return &foreignError{server: v.t.Host(), said: "an object without a resource version", only: len(v.t.servers) == 1}
}

// Get implements client.Reader.
func (v versioned) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	o.SetResourceVersion("") // what the caller put in is no answer
	return v.checked(o, v.WithWatch.Get(ctx, key, o, opts...))
}

// List implements client.Reader.
func (v versioned) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	l.SetResourceVersion("")
	return v.checked(l, v.WithWatch.List(ctx, l, opts...))
}
