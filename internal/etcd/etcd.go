// Package etcd is the one etcd client: members, status, a linearizable read and
// leadership, for the host daemon, the demo and the lab. Every call is bounded.
//
// Access is what k3s leaves on a server's disk: the client certificate in
// server/tls/etcd, which is root on the datastore (k3s-facts §11.2). Agents that
// never were servers have none.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// Bounds of one call, of a linearizable read, and of asking several members in
// a row. Such a read takes two round trips to the leader and back, more when one
// is lost: over a link that is bad enough to be swapped out for, 600 ms a round
// trip, two seconds are too short.
const (
	CallTimeout = 2 * time.Second
	ReadTimeout = 4 * time.Second
	AskTimeout  = 10 * time.Second
)

// LocalURL is where a k3s server's own etcd answers.
const LocalURL = "https://127.0.0.1:2379"

// Client speaks to the own etcd and to others with k3s's certificate.
type Client struct {
	certs string
	local string

	mu sync.Mutex
	// answered: the last status call was.
	answered bool

	kept kept
}

// Dialer makes a connection to host and port.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// New makes a Client. certs is k3s's folder server/tls/etcd; local is the own
// etcd's client URL, empty for LocalURL. Nothing is read before the first call.
func New(certs, local string) *Client {
	if local == "" {
		local = LocalURL
	}
	return &Client{certs: certs, local: local}
}

// Through makes the connections by d, in place of TCP.
func (c *Client) Through(d Dialer) *Client {
	c.kept.dial = d
	return c
}

// Close ends all connections.
func (c *Client) Close() error {
	c.kept.close()
	return nil
}

func (c *Client) tls() (*tls.Config, []byte, error) {
	var problem error
	read := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(c.certs, name))
		problem = errors.Join(problem, err)
		return raw
	}
	ca, cert, key := read("server-ca.crt"), read("client.crt"), read("client.key")
	if problem != nil {
		return nil, nil, fmt.Errorf("etcd certificates: %w", problem)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, nil, fmt.Errorf("etcd certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, nil, errors.New("etcd certificates: no certificate in server-ca.crt")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, cert, nil
}

func dial(cfg *tls.Config, url string, more ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: cfg, DialTimeout: CallTimeout, DialOptions: more, Logger: zap.NewNop(), RejectOldCluster: false})
}

// own is the connection to the own etcd.
func (c *Client) own() (*clientv3.Client, error) {
	cfg, cert, err := c.tls()
	if err != nil {
		return nil, err
	}
	conn, err := c.kept.to(cfg, cert, c.local)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", c.local, err)
	}
	return conn, nil
}

// Local is the own etcd as it answers now. A learner answers status only
// (k3s-facts §11.2); a member list is read linearizably, so its answer is the
// proof of a leader and a quorum. Alarms come from the status, because etcd
// passes a list of alarms through its log, which would write.
func (c *Client) Local(ctx context.Context) hostapi.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var m hostapi.Member
	conn, err := c.own()
	if err != nil {
		m.View.Error = err.Error()
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout+ReadTimeout)
	defer cancel()
	if !c.answered { // an open and shut connection leaves a line in etcd's log
		if err := c.knock(ctx, c.local); err != nil {
			m.View.Error = err.Error()
			return m
		}
	}
	one, done := context.WithTimeout(ctx, CallTimeout)
	st, err := conn.Status(one, c.local)
	done()
	c.answered = err == nil
	if err != nil {
		m.View.Error = short(err)
		return m
	}
	m.Answers, m.ID, m.Learner = true, fleet.MemberID(st.Header.MemberId), st.IsLearner
	m.View = status.EtcdView{
		ClusterID: fleet.MemberID(st.Header.ClusterId), Leader: fleet.MemberID(st.Leader), Version: st.Version,
		AppliedIndex: st.RaftAppliedIndex, Alarms: alarms(st.Errors),
	}
	if st.IsLearner {
		m.View.Error = "a learner answers no linearizable read"
		return m
	}
	one, done = context.WithTimeout(ctx, ReadTimeout)
	list, err := conn.MemberList(one)
	done()
	if err != nil {
		m.View.Error = short(err)
		return m
	}
	m.View.Linearizable, m.View.Members = true, members(list.Members)
	return m
}

