package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/hostcmd"
	"github.com/exadev/regrade/internal/etcd"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s/catest"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/platformtest"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// asHostd makes the test binary a host daemon whose host is in memory, and whose etcd
// is at this URL. All else is as shipped.
const asHostd = "REGRADE_TEST_ETCD"

// hostdMain is `regrade host` on a voter that has settled.
func hostdMain(etcdURL string) {
	collectOften()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	e := env.Env{Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: now}
	d := hostcmd.Production(cli.Version)
	d.Host = func(settings.Host, string) (platform.Host, error) {
		h := platformtest.NewFake("boot-1")
		h.Change(func(f *platform.Facts) {
			f.Files.Role, f.Files.WAL, f.Datastore, f.EtcdCerts = fleet.RoleServer, true, true, true
			f.Files.Identity = rolefile.Identity{ClusterID: 0xc1, MemberID: 1}
			f.Server.State, f.Server.Process, f.Server.Level = platform.StateActive, true, fleet.LevelFull
		})
		return h, nil
	}
	d.Etcd = func(h settings.Host, root string) hostd.Etcd {
		return etcd.New(filepath.Join(root, h.DataDir, "server/tls/etcd"), etcdURL)
	}
	deps := cli.Production()
	deps.More = append(deps.More, hostcmd.New(e, d))
	code := cli.Run(ctx, os.Args[1:], e, deps)
	stop()
	os.Exit(code)
}

// Issue 6: a host daemon's memory and processor time, as a voter of three with levels on and
// off, at a period of HOST_PERIOD seconds (2, in place of the default of 15). The API speaks TLS and HTTP/2, as a real one; each
// Node has 50 images, and a kubelet reports every ten seconds. It is a figure, not a
// check.
//
//	go test -run '^$' -bench HostDaemonsMemory -benchtime 1x ./cmd/regrade
func BenchmarkTheHostDaemonsMemory(b *testing.B) {
	for _, levels := range []bool{false, true} {
		b.Run(fmt.Sprintf("levels_%t", levels), func(b *testing.B) {
			for b.Loop() {
				hostBeside(b, levels)
			}
		})
	}
}

func hostBeside(b *testing.B, levels bool) {
	b.Helper()
	root, period := b.TempDir(), cmp.Or(os.Getenv("HOST_PERIOD"), "2")
	ca := catest.New(b, "ca", nil)
	cert := ca.Serving(b)
	api, member := newHostAPI(b, cert), newMember(b, cert)
	kubeconfig := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, api.URL, base64.StdEncoding.EncodeToString(catest.Bundle(ca)))
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		b.Fatal(err)
	}
	tls := "/var/lib/rancher/k3s/server/tls/etcd/"
	for path, content := range map[string][]byte{
		// Three servers, as each host lists the others' and its own; here all are one process.
		fleet.FileHostConfig:                              fmt.Appendf(nil, "node: node-0000\nservers: [%q, %q]\nperiod: %ss\nlevels: {enabled: %t}\n", api.URL, strings.Replace(api.URL, "127.0.0.1", "127.0.0.2", 1), period, levels),
		fleet.FileJoinConfig:                              []byte("node-0000: https://127.0.0.2:6443\n"),
		"/etc/rancher/k3s/fleet-role-actuator.kubeconfig": kubeconfig, fleet.FileLevelKube: kubeconfig,
		tls + "server-ca.crt":   catest.Bundle(ca),
		tls + "client.crt":      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		tls + "client.key":      pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
		"/proc/pressure/memory": []byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
		"/proc/meminfo":         []byte("MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\n"),
	} {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(full, content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), self, "host", "--root", root)
	cmd.Env = append(os.Environ(), asHostd+"="+member)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// Past the start, and past what it gives back after that, now and then.
	time.Sleep(20 * time.Second)
	before, began, from := processorTime(b, cmd.Process.Pid), time.Now(), api.reads.Load()
	var resident, own, most, n float64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			b.Fatalf("%v: %s", err, said.String())
		}
		r, a := field(string(raw), "VmRSS:"), field(string(raw), "RssAnon:")
		resident, own, n, most = resident+r, own+a, n+1, max(most, r)
	}
	passes := float64(api.reads.Load() - from)
	if api.watches.Load() > 1 || passes < 3 || strings.Contains(said.String(), "level=ERROR") {
		b.Fatalf("%.0f reads of the Node, %d watches: %s", passes, api.watches.Load(), said.String())
	}
	used := processorTime(b, cmd.Process.Pid) - before
	b.ReportMetric(resident/n, "MiB-resident")
	b.ReportMetric(most, "MiB-resident-at-most")
	b.ReportMetric(own/n, "MiB-own")
	b.ReportMetric(100*used.Seconds()/time.Since(began).Seconds(), "%-of-a-core")
	b.ReportMetric(passes, "passes")
	if os.Getenv("HOST_SAID") != "" {
		b.Log(said.String())
	}
}

