// Package bootstrap decides how a server's datastore starts and keeps a cluster's CA files equal on all servers (k3s
// facts §3).
package bootstrap

import "errors"

// Start is what a server does with its datastore.
type Start string

// The rows of the decision table (k3s facts §3.2).
const (
	// StartSQLite: kine on sqlite, no etcd.
	StartSQLite Start = "sqlite"
	// StartNew: a new single-member cluster.
	StartNew Start = "new"
	// StartJoin: join as a learner under a fresh or kept name.
	StartJoin Start = "join"
	// StartExisting: etcd starts from its write-ahead log.
	StartExisting Start = "existing"
	// StartRejoin: the datastore is moved to etcd-backup-<unix>, then join under a new name.
	StartRejoin Start = "rejoin"
	// StartNewAfterTombstone: the datastore is moved to etcd-backup-<unix>, then a new cluster (a split brain).
	StartNewAfterTombstone Start = "new-after-tombstone"
)

// Facts are what the decision depends on.
type Facts struct {
	WAL         bool
	Tombstone   bool
	ServerURL   bool
	Token       bool
	ClusterInit bool
	// RefuseTombstone: this version refuses a tombstone without --server.
	RefuseTombstone bool
}

// Errors of Decide.
var (
	ErrTokenRequired = errors.New("token is required to join a cluster")
	ErrTombstone     = errors.New("tombstone file has been detected but --server is empty: this node was removed from its etcd cluster; " +
		"set --server and --token to rejoin, or remove the tombstone file")
)

// Decide is the decision table of k3s facts §3.2.
func Decide(f Facts) (Start, error) {
	if f.WAL && !f.Tombstone {
		return StartExisting, nil
	}
	if f.WAL && f.Tombstone {
		switch {
		case f.ServerURL && f.Token:
			return StartRejoin, nil
		case f.ServerURL:
			// The join information is missing without a token, so k3s starts a cluster of its own.
			return StartNewAfterTombstone, nil
		case f.RefuseTombstone:
			return "", ErrTombstone
		default:
			return StartNewAfterTombstone, nil
		}
	}
	switch {
	case f.ServerURL && f.Token:
		return StartJoin, nil
	case f.ServerURL && f.ClusterInit:
		return "", ErrTokenRequired
	case f.ServerURL:
		return StartSQLite, nil
	case f.ClusterInit:
		return StartNew, nil
	default:
		return StartSQLite, nil
	}
}
