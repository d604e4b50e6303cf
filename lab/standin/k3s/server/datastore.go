package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/balancer"
	"github.com/exadev/regrade/lab/standin/k3s/bootstrap"
	"github.com/exadev/regrade/lab/standin/k3s/etcdclient"
	"github.com/exadev/regrade/lab/standin/k3s/host"
	"github.com/exadev/regrade/lab/standin/k3s/membership"
	"github.com/exadev/regrade/lab/standin/k3s/supervisor"
	"github.com/exadev/regrade/lab/standin/parts"
)

// startProxy is not in the table of bootstrap.Decide: --disable-etcd has no datastore of its own.
const startProxy bootstrap.Start = "proxy"

// etcdTest is the period of the readiness test of etcd.
const etcdTest = 5 * time.Second

// registerMember handles the tombstone and the name file; it runs once the supervisor listens.
func (s *server) registerMember() error {
	switch s.start {
	case startProxy:
		return nil
	case bootstrap.StartRejoin, bootstrap.StartNewAfterTombstone:
		s.log.Info("This node has been removed from the cluster, moving its etcd data directory aside")
		if err := moveDatastore(s.data, "etcd-backup", time.Now()); err != nil {
			return err
		}
	case bootstrap.StartNew, bootstrap.StartJoin, bootstrap.StartExisting, bootstrap.StartSQLite:
	}
	b, err := os.ReadFile(s.data.MemberName())
	switch {
	case s.reset(): // another name, whatever the file says
	case err == nil && len(b) > 0:
		s.member = strings.TrimSpace(string(b))
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read member name: %w", err)
	}
	s.member = s.host.MemberBase + "-" + host.RandomHex(4)
	if err := os.MkdirAll(s.data.Etcd(), 0o700); err != nil {
		return fmt.Errorf("etcd folder: %w", err)
	}
	if err := os.WriteFile(s.data.MemberName(), []byte(s.member), 0o600); err != nil {
		return fmt.Errorf("write member name: %w", err)
	}
	return nil
}

// startDatastore starts etcd as decided, or the proxy in its place.
func (s *server) startDatastore(ctx context.Context) error {
	if s.start == startProxy {
		return s.startEtcdProxy(ctx)
	}
	cfg := s.etcdConfig()
	switch s.start {
	case bootstrap.StartExisting:
		s.log.Info("Starting etcd for existing cluster member")
	case bootstrap.StartNew, bootstrap.StartNewAfterTombstone:
		s.log.Info("Starting etcd for new cluster")
		cfg.InitialCluster, cfg.InitialClusterState = s.member+"="+membership.PeerURL(s.host.IP()), "new"
	default:
		initial, err := s.join(ctx)
		if err != nil {
			return err
		}
		s.log.Info("Starting etcd to join cluster with members " + initial)
		cfg.InitialCluster, cfg.InitialClusterState = initial, "existing"
	}
	client, err := etcdclient.Dial(s.data, etcdclient.Local)
	if err != nil {
		return err
	}
	s.etcdClient.Store(client)
	etcd, err := parts.StartEtcd(ctx, cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", errFatal, err)
	}
	s.mu.Lock()
	s.etcd = etcd
	s.mu.Unlock()
	go s.watchEtcd(etcd)
	go s.manageLearners(ctx)
	return nil
}

func (s *server) etcdConfig() parts.EtcdConfig {
	ip, tls := s.host.IP(), func(f string) string { return s.data.Server("tls", "etcd", f) }
	cfg := parts.EtcdConfig{
		DataDir: s.data.Etcd(), Name: s.member,
		ListenClientURLs:     []string{"https://127.0.0.1:2379", membership.ClientURL(ip)},
		ListenClientHTTPURLs: []string{"https://127.0.0.1:2382"},
		ListenPeerURLs:       []string{"https://127.0.0.1:2380", membership.PeerURL(ip)},
		ListenMetricsURLs:    []string{"http://127.0.0.1:2381"},
		AdvertiseClientURLs:  []string{membership.ClientURL(ip)}, AdvertisePeerURLs: []string{membership.PeerURL(ip)},
		Client: parts.TLSFiles{Cert: tls("server-client.crt"), Key: tls("server-client.key"), CA: tls("server-ca.crt")},
		Peer:   parts.TLSFiles{Cert: tls("peer-server-client.crt"), Key: tls("peer-server-client.key"), CA: tls("peer-ca.crt")},
		Extra:  map[string]string{},
		Output: parts.Output{Stdout: os.Stdout, Stderr: os.Stderr},
	}
	if s.v.Bool("etcd-expose-metrics") {
		cfg.ListenMetricsURLs = append(cfg.ListenMetricsURLs, "http://"+ip+":2381")
	}
	for _, a := range s.v.List("etcd-arg") {
		k, val, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		cfg.Extra[k] = val
	}
	return cfg
}

// watchEtcd turns etcd's events into what k3s does about them (k3s facts §5.3, §5.4). Losing etcd does not end the
// process, except on 1.34.1 without a tombstone.
func (s *server) watchEtcd(etcd *parts.Etcd) {
	removed, buried := false, false
	for e := range etcd.Events() {
		switch e.Kind {
		case parts.EventReady:
			s.log.Info("etcd serves")
		case parts.EventRemoved:
			removed = true
			if !e.Running && !s.b.TombstoneWhenDown {
				s.log.Error("etcd exited: the member has been permanently removed from the cluster; data-dir used by this member must be removed")
				continue
			}
			buried = true
			if err := os.WriteFile(s.data.Tombstone(), nil, 0o600); err != nil {
				s.log.Error("Failed to write tombstone", "error", err)
			}
			s.log.Info("This node has been removed from the cluster - please restart k3s to rejoin the cluster", "detail", e.Detail)
		case parts.EventStopped, parts.EventFatal:
			switch {
			case s.stopping.Load():
			case buried:
			case removed && !s.b.DieWithEtcd, e.Kind == parts.EventStopped && !s.b.DieWithEtcd:
				s.log.Error("etcd server stopped", "detail", e.Detail)
			default:
				s.end(1, "etcd exited: "+e.Detail)
			}
		}
	}
}

