package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exadev/regrade/lab/standin/k3s/controllers"
	"github.com/exadev/regrade/lab/standin/k3s/etcdclient"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/membership"
	"github.com/exadev/regrade/lab/standin/k3s/snapshot"
	"github.com/exadev/regrade/lab/standin/k3s/token"
	"github.com/exadev/regrade/lab/standin/parts"
)

// connectKube makes the clients that controllers use: the apiserver on 6444, which is the load balancer on etcd-only
// servers.
func (s *server) connectKube() (snapshot.Clients, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", s.data.Server("cred", "supervisor.kubeconfig"))
	if err != nil {
		return snapshot.Clients{}, fmt.Errorf("supervisor kubeconfig: %w", err)
	}
	rest.QPS, rest.Burst = 50, 100
	kube, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return snapshot.Clients{}, fmt.Errorf("apiserver client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(rest)
	if err != nil {
		return snapshot.Clients{}, fmt.Errorf("apiserver client: %w", err)
	}
	return snapshot.Clients{Kube: kube, Dynamic: dyn}, nil
}

// startControllers runs what a server with an apiserver runs.
func (s *server) startControllers(ctx context.Context) error {
	clients, err := s.connectKube()
	if err != nil {
		return err
	}
	if err := snapshot.EnsureCRD(ctx, clients.Dynamic); err != nil {
		return err
	}
	n := s.startCommon(ctx, clients)
	if s.wasReset {
		go controllers.AfterReset(ctx, n, s.host.NodeName)
	}
	if !s.v.Bool("disable-agent") {
		go controllers.LabelControlPlane(ctx, n, s.host.NodeName)
		if password, err := os.ReadFile(layout.NodePassword); err == nil {
			go controllers.CheckLater(ctx, n, s.host.NodeName, strings.TrimSpace(string(password)))
		}
	}
	lost := func(reason string) { s.end(1, reason) }
	ctx, release := context.WithCancel(ctx)
	s.mu.Lock()
	s.release = release
	s.mu.Unlock()
	lead := func(lease string, work func(context.Context)) {
		s.leases.Go(func() {
			if err := controllers.Lead(ctx, clients.Kube, lease, s.host.Hostname, s.log, work, lost); err != nil {
				s.log.Error("Failed to run lease", "lease", lease, "error", err)
			}
		})
	}
	lead("k3s", func(ctx context.Context) {
		go controllers.OwnPasswords(ctx, n)
		s.report(controllers.KeepNodeFinalizer(ctx, n))
	})
	lead("k3s-etcd", func(ctx context.Context) {
		go func() { s.report(controllers.WriteAddresses(ctx, clients.Kube, etcdPort{s}.Put, s.log)) }()
		s.report(controllers.RemoveMembers(ctx, n, etcdPort{s}, s.b.MoveLeaderFirst, s.b.DropRemoveAnnotation))
	})
	return nil
}

func (s *server) report(err error) {
	if err != nil {
		s.log.Error("Controller stopped", "error", err)
	}
}

// startCommon runs what every server with a way to an apiserver runs.
func (s *server) startCommon(ctx context.Context, clients snapshot.Clients) *controllers.Nodes {
	n := controllers.StartNodes(ctx, clients.Kube, s.log)
	s.clients.Store(&clients)
	s.nodes.Store(n)
	go func() {
		if s.noEtcd() {
			s.report(controllers.UnclaimNode(ctx, n, s.host.NodeName))
			return
		}
		s.report(controllers.ClaimNode(ctx, n, s.host.NodeName, s.member, s.host.IP()))
	}()
	if !s.noEtcd() {
		interval, err := time.ParseDuration(s.v.Text("etcd-snapshot-reconcile-interval"))
		if err != nil || interval <= 0 {
			interval = 10 * time.Minute
		}
		go s.taker.Reconcile(ctx, interval)
		go s.snapshotSchedule(ctx)
	}
	return n
}

// followAPIServer waits on an etcd-only server until its load balancer reaches an apiserver; etcd serves without it.
func (s *server) followAPIServer(ctx context.Context) {
	select {
	case <-s.etcdReady:
	case <-ctx.Done():
		return
	}
	tls := func(f string) string { return s.data.Server("tls", f) }
	admin := parts.TLSFiles{Cert: tls("client-admin.crt"), Key: tls("client-admin.key"), CA: tls("server-ca.crt")}
	for parts.WaitAPIReady(ctx, "127.0.0.1:"+s.v.Text("lb-server-port"), admin) != nil {
		if ctx.Err() != nil {
			return
		}
	}
	clients, err := s.connectKube()
	if err != nil {
		s.log.Error("Failed to reach an apiserver", "error", err)
		return
	}
	s.startCommon(ctx, clients)
}

// snapshotSchedule takes snapshots at the times of the cron expression, without the jitter k3s adds.
func (s *server) snapshotSchedule(ctx context.Context) {
	if s.v.Bool("etcd-disable-snapshots") {
		return
	}
	schedule, err := cron.ParseStandard(s.v.Text("etcd-snapshot-schedule-cron"))
	if err != nil {
		s.log.Error("Failed to read snapshot schedule", "error", err)
		return
	}
	keep, err := strconv.Atoi(s.v.Text("etcd-snapshot-retention"))
	if err != nil {
		s.log.Error("Failed to read snapshot retention", "error", err)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(schedule.Next(time.Now()))):
		}
		if _, err := s.taker.Save(ctx, s.v.Text("etcd-snapshot-name"), s.taker.Dir, s.taker.Compress, keep); err != nil {
			s.log.Error("Failed to take etcd snapshot", "error", err)
		}
	}
}