// hostAPI answers what a host daemon asks.
type hostAPI struct {
	*httptest.Server
	reads, watches atomic.Int64
}

func newHostAPI(b *testing.B, cert tls.Certificate) *hostAPI {
	b.Helper()
	all := manyNodes(4)
	all.ResourceVersion = "1"
	for i := range all.Items[:3] {
		n := &all.Items[i]
		n.Labels["node-role.kubernetes.io/etcd"], n.Labels["node-role.kubernetes.io/control-plane"] = "true", "true"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "EtcdIsVoter", Status: corev1.ConditionTrue}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("127.0.0.%d", 2+i)}}
	}
	all.Items[0].ResourceVersion = "1"
	node := all.Items[0].DeepCopy()
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	list, self := encode(b, all), encode(b, node)
	lease := encode(b, &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Name: "fleet-regrade", ResourceVersion: "1"}})
	cm := encode(b, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "fleet-role-actuators", ResourceVersion: "1"}})
	event, err := (&metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: self}}).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	api := &hostAPI{}
	api.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		switch path := r.URL.Path; {
		case path == "/readyz":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "ok")
		case r.URL.Query().Get("watch") != "":
			api.watches.Add(1)
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
			_ = http.NewResponseController(w).Flush()
			for every := time.Tick(10 * time.Second); ; {
				select {
				case <-r.Context().Done():
					return
				case <-every:
					size := len(event)
					_, _ = w.Write([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
					_, _ = w.Write(event)
					_ = http.NewResponseController(w).Flush()
				}
			}
		case path == "/api/v1/nodes":
			_, _ = w.Write(list)
		case strings.HasPrefix(path, "/api/v1/nodes/"):
			api.reads.Add(1)
			_, _ = w.Write(self)
		case strings.Contains(path, "/leases"):
			_, _ = w.Write(lease)
		default:
			_, _ = w.Write(cm)
		}
	}))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	api.EnableHTTP2 = true
	api.StartTLS()
	b.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	return api
}

// member is an etcd that answers its status and the member list.
type member struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
	url string
}

func (m *member) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: 0xc1, MemberId: 1}, Version: "3.6.0", Leader: 2, RaftAppliedIndex: 1 << 20}, nil
}

func (m *member) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	out := &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: 0xc1, MemberId: 1}}
	for i := range uint64(3) {
		out.Members = append(out.Members, &pb.Member{ID: i + 1, Name: fmt.Sprintf("node-%04d-0123abcd", i), ClientURLs: []string{m.url}, PeerURLs: []string{m.url}})
	}
	return out, nil
}

func newMember(b *testing.B, cert tls.Certificate) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	m := &member{url: "https://" + l.Addr().String()}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}})))
	pb.RegisterMaintenanceServer(s, m)
	pb.RegisterClusterServer(s, m)
	go func() { _ = s.Serve(l) }()
	b.Cleanup(s.Stop)
	return m.url
}
