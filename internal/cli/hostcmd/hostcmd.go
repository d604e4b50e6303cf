package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/etcd"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/hostd/preflight"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/memory"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/systemd"
	"github.com/exadev/regrade/internal/probe/sensor"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/sleep"
)

// API is the cluster as the daemon uses it, with the list a command begins with
// and the watch the daemon keeps.
type API interface {
	hostd.API
	// Begin reads the Nodes once, or goes on watching them until ctx ends.
	Begin(ctx context.Context, watch bool) error
}

// Deps make the parts of a host; tests put fakes here.
type Deps struct {
	API  func(settings.Host) (API, error)
	Host func(h settings.Host, root string) (platform.Host, error)
	Etcd func(h settings.Host, root string) hostd.Etcd
	Ways func(h settings.Host, root string, p platform.Host) hostd.Ways
	// Levels is the cluster as the level half uses it, where that is on; Memory reads
	// the host's.
	Levels func(settings.Host) hostd.LevelAPI
	Memory func(h settings.Host, root string) func() level.Reading
	// Systemd is the host's, for the commands that set it up.
	Systemd func() setup.Manager
	// Project is the same of a host whose k3s runs in containers.
	Project func(root string) project.Host
	// PeerPort says whether something answers at this host's etcd peer port.
	PeerPort func(context.Context) bool
	// Version is regrade's own; Dates asks API servers for the time; Proc is where
	// processes are looked for, /proc when empty; MetricsURL is where this host's etcd shows
	// its metrics, which are not read when it is empty. Print is what a program prints. All
	// five are the doctor's and the support bundle's.
	Version    string
	Dates      func(ctx context.Context, urls []string, now func() time.Time) []preflight.Dated
	Proc       string
	MetricsURL string
	Print      func(ctx context.Context, argv ...string) ([]byte, error)
	// Wait pauses a command between passes.
	Wait func(ctx context.Context, d time.Duration) error
}

// Production is a host as host.yaml says: native under systemd, or containers.
func Production(version string) Deps {
	return Deps{
		Version: version, Dates: preflight.Dates, MetricsURL: sensor.DefaultMetricsURL, Print: printed,
		API:  func(h settings.Host) (API, error) { return newCluster(h), nil },
		Host: machineOf,
		Etcd: func(h settings.Host, root string) hostd.Etcd {
			return etcd.New(filepath.Join("/", root, h.DataDir, "server/tls/etcd"), "")
		},
		Ways: func(h settings.Host, root string, p platform.Host) hostd.Ways {
			disk, server := stagedOf(h, root, p)
			return &preflight.Checker{
				Disk: disk, Server: server,
				Allowed: h.AllowedFlags, MinFree: h.MinFreeMiB << 20,
				Version: func() string {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					defer cancel()
					f, err := p.Observe(ctx)
					if err != nil {
						return ""
					}
					return f.K3sVersion
				},
			}
		},
		Levels: func(h settings.Host) hostd.LevelAPI { return &levelCluster{s: h} },
		Memory: func(h settings.Host, root string) func() level.Reading {
			r := memory.Reader{Root: root, Pressure: h.Levels.Pressure}
			return func() level.Reading {
				reading, _, _ := r.Read() // what is missing is named by the rule
				return reading
			}
		},
		Systemd: func() setup.Manager { return manager{systemd.NewManager()} },
		Project: func(root string) project.Host {
			return project.Host{
				Root:     root,
				Engine:   func(socket string) (project.Engine, error) { return docker.NewEngine(socket) },
				Programs: func(socket string) project.Programs { return project.OfHost{Socket: socket} },
			}
		},
		PeerPort: func(ctx context.Context) bool {
			d := net.Dialer{Timeout: time.Second}
			c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", "2380"))
			if err != nil {
				return false
			}
			_ = c.Close()
			return true
		},
		Wait: func(ctx context.Context, d time.Duration) error {
			sleep.For(ctx, d)
			return ctx.Err()
		},
	}
}

// host is one command line's host.
type host struct {
	e    env.Env
	d    Deps
	root string
}

// parts are a command's parts, made from the settings.
type parts struct {
	settings settings.Host
	daemon   hostd.Settings
	api      API
	lock     *flock.Flock
	log      *slog.Logger
}

