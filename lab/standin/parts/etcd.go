package parts

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// TLSFiles are paths of a certificate, its key, and the CA that the other side's certificate must come from.
type TLSFiles struct {
	Cert, Key, CA string
}

// EtcdConfig is what k3s sets of etcd's configuration (k3s-facts §11.1). All else keeps etcd's defaults,
// strict reconfiguration check, one learner and 2 GiB quota included.
type EtcdConfig struct {
	// DataDir holds the datastore (…/server/db/etcd). The configuration is written to DataDir/config, 0600.
	DataDir string
	// Name is the member's name.
	Name string
	// ListenClientURLs are for gRPC with mutual TLS: https://127.0.0.1:2379 and https://<node ip>:2379.
	ListenClientURLs []string
	// ListenClientHTTPURLs take the HTTP half off the client port: https://127.0.0.1:2382.
	ListenClientHTTPURLs []string
	// ListenPeerURLs: https://127.0.0.1:2380 and https://<node ip>:2380.
	ListenPeerURLs []string
	// ListenMetricsURLs serve plain HTTP metrics and health: http://127.0.0.1:2381.
	ListenMetricsURLs []string
	// AdvertiseClientURLs and AdvertisePeerURLs: one URL with the node's address each.
	AdvertiseClientURLs, AdvertisePeerURLs []string
	// InitialCluster is "name=peerURL,…". It is empty for a member that has a WAL.
	InitialCluster string
	// InitialClusterState is "new" or "existing"; empty for a member that has a WAL.
	InitialClusterState string
	// ForceNewCluster makes a single-member cluster of what the WAL holds (cluster reset).
	ForceNewCluster bool
	// Client and Peer are the server sides' certificates; both ask for a client certificate.
	Client, Peer TLSFiles
	// HeartbeatMS and ElectionMS are in milliseconds; 0 means k3s's 500 and 5000.
	HeartbeatMS, ElectionMS uint
	// SnapshotCount is entries between raft snapshots; 0 means k3s's 10000.
	SnapshotCount uint64
	// Extra are more settings by their name in etcd's configuration file (k3s's --etcd-arg).
	Extra map[string]string

	Output
}

// EventKind is what happened to etcd.
type EventKind string

// The kinds of events. Exactly one of EventStopped and EventFatal comes last.
const (
	// EventReady: the member serves clients (etcd's ReadyNotify). A learner gets here too, late (lab-notes).
	EventReady EventKind = "ready"
	// EventRemoved: a peer said that this member was removed for good. k3s writes its tombstone on it if the
	// member was running (k3s-facts §5.3); Running tells the cases apart. etcd stops by itself afterwards.
	EventRemoved EventKind = "removed"
	// EventStopped: etcd has stopped in order, asked or not.
	EventStopped EventKind = "stopped"
	// EventFatal: etcd could not start, or its process died.
	EventFatal EventKind = "fatal"
)

// Event is something etcd reports.
type Event struct {
	Kind EventKind `json:"kind"`
	// Running is true if the member had been part of the cluster since this start: it heard from a leader. With
	// EventRemoved it tells "removed while running" from "removed while down".
	Running bool `json:"running,omitempty"`
	// Detail is a sentence for the log.
	Detail string `json:"detail,omitempty"`
}

// Etcd is a running etcd member.
type Etcd struct {
	*Process
	events chan Event
}

// StartEtcd writes the configuration file and starts etcd in a process of its own. It returns as soon as the
// process runs; what becomes of it comes as events. When ctx ends etcd is stopped in order.
func StartEtcd(ctx context.Context, cfg EtcdConfig) (*Etcd, error) {
	path, err := writeEtcdConfig(cfg)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start etcd: event pipe: %w", err)
	}
	cmd := Command(EtcdName, "--config-file="+path)
	cmd.ExtraFiles = []*os.File{write} // file descriptor 3 of the child
	cfg.Output.apply(cmd)
	process, err := StartProcess(ctx, cmd)
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	e := &Etcd{Process: process, events: make(chan Event, 8)}
	go e.readEvents(read)
	return e, nil
}

