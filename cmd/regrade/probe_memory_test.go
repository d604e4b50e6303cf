package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Design §8: a probe's memory and processor time, as a voter of a fleet of 64
// hosts whose windows are full, and of one of three. It is a figure, not a check.
//
//	go test -run '^$' -bench ProbesMemory -benchtime 1x ./cmd/regrade
//
// PROBE_PERIOD is the period in seconds (1); processor time is given for one
// sample, so that it can be set against any period. Its metrics are scraped after
// each sample, as Prometheus does; PROBE_METRICS=off leaves them out.
func BenchmarkTheProbesMemory(b *testing.B) {
	for _, fleet := range []struct{ voters, hosts int }{{3, 4}, {7, 64}} {
		b.Run(fmt.Sprintf("%d_hosts", fleet.hosts), func(b *testing.B) {
			for b.Loop() {
				probeBeside(b, fleet.voters, fleet.hosts)
			}
		})
	}
}

func probeBeside(b *testing.B, voters, hosts int) {
	b.Helper()
	page, err := os.ReadFile("../../internal/cli/probecmd/testdata/page.txt")
	if err != nil {
		b.Fatal(err)
	}
	// As large as a real page: what is not read must be passed over.
	page = append(page, []byte(strings.Repeat("grpc_server_handled_total{grpc_code=\"Aborted\",grpc_method=\"Alarm\"} 0\n", 2200))...)
	etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	b.Cleanup(etcd.Close)
	api := newProbeAPI(b, voters, hosts)
	dir := b.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, api.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
	period := os.Getenv("PROBE_PERIOD")
	if period == "" {
		period = "1"
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), self, "probe", "--node", "node-0000", "--period", period, "--etcd-metrics-url", etcd.URL, "--fsync-dir", dir)
	if bin := os.Getenv("REGRADE_BIN"); bin != "" { // the shipped binary in place of the test's
		cmd.Path = bin
	}
	cmd.Env = append(os.Environ(), asRegrade+"=1", "KUBECONFIG="+kubeconfig)
	scrape := func() {}
	if os.Getenv("PROBE_METRICS") != "off" {
		address := freeAddress(b)
		cmd.Env = append(cmd.Env, "FLEET_ROLE_METRICS_ADDRESS="+address)
		scrape = func() { b.ReportMetric(scraped(b, address), "bytes/scrape") }
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	wait := func(beats int64) {
		last := api.beats.Load()
		for end := time.Now().Add(2 * time.Minute); last < beats; time.Sleep(50 * time.Millisecond) {
			if now := api.beats.Load(); now > last {
				last = now
				scrape()
			}
			if time.Now().After(end) {
				b.Fatalf("%d samples in two minutes: %s", last, said.String())
			}
		}
	}
	wait(5)
	before, from := processorTime(b, cmd.Process.Pid), api.beats.Load()
	wait(45)
	samples := api.beats.Load() - from
	used := processorTime(b, cmd.Process.Pid) - before
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(field(string(raw), "VmRSS:"), "MiB-resident")
	b.ReportMetric(field(string(raw), "RssAnon:"), "MiB-own")
	perSample := used / time.Duration(samples)
	b.ReportMetric(float64(perSample.Microseconds())/1000, "ms-cpu/sample")
	b.ReportMetric(100*perSample.Seconds()/15, "%-of-a-core-at-15s")
}

// freeAddress is one that nobody listened at a moment ago.
func freeAddress(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// scraped gets a probe's metrics as Prometheus asks for them, and says how many
// bytes that was.
func scraped(b *testing.B, address string) float64 {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s, %v", resp.Status, err)
	}
	return float64(n)
}

// processorTime is what a process has used, in user and kernel mode.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// probeAPI answers what a probe asks, with as much as a real API server has.
type probeAPI struct {
	*httptest.Server
	beats atomic.Int64
}

func newProbeAPI(b *testing.B, voters, hosts int) *probeAPI {
	b.Helper()
	all := manyNodes(hosts)
	servers := &corev1.NodeList{TypeMeta: all.TypeMeta, Items: all.Items[:voters]}
	for i := range servers.Items {
		n := &servers.Items[i]
		n.Labels["node-role.kubernetes.io/etcd"] = "true"
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: "EtcdIsVoter", Status: corev1.ConditionTrue}}
	}
	names := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "fleet-role-probe"}, Data: map[string]string{}}
	for _, n := range all.Items {
		names.Items = append(names.Items, metav1.PartialObjectMetadata{ObjectMeta: n.ObjectMeta})
		if n.Name != "node-0000" {
			cm.Data[n.Name] = strings.Repeat("x", 4<<10) // an entry of a full window
		}
	}
	list, eligible, whole := encode(b, servers), encode(b, names), encode(b, cm)
	none := encode(b, &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: "not found"})
	api := &probeAPI{}
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		switch path := r.URL.Path; {
		case path == "/api/v1/nodes" && strings.Contains(r.URL.Query().Get("labelSelector"), "voter-eligible"):
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
			_, _ = w.Write(eligible)
		case path == "/api/v1/nodes":
			_, _ = w.Write(list)
		case strings.HasSuffix(path, "/configmaps/fleet-role-probe"):
			_, _ = w.Write(whole)
		case strings.Contains(path, "/leases"):
			api.beats.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"fleet-role-probe-node-0000"}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(none)
		}
	}))
	b.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	return api
}
