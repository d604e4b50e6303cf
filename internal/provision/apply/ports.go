package apply

import (
	"context"
	"io"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/remote"
)

// Cluster is the API, by the credential of a person who may install things.
type Cluster interface {
	// Date is the API server's, of its last answer.
	Date() time.Time
	Lease(ctx context.Context) (observe.Lease, error)
	Nodes(ctx context.Context) ([]observe.Node, error)
	PatchNode(ctx context.Context, name, version string, p execute.NodePatch) error
	Heartbeats(ctx context.Context) ([]observe.Heartbeat, error)

	Apply(ctx context.Context, o kube.Object, check bool) (kube.Installed, error)
	Create(ctx context.Context, o kube.Object, check bool) (kube.Installed, error)
	Delete(ctx context.Context, o kube.Object, check bool) (kube.Installed, error)
	Labelled(ctx context.Context, labels map[string]string, namespaces ...string) ([]kube.Object, error)
	Token(ctx context.Context, namespace, name string) (k3s.Secret, []byte, error)
	// RootCA is what the cluster publishes as its CA, nil for nothing.
	RootCA(ctx context.Context) ([]byte, error)
}

// Dial reaches a host as root.
type Dial func(ctx context.Context, h inventory.Host) (remote.Runner, error)

// Program is regrade as a file on this machine, for one architecture.
type Program struct {
	Path string
	Size int64
	// Sum is its SHA-256, hex.
	Sum string
}

// Settings of one turn.
type Settings struct {
	Fleet inventory.Fleet
	// Check looks and changes nothing that stays.
	Check bool
	// Limit are the only hosts to go to, all where it is empty. The cluster's own objects
	// are left alone then.
	Limit []string
	// Program gives regrade for an architecture as Go names it.
	Program func(arch string) (Program, error)
	// Image is regrade's for a Docker host that has none. Asked for by the file, it is that of
	// every Docker host which names no other.
	Image      string
	ImageAsked bool
	Archive    Archive

	Objects   []manifests.Object
	Namespace string
	Keys      fleet.Keys
	// Levels: the hosts' level half has a credential of its own.
	Levels bool
	Period time.Duration
	// Wait is how long the daemons may take to speak.
	Wait time.Duration

	Out io.Writer
	Now func() time.Time
}
