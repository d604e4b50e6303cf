// Package server is k3s server: it decides how the datastore starts, brings up the supervisor, etcd, the control plane,
// the controllers and the agent part in k3s's order, and ends the way k3s ends (k3s facts §3).
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/exadev/regrade/lab/standin/k3s/access"
	"github.com/exadev/regrade/lab/standin/k3s/agent"
	"github.com/exadev/regrade/lab/standin/k3s/behaviour"
	"github.com/exadev/regrade/lab/standin/k3s/bootstrap"
	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/controllers"
	"github.com/exadev/regrade/lab/standin/k3s/host"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/snapshot"
	"github.com/exadev/regrade/lab/standin/k3s/supervisor"
	"github.com/exadev/regrade/lab/standin/parts"
)

// server is one running k3s server.
type server struct {
	v    config.Values
	b    behaviour.Behaviour
	host host.Host
	data layout.Data
	log  *slog.Logger
	// up tells systemd.
	up func() error

	start bootstrap.Start
	// wasReset: this is the first start in order after a --cluster-reset.
	wasReset    bool
	access      *access.Access // the server to join; nil without one
	token       string         // full text of server/token
	secret      string
	agentSecret string
	member      string // etcd member name

	supervisor  *supervisor.Supervisor
	passthrough *supervisor.Passthrough
	taker       *snapshot.Taker
	etcdClient  atomic.Pointer[clientv3.Client]
	nodes       atomic.Pointer[controllers.Nodes]
	clients     atomic.Pointer[snapshot.Clients]

	etcdReady chan struct{}
	apiReady  chan struct{}

	ended    chan ending
	stopping atomic.Bool
	mu       sync.Mutex
	etcd     *parts.Etcd
	children []*parts.Process

	// release ends the leader elections, leases waits for them to have let go.
	release context.CancelFunc
	leases  sync.WaitGroup
}

// ending is why the process ends by itself, and its exit code: 0 for a shutdown it asked of itself, 1 for what is fatal
// in k3s (k3s facts §3.7).
type ending struct {
	code   int
	reason string
}

func (s *server) end(code int, reason string) {
	select {
	case s.ended <- ending{code, reason}:
	default:
	}
}

func (s *server) etcdOnly() bool { return s.v.Bool("disable-apiserver") }
func (s *server) noEtcd() bool   { return s.v.Bool("disable-etcd") }

// track remembers a child to be killed before this process ends.
func (s *server) track(p *parts.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children = append(s.children, p)
}