func (h *host) parts() (*parts, error) {
	s, err := settings.Load(h.root)
	if err != nil {
		return nil, env.Usage("%v", err)
	}
	keys, err := s.Keys()
	if err != nil {
		return nil, env.Usage("%v", err)
	}
	log, err := obs.NewLogger(h.e.Err, s.LogFormat, s.LogLevel)
	if err != nil {
		return nil, env.Usage("%v", err)
	}
	s.Kubeconfig = filepath.Join("/", h.root, s.Kubeconfig)
	api, err := h.d.API(s)
	if err != nil {
		return nil, env.Failed(err)
	}
	path := filepath.Join("/", h.root, s.Lock)
	p := hostd.DefaultPolicy()
	p.Keys, p.JoinURLs = keys, s.Join
	p.Period, p.OperationTimeout = time.Duration(s.Period), time.Duration(s.OperationTimeout)
	machine, err := h.d.Host(s, h.root)
	if err != nil {
		return nil, env.Failed(err)
	}
	levels, err := h.levels(s)
	if err != nil {
		return nil, err
	}
	return &parts{
		settings: s, api: api, lock: flock.New(path), log: log,
		daemon: hostd.Settings{
			Node: s.Node, Policy: p, Host: machine, API: api, Etcd: h.d.Etcd(s, h.root), Ways: h.d.Ways(s, h.root, machine),
			Now: h.e.Now, Log: log.With(obs.Host, s.Node), Levels: levels,
		},
	}, nil
}

// levels is the level half, nil where host.yaml leaves it off.
func (h *host) levels(s settings.Host) (*hostd.LevelSettings, error) {
	if !s.Levels.Enabled {
		return nil, nil
	}
	protected, err := kube.Selector(s.Levels.RunnerSelector)
	if err != nil {
		return nil, env.Usage("%s: levels.runner-selector: %v", fleet.FileHostConfig, err)
	}
	s.Levels.Kubeconfig = filepath.Join("/", h.root, s.Levels.Kubeconfig)
	return &hostd.LevelSettings{
		Policy: s.Levels.Policy(time.Duration(s.Period)), Target: s.Levels.Voters,
		API: h.d.Levels(s), Memory: h.d.Memory(s, h.root), Protected: protected,
	}, nil
}

// place makes the folder of the host lock: whoever only looks at a host makes none.
func (p *parts) place() error {
	if err := os.MkdirAll(filepath.Dir(p.lock.Path()), 0o755); err != nil {
		return env.Failed(fmt.Errorf("host lock: %w", err))
	}
	return nil
}

// take waits for the host lock, and gives up when another process has it for
// longer than an operation may take (R-216-13).
func (p *parts) take(ctx context.Context) error {
	if err := p.place(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.settings.OperationTimeout))
	defer cancel()
	ok, err := p.lock.TryLockContext(ctx, 100*time.Millisecond)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return env.Failed(fmt.Errorf("host lock %s: another process has held it for %s", p.lock.Path(), time.Duration(p.settings.OperationTimeout)))
	case err != nil || !ok:
		return env.Failed(fmt.Errorf("host lock %s: %w", p.lock.Path(), err))
	}
	return nil
}

// hostLock is the lock for the daemon's passes.
type hostLock struct{ *flock.Flock }

func (l hostLock) TryLock() (bool, error) { return l.Flock.TryLock() }

// New makes `regrade host` with its commands.
func New(e env.Env, d Deps) *cobra.Command {
	h := &host{e: e, d: d}
	var i inventory
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Run this host's daemon, or take one of its steps",
		Long: `Without a command: the daemon of this host. It carries out what the controller
orders on this host's Node, finishes a demotion on evidence, and reports. Its
settings are /etc/regrade/host.yaml and join.yaml.

Exit statuses of the commands: 0 done, 1 failed, 2 refused with nothing changed,
3 not yet.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.Read(cmd, h.e.Getenv); err != nil {
				return err
			}
			return h.daemon(cmd.Context(), i)
		},
	}
	env.Root(cmd.PersistentFlags(), &h.root)
	i.flags(cmd.Flags())
	cmd.AddCommand(
		h.status(), h.preflight(), h.doctor(), h.supportBundle(), h.roleIs(), h.allowJoin(), h.recordRole(),
		h.step("promote", "Make this standby a server", fleet.StepPromote),
		h.step("step-down", "Make this voter an etcd-only server that is leaving", fleet.StepStepDown),
		h.step("rollback", "Undo a promotion, from whatever state it reached", fleet.StepRollback),
		h.step("snapshot", "Take an etcd snapshot named for a swap", fleet.StepSnapshot),
		h.finishDemote(), h.promoteLocal(), h.demoteLocal(), h.setup(), h.remove(), h.lend(),
	)
	return cmd
}

// daemon is the watch loop.
func (h *host) daemon(ctx context.Context, i inventory) error {
	p, err := h.parts()
	if err != nil {
		return err
	}
	if err := p.place(); err != nil {
		return err
	}
	p.daemon.Lock = hostLock{p.lock}
	if err := p.api.Begin(ctx, true); err != nil {
		return env.Failed(err)
	}
	p.log.Info("host daemon started", obs.Host, p.settings.Node)
	h.recordAtStart(ctx, p, i)
	p.daemon.Rested = lean.AtRest(p.log)
	if err := hostd.New(p.daemon).Run(ctx); err != nil {
		return env.Failed(err)
	}
	return nil
}
