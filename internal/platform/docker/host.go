package docker

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/peerport"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Options make a Host.
type Options struct {
	// Root stands before every path of this process; empty is none.
	Root string
	// Socket is the engine's; empty is /var/run/docker.sock.
	Socket string
	// Project is the Compose project's name; empty is the one that this process's own
	// container is of, and github-runner on a host.
	Project string
	// ServerService and AgentService are its services; empty are k3s and k3s-agent.
	ServerService string
	AgentService  string
	// K3s is k3s's binary in the containers; empty is /bin/k3s.
	K3s string
	// Identity are the folders of a k3s container that say who the host is, the node
	// password's first (R-D2-05); nil is DefaultIdentity.
	Identity []string
	// PeerAddress is where the peer port is held; empty is :2380.
	PeerAddress string

	// Engine is the engine; nil is the one at Socket.
	Engine Engine
	// Self gives this process's mountinfo, in which a container finds itself; empty is
	// a host's. nil reads it.
	Self func() string
	// BootID reads this boot's id; nil asks the kernel.
	BootID func() (string, error)
	// Network says which network this process is in, and its addresses there; nil asks the
	// kernel.
	Network func() (name string, addresses []netip.Addr)

	copier copier
}

// Defaults of the shipped Compose project (fleet-components §8).
const (
	DefaultSocket        = "/var/run/docker.sock"
	DefaultProject       = "github-runner"
	DefaultServerService = "k3s"
	DefaultAgentService  = "k3s-agent"
	DefaultK3s           = "/bin/k3s"
)

// DefaultIdentity are the node password's folder and the mesh's state (R-N-09).
func DefaultIdentity() []string { return container.Identity() }

// observeTimeout bounds one look: an engine that hangs must not hold a pass.
const observeTimeout = 5 * time.Second

// Host is a host whose k3s runs in containers.
type Host struct {
	o      Options
	engine Engine
	dir    rolefile.Dir
	peer   peerport.Port

	noting   sync.Mutex // one change of the record at a time
	mu       sync.Mutex
	own      []Mount   // this process's mounts, nil before they were asked for
	self     Container // this process's, without an id on a host
	project  string    // known with them
	seen     record    // what a look showed beyond the record on disk
	upIn     string    // the boot in which k3s was seen running
	notedIn  string    // the boot in which that was written down
	jobs     map[fleet.Role]*job
	snapshot platform.SnapshotRun
	heard    map[string]heard  // what containers said of their network
	asked    map[string]asking // by image, whose version is not known

	engineVersion string
	engineAsked   time.Time // when that was asked for
}

var _ platform.Host = (*Host)(nil)

// New makes a Host; it touches nothing yet.
func New(o Options) (*Host, error) {
	set := func(v *string, to string) {
		if *v == "" {
			*v = to
		}
	}
	set(&o.Socket, DefaultSocket)
	set(&o.ServerService, DefaultServerService)
	set(&o.AgentService, DefaultAgentService)
	set(&o.K3s, DefaultK3s)
	if o.Identity == nil {
		o.Identity = DefaultIdentity()
	}
	if o.Self == nil {
		o.Self = mountinfo
	}
	if o.BootID == nil {
		o.BootID = kernelBootID
	}
	if o.Network == nil {
		o.Network = kernelNetwork
	}
	if o.Engine == nil {
		var err error
		if o.Engine, err = NewEngine(o.Socket); err != nil {
			return nil, err
		}
	}
	return &Host{
		o: o, engine: o.Engine, dir: rolefile.Dir{Root: o.Root}, peer: peerport.Port{Address: o.PeerAddress},
		jobs: map[fleet.Role]*job{}, asked: map[string]asking{}, heard: map[string]heard{},
	}, nil
}

func kernelBootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Observe implements platform.Host.
func (h *Host) Observe(ctx context.Context) (platform.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	// The snapshot command before its file: one that has ended has its file now.
	h.mu.Lock()
	snapshot := h.snapshot
	h.mu.Unlock()
	// Jobs before containers: one that has ended has done its work by the time the
	// container is looked at.
	jobs := h.running()
	p, err := h.pair(ctx)
	if err != nil {
		return platform.Facts{}, err
	}
	if err := h.cutOff(ctx); err != nil {
		return platform.Facts{}, err
	}
	process := map[fleet.Role]bool{}
	if process[fleet.RoleServer], p.server, err = h.k3sIn(ctx, p.server, fleet.RoleServer); err != nil {
		return platform.Facts{}, err
	}
	if process[fleet.RoleAgent], p.agent, err = h.k3sIn(ctx, p.agent, fleet.RoleAgent); err != nil {
		return platform.Facts{}, err
	}
	h.saw(process)
	f, err := h.read(p.server)
	if err != nil {
		return platform.Facts{}, err
	}
	r := h.record()
	level := f.Server.Level
	f.Server = h.unit(p.server, process[fleet.RoleServer], fleet.RoleServer, f.Files, r)
	f.Agent = h.unit(p.agent, process[fleet.RoleAgent], fleet.RoleAgent, f.Files, r)
	f.Server.Job, f.Agent.Job = jobs[fleet.RoleServer], jobs[fleet.RoleAgent]
	if process[fleet.RoleServer] {
		f.Server.Level = level
	}
	f.Owed = h.owed(f, p.server, r)
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		if process[role] && jobs[role] == platform.JobNone && rolefile.MayStart(f.Files, role).May && h.severed(ctx, p.of(role)) {
			f.Owed = role
		}
	}
	f.Warnings = append(p.warnings, h.engineWarning(ctx)...)
	f.Staged = p.server.ID != ""
	f.AgentProblem, f.Password = h.agentProblem(p, r), h.password(p, r)
	if f.AgentProblem == "" {
		f.AgentProblem = f.Files.Identity.PasswordProblem(f.Password)
	}
	f.K3sVersion = h.version(ctx, p, process)
	f.PeerPort, f.Snapshot = h.peer.Held(), snapshot
	return f, nil
}

// saw keeps whose k3s runs now.
func (h *Host) saw(process map[fleet.Role]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.Owner = ""
	switch {
	case process[fleet.RoleServer] && process[fleet.RoleAgent]:
	case process[fleet.RoleServer]:
		h.seen.Owner = fleet.RoleServer
	case process[fleet.RoleAgent]:
		h.seen.Owner = fleet.RoleAgent
	}
}

// HoldPeerPort implements platform.Host. The daemon shares the network of the k3s
// containers, so its port is theirs.
func (h *Host) HoldPeerPort(_ context.Context, hold bool) error { return h.peer.Hold(hold) }
