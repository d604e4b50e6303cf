package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// folderEtcdTLS holds a server's certificates for etcd.
const folderEtcdTLS = "/var/lib/rancher/k3s/server/tls/etcd/"

// etcdLimit ends one question to etcd.
const etcdLimit = 5 * time.Second

// Member is an entry of etcd's member list.
type Member struct {
	ID fleet.MemberID
	// Name is empty for a member that never started.
	Name    string
	PeerURL string
	Learner bool
}

// Node is the name of the node that k3s made the member for, or empty.
func (m Member) Node() string {
	node, _ := fleet.MemberNodeName(m.Name)
	return node
}

func (m Member) String() string {
	kind := "voter"
	if m.Learner {
		kind = "learner"
	}
	return fmt.Sprintf("%s %s %s %s", m.ID, m.Name, kind, m.PeerURL)
}

// Etcd is a client of this host's etcd alone. The caller closes it.
func (c *Cluster) Etcd(h *host.Host) (*clientv3.Client, error) {
	config, err := c.etcdTLS()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{fmt.Sprintf("https://%s:%d", h.IP(), EtcdPort)},
		TLS:         config,
		DialTimeout: etcdLimit,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.Lab.DialContext(ctx, "tcp", strings.TrimPrefix(address, "https://"))
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd of %s: %w", h.Name(), err)
	}
	return client, nil
}

// etcdTLS takes the certificate off the disk of the host that started the cluster; it is good at every server.
func (c *Cluster) etcdTLS() (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.etcd != nil {
		return c.etcd, nil
	}
	h := c.Lab.Hosts()[0]
	ca, err := h.ReadFile(folderEtcdTLS + "server-ca.crt")
	if err != nil {
		return nil, err
	}
	cert, err := h.ReadFile(folderEtcdTLS + "client.crt")
	if err != nil {
		return nil, err
	}
	key, err := h.ReadFile(folderEtcdTLS + "client.key")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("etcd client certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("etcd CA: no certificate in it")
	}
	c.etcd = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return c.etcd, nil
}

// MemberList is etcd's member list with the cluster's id.
type MemberList struct {
	ClusterID fleet.MemberID
	Members   []Member
}

// Voters are the node names of the voters, sorted; a voter that belongs to no node stands there by its id.
func (l MemberList) Voters() []string {
	var names []string
	for _, m := range l.Members {
		switch {
		case m.Learner:
		case m.Node() == "":
			names = append(names, m.ID.String())
		default:
			names = append(names, m.Node())
		}
	}
	slices.Sort(names)
	return names
}

// Learners are the learners.
func (l MemberList) Learners() []Member {
	var found []Member
	for _, m := range l.Members {
		if m.Learner {
			found = append(found, m)
		}
	}
	return found
}

func (l MemberList) String() string {
	var lines []string
	for _, m := range l.Members {
		lines = append(lines, m.String())
	}
	return fmt.Sprintf("cluster %s: %s", l.ClusterID, strings.Join(lines, "; "))
}

// MembersAt is the linearizable member list as this host's etcd gives it.
func (c *Cluster) MembersAt(ctx context.Context, h *host.Host) (MemberList, error) {
	client, err := c.Etcd(h)
	if err != nil {
		return MemberList{}, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, etcdLimit)
	defer cancel()
	response, err := client.MemberList(ctx)
	if err != nil {
		return MemberList{}, fmt.Errorf("member list of %s: %w", h.Name(), err)
	}
	list := MemberList{ClusterID: fleet.MemberID(response.Header.ClusterId)}
	for _, m := range response.Members {
		member := Member{ID: fleet.MemberID(m.ID), Name: m.Name, Learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			member.PeerURL = m.PeerURLs[0]
		}
		list.Members = append(list.Members, member)
	}
	return list, nil
}

// Members is the member list of the first host that gives one.
func (c *Cluster) Members(ctx context.Context) (MemberList, error) {
	var failed []error
	for _, h := range c.Lab.Hosts() {
		if !h.Up() || !c.Spec.host(h.Name()).eligible() || !c.listens(ctx, h, EtcdPort) {
			continue
		}
		list, err := c.MembersAt(ctx, h)
		if err == nil {
			return list, nil
		}
		failed = append(failed, err)
	}
	return MemberList{}, errors.Join(append(failed, errors.New("no host gives a member list"))...)
}

// Leader is the node whose member leads etcd, as this host sees it; empty when there is none.
func (c *Cluster) Leader(ctx context.Context, via *host.Host) (string, error) {
	client, err := c.Etcd(via)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, etcdLimit)
	defer cancel()
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return "", fmt.Errorf("etcd status of %s: %w", via.Name(), err)
	}
	list, err := c.MembersAt(ctx, via)
	if err != nil {
		return "", err
	}
	for _, m := range list.Members {
		if uint64(m.ID) == status.Leader {
			return m.Node(), nil
		}
	}
	return "", nil
}

// MoveLeader makes the host's member the leader of etcd.
func (c *Cluster) MoveLeader(ctx context.Context, to *host.Host) error {
	name, err := c.Leader(ctx, to)
	if err != nil || name == to.Name() {
		return err
	}
	leader := c.Lab.Host(name)
	if leader == nil {
		return fmt.Errorf("move leadership to %s: no leader", to.Name())
	}
	list, err := c.MembersAt(ctx, to)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Members, func(m Member) bool { return m.Node() == to.Name() })
	if i < 0 {
		return fmt.Errorf("move leadership to %s: it is no member", to.Name())
	}
	client, err := c.Etcd(leader)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, etcdLimit)
	defer cancel()
	if _, err := client.MoveLeader(ctx, uint64(list.Members[i].ID)); err != nil {
		return fmt.Errorf("move leadership to %s: %w", to.Name(), err)
	}
	return nil
}

// listens says whether a TCP connection to the host's port is made at once.
func (c *Cluster) listens(ctx context.Context, h *host.Host, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := c.Lab.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", h.IP(), port))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Alarm raises a NOSPACE alarm for the host's member, or clears every one.
func (c *Cluster) Alarm(ctx context.Context, h *host.Host, raise bool) error {
	client, err := c.Etcd(h)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, etcdLimit)
	defer cancel()
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return fmt.Errorf("etcd alarm of %s: %w", h.Name(), err)
	}
	request := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if !raise {
		request.Action = pb.AlarmRequest_DEACTIVATE
	}
	if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, request); err != nil {
		return fmt.Errorf("etcd alarm of %s: %w", h.Name(), err)
	}
	return nil
}

// RemoveMember removes a node's member through the host's etcd, as somebody with etcdctl would.
func (c *Cluster) RemoveMember(ctx context.Context, via *host.Host, node string) error {
	list, err := c.MembersAt(ctx, via)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Members, func(m Member) bool { return m.Node() == node })
	if i < 0 {
		return fmt.Errorf("remove %s: it is no member", node)
	}
	client, err := c.Etcd(via)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, etcdLimit)
	defer cancel()
	if _, err := client.MemberRemove(ctx, uint64(list.Members[i].ID)); err != nil {
		return fmt.Errorf("remove %s: %w", node, err)
	}
	return nil
}
