// Package layout names the files k3s keeps on a host (k3s facts §2).
package layout

import "path/filepath"

// Host-wide places outside the data directory.
const (
	NodePassword = "/etc/rancher/node/password"
	NodeID       = "/etc/rancher/node/id"
	Kubeconfig   = "/etc/rancher/k3s/k3s.yaml"
	ConfigFile   = "/etc/rancher/k3s/config.yaml"
	RunDir       = "/run/k3s"
	KubeletDir   = "/var/lib/kubelet"
	DefaultData  = "/var/lib/rancher/k3s"
)

// Data is a k3s data directory, /var/lib/rancher/k3s unless --data-dir says otherwise.
type Data string

// Server is a path below server/.
func (d Data) Server(parts ...string) string {
	return filepath.Join(append([]string{string(d), "server"}, parts...)...)
}

// Agent is a path below agent/.
func (d Data) Agent(parts ...string) string {
	return filepath.Join(append([]string{string(d), "agent"}, parts...)...)
}

// Etcd is a path below server/db/etcd, the datastore itself.
func (d Data) Etcd(parts ...string) string {
	return d.Server(append([]string{"db", "etcd"}, parts...)...)
}

// WAL is the folder whose existence alone means "initialised".
func (d Data) WAL() string { return d.Etcd("member", "wal") }

// MemberName holds the etcd member name without a newline.
func (d Data) MemberName() string { return d.Etcd("name") }

// Tombstone is written by a server that saw its own removal.
func (d Data) Tombstone() string { return d.Etcd("tombstone") }

// ResetFlag is there from a --cluster-reset until the next start without it.
func (d Data) ResetFlag() string { return d.Server("db", "reset-flag") }

// SQLite is the datastore of a server that uses no etcd.
func (d Data) SQLite() string { return d.Server("db", "state.db") }

// Token is the server token, K10<hash>::server:<secret>.
func (d Data) Token() string { return d.Server("token") }

// Snapshots is where snapshots go unless --etcd-snapshot-dir says otherwise.
func (d Data) Snapshots() string { return d.Server("db", "snapshots") }

// SnapshotMetadata holds one file per snapshot that was taken with extra metadata.
func (d Data) SnapshotMetadata() string { return d.Server("db", ".metadata") }

// AgentBalancer is the agent's load balancer state.
func (d Data) AgentBalancer() string { return d.Agent("etc", "k3s-agent-load-balancer.json") }
