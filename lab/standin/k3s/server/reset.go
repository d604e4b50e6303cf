package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/bootstrap"
	"github.com/exadev/regrade/lab/standin/k3s/controllers"
	"github.com/exadev/regrade/lab/standin/k3s/etcdclient"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/membership"
	"github.com/exadev/regrade/lab/standin/parts"
)

// Errors of a reset that is refused.
var (
	ErrReset = errors.New("managed etcd cluster membership was previously reset, please remove the cluster-reset flag and start k3s normally. " +
		"If you need to perform another cluster reset, you must first manually delete the reset-flag file")
	ErrNothingToReset = errors.New("etcd: there is no datastore to reset")
)

// reset says whether this start makes a cluster of one member out of what the datastore holds, and then ends.
func (s *server) reset() bool { return s.v.Bool("cluster-reset") }

func (s *server) resettable() error {
	switch {
	case exists(s.data.ResetFlag()):
		return fmt.Errorf("%w: %s", ErrReset, s.data.ResetFlag())
	case s.start != bootstrap.StartExisting:
		return ErrNothingToReset
	}
	return nil
}

// dropResetFlag says whether the start before was a reset: the flag goes at the first start without one.
func dropResetFlag(d layout.Data) (bool, error) {
	err := os.Remove(d.ResetFlag())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reset flag: %w", err)
	}
	return true, nil
}

// bringReset is --cluster-reset: etcd alone, on loopback, forced to be a cluster of one under a new name; then the end,
// exit status 0. k3s's agent part is left out: all it does is to wait for an apiserver that is never started.
func (s *server) bringReset(ctx context.Context) {
	if err := s.resetMembers(ctx); err != nil {
		if ctx.Err() == nil {
			s.end(1, "cluster reset: "+err.Error())
		}
		return
	}
	s.end(0, "Managed etcd cluster membership has been reset, restart without --cluster-reset flag now. "+
		"Backup and delete ${datadir}/server/db on each peer etcd server and rejoin the nodes")
}

func (s *server) resetMembers(ctx context.Context) error {
	if err := os.WriteFile(s.data.ResetFlag(), nil, 0o600); err != nil {
		return fmt.Errorf("reset flag: %w", err)
	}
	s.log.Info("Starting etcd for new cluster, cluster-reset=true")
	cfg := s.etcdConfig()
	cfg.ForceNewCluster = true
	cfg.ListenClientURLs, cfg.AdvertiseClientURLs = cfg.ListenClientURLs[:1], cfg.ListenClientURLs[:1]
	cfg.ListenPeerURLs = cfg.ListenPeerURLs[:1]
	cfg.InitialCluster, cfg.InitialClusterState = s.member+"="+membership.PeerURL(s.host.IP()), "new"
	client, err := etcdclient.Dial(s.data, etcdclient.Local)
	if err != nil {
		return err
	}
	s.etcdClient.Store(client)
	etcd, err := parts.StartEtcd(ctx, cfg)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.etcd = etcd
	s.mu.Unlock()
	go s.watchEtcd(etcd)
	for {
		err := s.isAlone(ctx)
		if err == nil {
			return nil
		}
		s.log.Info("Failed to test etcd connection: " + err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// isAlone empties the addresses of the apiservers that are gone, and says whether this member is the only one.
func (s *server) isAlone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTest)
	defer cancel()
	client := s.etcdClient.Load()
	if _, err := client.Put(ctx, controllers.AddressesKey, ""); err != nil {
		return fmt.Errorf("reset api addresses: %w", err)
	}
	members, err := etcdclient.Members(ctx, client)
	if err != nil {
		return err
	}
	if len(members) != 1 {
		return fmt.Errorf("etcd still has %d members", len(members))
	}
	return etcdclient.Self(ctx, client, s.member, s.host.IP())
}