// awaitEtcd repeats the readiness test every 5 s without end.
func (s *server) awaitEtcd(ctx context.Context) error {
	for {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, etcdTest)
		err := s.testEtcd(attempt)
		cancel()
		if err == nil {
			return nil
		}
		s.log.Info("Failed to test etcd connection: " + err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(etcdTest - time.Since(began)):
		}
	}
}

func (s *server) testEtcd(ctx context.Context) error {
	if s.noEtcd() {
		_, err := etcdclient.Members(ctx, s.etcdClient.Load())
		return err
	}
	return etcdclient.Self(ctx, s.etcdClient.Load(), s.member, s.host.IP())
}

// join adds this server as a learner, with k3s's retries, and returns etcd's initial-cluster list.
func (s *server) join(ctx context.Context) (string, error) {
	for {
		initial, err := s.joinOnce(ctx)
		if err == nil {
			return initial, nil
		}
		if errors.Is(err, membership.ErrDuplicate) {
			if rmErr := os.Remove(s.data.MemberName()); rmErr != nil {
				s.log.Error("Failed to remove name file", "error", rmErr)
			}
		}
		message, retry := membership.RetryJoin(err)
		if errors.Is(err, errInfo) {
			message, retry = "Failed to get member list from cluster. Will try again", true
		}
		if !retry {
			return "", err
		}
		s.log.Info(message, "error", err)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

var errInfo = errors.New("member list of the server to join")

func (s *server) memberInfo(ctx context.Context) ([]membership.Member, error) {
	var info supervisor.DBInfo
	if err := s.access.GetJSON(ctx, "/db/info", 10*time.Second, &info); err != nil {
		return nil, fmt.Errorf("%w: %w", errInfo, err)
	}
	var out []membership.Member
	for _, m := range info.Members {
		out = append(out, membership.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner})
	}
	return out, nil
}

func (s *server) joinOnce(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	info, err := s.memberInfo(ctx)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(s.v.Text("server"))
	if err != nil {
		return "", fmt.Errorf("--server: %w", err)
	}
	endpoints := membership.JoinEndpoints(info, s.host.IP(), u.Hostname())
	if len(endpoints) == 0 {
		return "", fmt.Errorf("%w: no voter to join through", errInfo)
	}
	client, err := etcdclient.Dial(s.data, endpoints[0])
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	members, err := etcdclient.Members(ctx, client)
	if err != nil {
		return "", err
	}
	plan, err := membership.PlanJoin(members, s.host.MemberBase, s.member, s.host.IP())
	if err != nil {
		return "", err
	}
	if plan.Add {
		s.log.Info("Adding member to etcd cluster", "member", s.member, "peer", membership.PeerURL(s.host.IP()))
		if _, err := client.MemberAddAsLearner(ctx, []string{membership.PeerURL(s.host.IP())}); err != nil {
			return "", fmt.Errorf("add member: %w", err)
		}
	}
	return plan.Initial, nil
}

// startEtcdProxy is --disable-etcd: a load balancer on the etcd port, removal of an own member where the version still
// does that, and the datastore moved to etcd-old-<unix> (k3s facts §3.6).
func (s *server) startEtcdProxy(ctx context.Context) error {
	members, err := s.memberInfo(ctx)
	if err != nil {
		return err
	}
	endpoints := membership.JoinEndpoints(members, "", "")
	if len(endpoints) == 0 {
		return fmt.Errorf("%w: no voter to use", errInfo)
	}
	file := s.data.Server("etc", "k3s-etcd-server-load-balancer.json")
	lb, err := balancer.Start(ctx, "127.0.0.1:2379", endpoints[0], file, s.log.With("part", "etcd-proxy"))
	if err != nil {
		return err
	}
	update := func(list []membership.Member) {
		var hosts []string
		for _, e := range membership.JoinEndpoints(list, "", "") {
			if hp, err := balancer.HostPort(e); err == nil {
				hosts = append(hosts, hp)
			}
		}
		lb.Update(hosts)
	}
	update(members)
	client, err := etcdclient.Dial(s.data, etcdclient.Local)
	if err != nil {
		return err
	}
	s.etcdClient.Store(client)
	if b, err := os.ReadFile(s.data.MemberName()); err == nil && s.b.DisableEtcdRemovesMember {
		for _, m := range members {
			if m.Name != strings.TrimSpace(string(b)) {
				continue
			}
			if _, err := client.MemberRemove(ctx, m.ID); err != nil {
				return fmt.Errorf("remove own member: %w", err)
			}
		}
	}
	if exists(filepath.Dir(s.data.WAL())) {
		if err := moveDatastore(s.data, "etcd-old", time.Now()); err != nil {
			return err
		}
	}
	go func() {
		tick := time.NewTicker(30 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if list, err := etcdclient.Members(ctx, client); err == nil {
					update(list)
				}
			}
		}
	}()
	return nil
}
