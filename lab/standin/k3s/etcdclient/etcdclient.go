// Package etcdclient talks to etcd the way k3s does: one client bound to the local member, so that every status it
// asks for is the local one (k3s facts §4.1).
package etcdclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// Local is the endpoint of the member on this host.
const Local = "https://127.0.0.1:2379"

// TLS loads the etcd client certificate of a data directory, which is root on the datastore.
func TLS(d layout.Data) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(d.Server("tls", "etcd", "client.crt"), d.Server("tls", "etcd", "client.key"))
	if err != nil {
		return nil, fmt.Errorf("etcd client certificate: %w", err)
	}
	ca, err := os.ReadFile(d.Server("tls", "etcd", "server-ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("etcd CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("etcd CA holds no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// Dial makes a client of one endpoint. It does not wait for the connection.
func Dial(d layout.Data, endpoint string) (*clientv3.Client, error) {
	cfg, err := TLS(d)
	if err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: cfg, DialTimeout: 2 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
		// A member that was paused or is slow to start is found again within seconds.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client for %s: %w", endpoint, err)
	}
	return c, nil
}

// Members is the member list in etcd's order. It is linearizable: without a quorum, and on a learner, it fails.
func Members(ctx context.Context, c *clientv3.Client) ([]membership.Member, error) {
	resp, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcd member list: %w", err)
	}
	return Convert(resp.Members), nil
}

// Convert turns etcd's members into ours.
func Convert(in []*etcdserverpb.Member) []membership.Member {
	out := make([]membership.Member, 0, len(in))
	for _, m := range in {
		out = append(out, membership.Member{
			ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner,
		})
	}
	return out
}

// Self is the readiness test of etcd: reachable, a leader known, no alarm of its own but NOSPACE (which is cleared),
// listed under its name and address, a voter. Any error means not ready (k3s facts §3.7, §11.1).
func Self(ctx context.Context, c *clientv3.Client, name, ip string) error {
	status, err := c.Status(ctx, c.Endpoints()[0])
	if err != nil {
		return fmt.Errorf("etcd status: %w", err)
	}
	if status.IsLearner {
		return errors.New("this server has not yet been promoted from learner to voting member")
	}
	if status.Leader == 0 {
		return errors.New("etcd has no leader")
	}
	members, err := Members(ctx, c)
	if err != nil {
		return err
	}
	id := status.Header.MemberId
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("etcd alarms: %w", err)
	}
	for _, a := range alarms.Alarms {
		switch {
		case a.MemberID != id:
		case a.Alarm == etcdserverpb.AlarmType_NOSPACE:
			if _, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
				return fmt.Errorf("disarm NOSPACE: %w", err)
			}
		default:
			return fmt.Errorf("alarm activated: %s", a.Alarm)
		}
	}
	return membership.TestSelf(members, id, name, ip)
}