// Events gives what etcd reports, in order. The channel is closed after the last event, when the process has
// ended. It must be read: a few events are buffered.
func (e *Etcd) Events() <-chan Event { return e.events }

func (e *Etcd) readEvents(read *os.File) {
	defer close(e.events)
	defer func() { _ = read.Close() }()
	last := false
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		var event Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue
		}
		last = event.Kind == EventStopped || event.Kind == EventFatal
		e.events <- event
	}
	err := e.Wait()
	if !last {
		e.events <- Event{Kind: EventFatal, Detail: fmt.Sprintf("etcd ended without a word: %v", err)}
	}
}

// Stop stops etcd in order: a leader first hands leadership over (etcd does on Close). When ctx ends first it
// is killed.
func (e *Etcd) Stop(ctx context.Context) error { return e.Process.Stop(ctx) }

// writeEtcdConfig writes DataDir/config with etcd's own names, as k3s does at each start (k3s-facts §2).
func writeEtcdConfig(cfg EtcdConfig) (string, error) {
	if cfg.DataDir == "" || cfg.Name == "" {
		return "", fmt.Errorf("etcd configuration: DataDir and Name are needed")
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("etcd data folder: %w", err)
	}
	// k3s corrects the mode at each start.
	if err := os.Chmod(cfg.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("etcd data folder: %w", err)
	}
	text, err := yaml.Marshal(etcdSettings(cfg))
	if err != nil {
		return "", fmt.Errorf("etcd configuration: %w", err)
	}
	path := filepath.Join(cfg.DataDir, "config")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("etcd configuration: %w", err)
	}
	return path, nil
}

func etcdSettings(cfg EtcdConfig) map[string]any {
	security := func(f TLSFiles) map[string]any {
		return map[string]any{
			"cert-file": f.Cert, "key-file": f.Key, "trusted-ca-file": f.CA, "client-cert-auth": true,
		}
	}
	settings := map[string]any{
		"name":                                 cfg.Name,
		"data-dir":                             cfg.DataDir,
		"listen-client-urls":                   strings.Join(cfg.ListenClientURLs, ","),
		"listen-peer-urls":                     strings.Join(cfg.ListenPeerURLs, ","),
		"listen-metrics-urls":                  strings.Join(cfg.ListenMetricsURLs, ","),
		"advertise-client-urls":                strings.Join(cfg.AdvertiseClientURLs, ","),
		"initial-advertise-peer-urls":          strings.Join(cfg.AdvertisePeerURLs, ","),
		"client-transport-security":            security(cfg.Client),
		"peer-transport-security":              security(cfg.Peer),
		"heartbeat-interval":                   orDefault(cfg.HeartbeatMS, 500),
		"election-timeout":                     orDefault(cfg.ElectionMS, 5000),
		"snapshot-count":                       orDefault(cfg.SnapshotCount, 10000),
		"force-new-cluster":                    cfg.ForceNewCluster,
		"feature-gates":                        "InitialCorruptCheck=true",
		"socket-options":                       map[string]any{"reuse-address": true, "reuse-port": true},
		"watch-progress-notify-interval":       5 * time.Second, // kine's default
		"bootstrap-defrag-threshold-megabytes": 100,
		"logger":                               "zap",
		"log-outputs":                          []string{"stderr"},
	}
	if len(cfg.ListenClientHTTPURLs) > 0 {
		settings["listen-client-http-urls"] = strings.Join(cfg.ListenClientHTTPURLs, ",")
	}
	if cfg.InitialCluster != "" {
		settings["initial-cluster"] = cfg.InitialCluster
	}
	if cfg.InitialClusterState != "" {
		settings["initial-cluster-state"] = cfg.InitialClusterState
	}
	for name, value := range cfg.Extra {
		var typed any
		if err := yaml.Unmarshal([]byte(value), &typed); err != nil || typed == nil {
			typed = value
		}
		settings[name] = typed
	}
	return settings
}

func orDefault[T comparable](value, other T) T {
	var zero T
	if value == zero {
		return other
	}
	return value
}
