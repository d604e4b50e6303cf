package parts

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/standin/parts/pki"
)

// TestMain lets the test binary be its own components.
func TestMain(m *testing.M) {
	if status, ok := Dispatch(os.Args); ok {
		os.Exit(status)
	}
	if socket := os.Getenv(parentOf); socket != "" {
		os.Exit(beParent(socket))
	}
	os.Exit(m.Run())
}

// freePorts gives ports of loopback that were free a moment ago.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// logFile is where a component writes; it is shown when the test fails.
func logFile(t *testing.T, name string) Output {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = file.Close()
		if t.Failed() {
			text, _ := os.ReadFile(path)
			if len(text) > 6000 {
				text = text[len(text)-6000:]
			}
			t.Logf("end of %s's log:\n%s", name, text)
		}
	})
	return Output{Stdout: file, Stderr: file}
}

func certificates(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tls")
	if err := pki.Ensure(pki.Config{Dir: dir, NodeName: "one"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// member configures an etcd on three free ports of loopback. cluster is the initial cluster but for this member.
func member(t *testing.T, tls, name, cluster, state string) EtcdConfig {
	t.Helper()
	ports := freePorts(t, 3)
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", ports[0]), fmt.Sprintf("https://127.0.0.1:%d", ports[1])
	if cluster != "" {
		cluster += ","
	}
	cfg := EtcdConfig{
		DataDir: filepath.Join(t.TempDir(), "etcd"), Name: name,
		ListenClientURLs: []string{client}, AdvertiseClientURLs: []string{client},
		ListenPeerURLs: []string{peer}, AdvertisePeerURLs: []string{peer},
		ListenMetricsURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", ports[2])},
		InitialCluster:    cluster + name + "=" + peer, InitialClusterState: state,
		Client: TLSFiles{Cert: tls + "/etcd/server-client.crt", Key: tls + "/etcd/server-client.key", CA: tls + "/etcd/server-ca.crt"},
		Peer:   TLSFiles{Cert: tls + "/etcd/peer-server-client.crt", Key: tls + "/etcd/peer-server-client.key", CA: tls + "/etcd/peer-ca.crt"},
		Output: logFile(t, name),
	}
	return cfg
}

func start(t *testing.T, cfg EtcdConfig) *Etcd {
	t.Helper()
	etcd, err := StartEtcd(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Kill)
	return etcd
}

// await reads events until one of the kind comes, and gives it.
func await(t *testing.T, etcd *Etcd, kind EventKind, within time.Duration) Event {
	t.Helper()
	deadline := time.After(within)
	for {
		select {
		case event, open := <-etcd.Events():
			if !open {
				t.Fatalf("no event %q before etcd ended", kind)
			}
			if event.Kind == kind {
				return event
			}
			t.Logf("event %+v", event)
		case <-deadline:
			t.Fatalf("no event %q within %v", kind, within)
		}
	}
}