func (s *server) newTaker() *snapshot.Taker {
	dir := s.v.Text("etcd-snapshot-dir")
	if dir == "" {
		dir = s.data.Snapshots()
	}
	return &snapshot.Taker{
		Stream: func(ctx context.Context) (io.ReadCloser, error) {
			c := s.etcdClient.Load()
			if c == nil {
				return nil, errors.New("etcd is not started")
			}
			return c.Snapshot(ctx)
		},
		IsLearner: func(ctx context.Context) (bool, error) {
			c := s.etcdClient.Load()
			if c == nil {
				return false, errors.New("etcd is not started")
			}
			status, err := c.Status(ctx, etcdclient.Local)
			if err != nil {
				return false, fmt.Errorf("etcd status: %w", err)
			}
			return status.IsLearner, nil
		},
		Clients: func(ctx context.Context) (snapshot.Clients, error) {
			for {
				if c := s.clients.Load(); c != nil {
					return *c, nil
				}
				select {
				case <-ctx.Done():
					return snapshot.Clients{}, ctx.Err()
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
		Node: s.host.NodeName, Dir: dir, MetadataDir: s.data.SnapshotMetadata(),
		TokenHash: token.Hash(s.secret), Compress: s.v.Bool("etcd-snapshot-compress"), Log: s.log.With("part", "snapshot"),
	}
}

func (s *server) manageLearners(ctx context.Context) {
	controllers.Learners{
		Etcd: etcdPort{s}, Nodes: s.nodes.Load, Tick: s.b.LearnerTick, Stall: s.b.LearnerStall,
		Heartbeat: s.b.VoterHeartbeat, Log: s.log.With("part", "learners"),
	}.Run(ctx)
}

// etcdPort gives the controllers the local etcd client.
type etcdPort struct{ s *server }

func (p etcdPort) client() (*clientv3.Client, error) {
	if c := p.s.etcdClient.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("etcd is not started")
}

// Members implements controllers.Etcd.
func (p etcdPort) Members(ctx context.Context) ([]membership.Member, error) {
	c, err := p.client()
	if err != nil {
		return nil, err
	}
	return etcdclient.Members(ctx, c)
}

// Leader implements controllers.Etcd.
func (p etcdPort) Leader(ctx context.Context) (uint64, error) {
	status, err := p.Status(ctx)
	return status.Leader, err
}

// Status implements controllers.LearnerEtcd.
func (p etcdPort) Status(ctx context.Context) (controllers.LocalStatus, error) {
	c, err := p.client()
	if err != nil {
		return controllers.LocalStatus{}, err
	}
	r, err := c.Status(ctx, etcdclient.Local)
	if err != nil {
		return controllers.LocalStatus{}, fmt.Errorf("etcd status: %w", err)
	}
	return controllers.LocalStatus{ID: r.Header.MemberId, Leader: r.Leader, Applied: r.RaftAppliedIndex, Errors: r.Errors}, nil
}

// MoveLeader implements controllers.Etcd.
func (p etcdPort) MoveLeader(ctx context.Context, leader, to membership.Member) error {
	if len(leader.ClientURLs) == 0 {
		return errors.New("the leader has no client URL")
	}
	c, err := etcdclient.Dial(p.s.data, leader.ClientURLs[0])
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.MoveLeader(ctx, to.ID)
	return err
}

// Remove implements controllers.Etcd.
func (p etcdPort) Remove(ctx context.Context, id uint64) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	_, err = c.MemberRemove(ctx, id)
	return err
}

// Promote implements controllers.LearnerEtcd.
func (p etcdPort) Promote(ctx context.Context, id uint64) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	_, err = c.MemberPromote(ctx, id)
	return err
}

// Get implements controllers.LearnerEtcd.
func (p etcdPort) Get(ctx context.Context, key string) ([]byte, error) {
	c, err := p.client()
	if err != nil {
		return nil, err
	}
	r, err := c.Get(ctx, key)
	if err != nil || len(r.Kvs) == 0 {
		return nil, err
	}
	return r.Kvs[0].Value, nil
}

// Put implements controllers.LearnerEtcd.
func (p etcdPort) Put(ctx context.Context, key string, value []byte) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	_, err = c.Put(ctx, key, string(value))
	return err
}