// Ask gives the first linearizable member list that one of the URLs answers.
func (c *Client) Ask(ctx context.Context, urls []string) (hostapi.Answer, error) {
	cfg, cert, err := c.tls()
	if err != nil {
		return hostapi.Answer{}, err
	}
	if len(urls) == 0 {
		return hostapi.Answer{}, errors.New("ask a voter: none is known")
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	var problems []error
	for _, url := range urls {
		a, err := c.ask(ctx, cfg, cert, url)
		if err == nil {
			return a, nil
		}
		problems = append(problems, err)
	}
	return hostapi.Answer{}, errors.Join(problems...)
}

// knock says at once when nobody listens: the client would try until its time
// is up.
func (c *Client) knock(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("etcd at %s: %w", address, err)
	}
	dial := c.kept.dial
	if dial == nil {
		d := net.Dialer{Timeout: CallTimeout}
		dial = func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }
	}
	conn, err := dial(ctx, u.Host)
	if err != nil {
		return fmt.Errorf("etcd at %s: %w", address, err)
	}
	return conn.Close()
}

func (c *Client) ask(ctx context.Context, cfg *tls.Config, cert []byte, url string) (hostapi.Answer, error) {
	conn, err := c.kept.to(cfg, cert, url)
	if err != nil {
		return hostapi.Answer{}, fmt.Errorf("etcd at %s: %w", url, err)
	}
	if !open(conn) {
		if err := c.knock(ctx, url); err != nil {
			return hostapi.Answer{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	list, err := conn.MemberList(ctx)
	if err != nil {
		return hostapi.Answer{}, fmt.Errorf("etcd at %s: %s", url, short(err))
	}
	a := hostapi.Answer{URL: url, ClusterID: fleet.MemberID(list.Header.ClusterId), Members: members(list.Members)}
	if st, err := pb.NewMaintenanceClient(conn.ActiveConnection()).Status(ctx, &pb.StatusRequest{}); err == nil {
		a.Leader = fleet.MemberID(st.Leader)
	}
	return a, nil
}

// Answering are those of the members that answer a status call within CallTimeout,
// as members of the cluster, and that follow the leader given. All are asked at once.
func (c *Client) Answering(ctx context.Context, cluster, leader fleet.MemberID, members []status.Member) []fleet.MemberID {
	cfg, cert, err := c.tls()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	answered := make([]bool, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			answered[i] = slices.ContainsFunc(m.ClientURLs, func(url string) bool { return c.follows(ctx, cfg, cert, url, cluster, m.ID, leader) })
		})
	}
	all.Wait()
	var ids []fleet.MemberID
	for i, m := range members {
		if answered[i] {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (c *Client) follows(ctx context.Context, cfg *tls.Config, cert []byte, url string, cluster, id, leader fleet.MemberID) bool {
	conn, err := c.kept.to(cfg, cert, url)
	if err != nil || !open(conn) && c.knock(ctx, url) != nil {
		return false
	}
	// The client's own Status makes a connection for each question.
	st, err := pb.NewMaintenanceClient(conn.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
	return err == nil && fleet.MemberID(st.Header.ClusterId) == cluster && fleet.MemberID(st.Header.MemberId) == id &&
		leader != 0 && fleet.MemberID(st.Leader) == leader
}

// MoveLeader asks the own etcd, which must lead, to hand leadership over.
func (c *Client) MoveLeader(ctx context.Context, to fleet.MemberID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := c.own()
	if err != nil {
		return err
	}
	// etcd answers when the leadership has arrived, or after its own bound.
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	if _, err := conn.MoveLeader(ctx, uint64(to)); err != nil {
		return fmt.Errorf("move etcd's leadership to %s: %s", to, short(err))
	}
	return nil
}

func members(in []*pb.Member) []status.Member {
	out := make([]status.Member, 0, len(in))
	for _, m := range in {
		out = append(out, status.Member{
			ID: fleet.MemberID(m.ID), Name: m.Name, Learner: m.IsLearner,
			PeerURLs: slices.Sorted(slices.Values(m.PeerURLs)), ClientURLs: slices.Sorted(slices.Values(m.ClientURLs)),
		})
	}
	slices.SortFunc(out, func(a, b status.Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

var alarmText = regexp.MustCompile(`memberID:(\d+)\s+alarm:(\w+)`)

// alarms picks the alarms out of a status's errors; what else stands there, such
// as "no leader", is no alarm.
func alarms(texts []string) []string {
	var out []string
	for _, t := range texts {
		for _, m := range alarmText.FindAllStringSubmatch(t, -1) {
			id := new(fleet.MemberID)
			if _, err := fmt.Sscan(m[1], (*uint64)(id)); err != nil {
				continue
			}
			out = append(out, m[2]+" at "+id.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// short is an error without gRPC's wrapping.
func short(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}