// Run runs a server until ctx ends or it ends by itself, and returns the exit code. up is called once it is ready.
func Run(ctx context.Context, v config.Values, b behaviour.Behaviour, up func() error, log *slog.Logger) int {
	s := &server{
		v: v, b: b, up: up, log: log, data: layout.Data(v.Text("data-dir")),
		etcdReady: make(chan struct{}), apiReady: make(chan struct{}),
		ended: make(chan ending, 1),
	}
	if err := s.prepare(ctx); err != nil {
		log.Error("fatal", "error", err)
		return 1
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := s.listen(run); err != nil {
		log.Error("fatal", "error", err)
		return 1
	}
	go s.bring(run)

	code := 0
	select {
	case <-ctx.Done():
		log.Info("Shutdown request received")
	case e := <-s.ended:
		code = e.code
		log.Error("Shutting down", "reason", e.reason, "code", e.code)
	}
	s.stop(code == 0)
	return code
}

// stop ends the children. In an orderly end etcd gets its time: it hands leadership over and stops. The rest is killed
// before that, as k3s's parts are when its process ends: etcd waits up to 15 s for the apiserver's watches to close, and
// with it the hand-over would wait. A fatal end gives etcd no time.
func (s *server) stop(orderly bool) {
	s.stopping.Store(true)
	if orderly {
		s.letGo()
	}
	s.mu.Lock()
	etcd, children := s.etcd, s.children
	s.mu.Unlock()
	var wait sync.WaitGroup
	for _, p := range children {
		wait.Go(p.Kill)
	}
	if c := s.etcdClient.Load(); c != nil {
		_ = c.Close()
	}
	if etcd != nil {
		if orderly {
			grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			if err := etcd.Stop(grace); err != nil {
				s.log.Error("Failed to stop etcd in order", "error", err)
			}
			cancel()
		} else {
			etcd.Kill()
		}
	}
	wait.Wait()
}

// letGo releases the Leases of the leader elections while the apiserver still answers, for at most a second.
func (s *server) letGo() {
	s.mu.Lock()
	release := s.release
	s.mu.Unlock()
	if release == nil {
		return
	}
	release()
	released := make(chan struct{})
	go func() {
		s.leases.Wait()
		close(released)
	}()
	select {
	case <-released:
	case <-time.After(time.Second):
	}
}

// bring starts everything behind the supervisor.
func (s *server) bring(ctx context.Context) {
	if s.reset() {
		s.bringReset(ctx)
		return
	}
	if !s.v.Bool("disable-agent") {
		go s.runAgent(ctx)
	}
	if s.etcdOnly() {
		go s.followAPIServer(ctx)
	} else {
		time.AfterFunc(s.b.ReadyLimit, func() {
			select {
			case <-s.apiReady:
			default:
				s.end(0, "failed to wait for apiserver ready: timed out")
			}
		})
	}
	if err := s.startDatastore(ctx); err != nil {
		if ctx.Err() == nil {
			code := 0
			if s.b.FatalJoinErrors || errors.Is(err, errFatal) {
				code = 1
			}
			s.end(code, "starting etcd: "+err.Error())
		}
		return
	}
	if err := s.awaitEtcd(ctx); err != nil {
		return
	}
	close(s.etcdReady)
	s.log.Info("etcd data store connection OK")
	if s.etcdOnly() {
		s.ready()
		return
	}
	if err := s.startControlPlane(ctx); err != nil {
		if ctx.Err() == nil {
			s.end(0, err.Error())
		}
		return
	}
	s.ready()
}

func (s *server) ready() {
	if err := s.up(); err != nil {
		s.log.Error("Failed to notify systemd", "error", err)
		return
	}
	s.log.Info("k3s is up and running")
}

// errFatal marks errors that exit 1 in every version.
var errFatal = errors.New("fatal")

func (s *server) runAgent(ctx context.Context) {
	cfg := agent.Config{
		Mode: agent.FullServer, Values: s.v, Host: s.host, Data: s.data, ServerURL: "https://127.0.0.1:6443",
		Token: s.agentSecret, ReadyLimit: s.b.ReadyLimit, Started: s.track,
		Log: s.log.With("part", "agent"),
	}
	if s.etcdOnly() {
		cfg.Mode = agent.EtcdOnly
		cfg.Addresses = s.addresses
	}
	if err := agent.Run(ctx, cfg); err != nil && ctx.Err() == nil {
		s.end(0, "agent part: "+err.Error())
	}
}

// startControlPlane runs apiserver, controller manager and scheduler, and the controllers.
func (s *server) startControlPlane(ctx context.Context) error {
	out := parts.Output{Stdout: os.Stdout, Stderr: os.Stderr}
	tls := s.data.Server("tls")
	cidr := first(s.v.Split("service-cidr"))
	api, err := parts.StartAPIServer(ctx, parts.APIServerConfig{
		TLSDir: tls, AdvertiseAddress: s.host.Advertise(s.v), ServiceCIDR: cidr,
		ExtraArgs: s.v.List("kube-apiserver-arg"), Output: out,
	})
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	s.watch(api, 0)
	s.passthrough.Open()
	admin := parts.TLSFiles{
		Cert: s.data.Server("tls", "client-admin.crt"), Key: s.data.Server("tls", "client-admin.key"), CA: s.data.Server("tls", "server-ca.crt"),
	}
	if err := parts.WaitAPIReady(ctx, "127.0.0.1:6444", admin); err != nil {
		return fmt.Errorf("wait for apiserver: %w", err)
	}
	close(s.apiReady)
	s.log.Info("Kube API server is now running")
	if !s.v.Bool("disable-controller-manager") {
		kcm, err := parts.StartControllerManager(ctx, parts.ControllerManagerConfig{
			TLSDir: tls, Kubeconfig: s.data.Server("cred", "controller.kubeconfig"), ServiceCIDR: cidr,
			ClusterCIDR: first(s.v.Split("cluster-cidr")), ExtraArgs: s.v.List("kube-controller-manager-arg"), Output: out,
		})
		if err != nil {
			return fmt.Errorf("controller manager: %w", err)
		}
		s.watch(kcm, 1)
	}
	if !s.v.Bool("disable-scheduler") {
		sched, err := parts.StartScheduler(ctx, parts.SchedulerConfig{
			TLSDir: tls, Kubeconfig: s.data.Server("cred", "scheduler.kubeconfig"), ExtraArgs: s.v.List("kube-scheduler-arg"), Output: out,
		})
		if err != nil {
			return fmt.Errorf("scheduler: %w", err)
		}
		s.watch(sched, 1)
	}
	return s.startControllers(ctx)
}

// watch ends this process when a child ends: with 0 for the apiserver, with 1 for those that lose a Lease.
func (s *server) watch(p *parts.Process, code int) {
	s.track(p)
	go func() {
		err := p.Wait()
		if !s.stopping.Load() {
			s.end(code, fmt.Sprintf("%s exited: %v", p.Name, err))
		}
	}()
}

func first(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return l[0]
}
