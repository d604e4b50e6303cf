package embedded

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// Client speaks to members at some client addresses. Every call is bounded by
// its context.
type Client struct{ c *clientv3.Client }

// Dial makes a client of these addresses (host:port); it connects when used.
func Dial(addresses ...string) (*Client, error) {
	urls := make([]string, len(addresses))
	for i, a := range addresses {
		urls[i] = "http://" + a
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("dial etcd: %w", err)
	}
	return &Client{c: c}, nil
}

// Use changes the addresses.
func (c *Client) Use(addresses ...string) {
	urls := make([]string, len(addresses))
	for i, a := range addresses {
		urls[i] = "http://" + a
	}
	c.c.SetEndpoints(urls...)
}

// Close ends the client.
func (c *Client) Close() { _ = c.c.Close() }

// Local is what the member at address says of itself, by three calls.
func (c *Client) Local(ctx context.Context, address string) hostapi.Member {
	s, err := c.c.Status(ctx, "http://"+address)
	if err != nil {
		return hostapi.Member{View: status.EtcdView{Error: err.Error()}}
	}
	m := hostapi.Member{Answers: true, ID: fleet.MemberID(s.Header.MemberId), Learner: s.IsLearner}
	m.View = status.EtcdView{
		ClusterID: fleet.MemberID(s.Header.ClusterId), Leader: fleet.MemberID(s.Leader),
		Version: s.Version, AppliedIndex: s.RaftAppliedIndex,
	}
	if s.IsLearner {
		m.View.Error = "etcdserver: rpc not supported for learner"
		return m
	}
	members, err := c.Members(ctx)
	if err != nil {
		m.View.Error = err.Error()
		return m
	}
	m.View.Members = members
	if _, err := c.c.Get(ctx, "regrade/demo/ping"); err != nil {
		m.View.Error = err.Error()
		return m
	}
	m.View.Linearizable = true
	return m
}

// Members is the linearizable member list, sorted by id.
func (c *Client) Members(ctx context.Context) ([]status.Member, error) {
	r, err := c.c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	out := make([]status.Member, len(r.Members))
	for i, m := range r.Members {
		out[i] = status.Member{
			ID: fleet.MemberID(m.ID), Name: m.Name, Learner: m.IsLearner, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs,
		}
	}
	slices.SortFunc(out, func(a, b status.Member) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// Add adds a learner.
func (c *Client) Add(ctx context.Context, peerURL string) (fleet.MemberID, error) {
	r, err := c.c.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return 0, fmt.Errorf("add member: %w", err)
	}
	return fleet.MemberID(r.Member.ID), nil
}

// Promote makes a learner a voter.
func (c *Client) Promote(ctx context.Context, id fleet.MemberID) error {
	if _, err := c.c.MemberPromote(ctx, uint64(id)); err != nil {
		return fmt.Errorf("promote member %s: %w", id, err)
	}
	return nil
}

// Remove removes a member.
func (c *Client) Remove(ctx context.Context, id fleet.MemberID) error {
	if _, err := c.c.MemberRemove(ctx, uint64(id)); err != nil {
		return fmt.Errorf("remove member %s: %w", id, err)
	}
	return nil
}

// MoveLeader hands leadership over; the client must be the leader's own.
func (c *Client) MoveLeader(ctx context.Context, to fleet.MemberID) error {
	if _, err := c.c.MoveLeader(ctx, uint64(to)); err != nil {
		return fmt.Errorf("move leader to %s: %w", to, err)
	}
	return nil
}

// Prefix of the keys that Write makes.
const Prefix = "regrade/demo/write/"

// Write stores the number n under its own key.
func (c *Client) Write(ctx context.Context, n int) error {
	_, err := c.c.Put(ctx, fmt.Sprintf("%s%08d", Prefix, n), strconv.Itoa(n))
	if err != nil {
		return fmt.Errorf("write %d: %w", n, err)
	}
	return nil
}

// Written reads back, linearizably, which numbers are stored.
func (c *Client) Written(ctx context.Context) (map[int]bool, error) {
	r, err := c.c.Get(ctx, Prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the writes back: %w", err)
	}
	out := make(map[int]bool, len(r.Kvs))
	for _, kv := range r.Kvs {
		n, err := strconv.Atoi(string(kv.Value))
		if err != nil || string(kv.Key) != fmt.Sprintf("%s%08d", Prefix, n) {
			return nil, fmt.Errorf("read the writes back: key %s holds %q", kv.Key, kv.Value)
		}
		out[n] = true
	}
	return out, nil
}
