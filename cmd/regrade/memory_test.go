package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// asRegrade makes the test binary the program itself, so that its memory is a
// process's own.
const asRegrade = "REGRADE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asRegrade) != "" {
		main()
	}
	if url := os.Getenv(asHostd); url != "" {
		hostdMain(url)
	}
	os.Exit(m.Run())
}

// Design §8: the controller's memory beside 1,000 Nodes. It is a figure, not a check.
func BenchmarkTheControllersMemory(b *testing.B) {
	for _, nodes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("%d_nodes", nodes), func(b *testing.B) {
			for b.Loop() {
				rss, own := memoryBeside(b, nodes, "controller", "--period", "1")
				b.ReportMetric(rss, "MiB-resident")
				b.ReportMetric(own, "MiB-own")
			}
		})
	}
}

// The heartbeat's, whose pod has 64 MiB.
func BenchmarkTheHeartbeatsMemory(b *testing.B) {
	for _, nodes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("%d_nodes", nodes), func(b *testing.B) {
			for b.Loop() {
				rss, own := memoryBeside(b, nodes, "heartbeat", "--interval", "1", "--window", "5", "--dir", b.TempDir())
				b.ReportMetric(rss, "MiB-resident")
				b.ReportMetric(own, "MiB-own")
			}
		})
	}
}

// memoryBeside runs a process for some passes on an API with so many Nodes.
func memoryBeside(b *testing.B, nodes int, args ...string) (rss, own float64) {
	b.Helper()
	api := newAPI(b, nodes)
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, api.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), self, args...)
	cmd.Env = append(os.Environ(), asRegrade+"=1", "KUBECONFIG="+kubeconfig)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for end := time.Now().Add(time.Minute); api.lists.Load() < 15; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d passes in a minute: %s", api.lists.Load(), said.String())
		}
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	return field(string(raw), "VmRSS:"), field(string(raw), "RssAnon:")
}

func field(status, name string) float64 {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib := 0.0
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}

// fakeAPI lists Nodes as a real API server does, and has nothing else.
type fakeAPI struct {
	*httptest.Server
	lists atomic.Int64
}

func newAPI(b *testing.B, nodes int) *fakeAPI {
	b.Helper()
	list := encode(b, manyNodes(nodes))
	none := encode(b, &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: "not found"})
	api := &fakeAPI{}
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		switch {
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.URL.Path == "/api/v1/nodes":
			api.lists.Add(1)
			_, _ = w.Write(list)
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

func encode(b *testing.B, object runtime.Object) []byte {
	b.Helper()
	var out strings.Builder
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out); err != nil {
		b.Fatal(err)
	}
	return []byte(out.String())
}

// manyNodes are Nodes with as many labels, annotations and images as real ones have.
func manyNodes(n int) *corev1.NodeList {
	list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for i := range n {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%04d", i), Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		for j := range 12 {
			node.Labels[fmt.Sprintf("label.example.com/number-%02d", j)] = fmt.Sprintf("value-%04d", i)
			node.Annotations[fmt.Sprintf("annotation.example.com/number-%02d", j)] = strings.Repeat("x", 80)
		}
		for j := range 50 {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
				Names: []string{fmt.Sprintf("registry.example.com/project/image-%02d@sha256:%s", j, strings.Repeat("a", 64))}, SizeBytes: 1 << 20,
			})
		}
		list.Items = append(list.Items, node)
	}
	return list
}
