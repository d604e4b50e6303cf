//go:build live

package live

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	bridge = "stdin0"
	subnet = "10.98.7."
	secret = "live-test-secret"
)

// lab is a bridge with hosts on it.
type lab struct {
	t   *testing.T
	k3s string
	dir string
}

// host is a namespace with its own files.
type host struct {
	lab  *lab
	name string
	ip   string
	dir  string

	cmd   *exec.Cmd
	done  chan struct{}
	ready chan struct{}
	args  []string
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	l := &lab{t: t, k3s: os.Getenv("STANDIN_K3S"), dir: t.TempDir()}
	if l.k3s == "" {
		l.k3s = filepath.Join(l.dir, "k3s")
		run(t, "go", "build", "-o", l.k3s, "github.com/exadev/regrade/lab/standin/cmd/k3s")
	}
	for _, d := range []string{"/etc/rancher", "/var/lib/rancher", "/run/k3s", "/var/lib/kubelet", "/var/log/pods"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_ = exec.Command("ip", "link", "del", bridge).Run()
	run(t, "ip", "link", "add", bridge, "type", "bridge")
	run(t, "ip", "addr", "add", subnet+"1/24", "dev", bridge)
	run(t, "ip", "link", "set", bridge, "up")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", bridge).Run() })
	return l
}

// host makes a host at the address with this last number.
func (l *lab) host(name string, number int) *host {
	t := l.t
	h := &host{lab: l, name: name, ip: fmt.Sprintf("%s%d", subnet, number), dir: filepath.Join(l.dir, name)}
	for _, d := range []string{"etc", "rancher", "run", "kubelet", "pods"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ns := h.ns()
	_ = exec.Command("ip", "netns", "del", ns).Run()
	run(t, "ip", "netns", "add", ns)
	run(t, "ip", "link", "add", "sv-"+name, "type", "veth", "peer", "name", "eth0", "netns", ns)
	run(t, "ip", "link", "set", "sv-"+name, "master", bridge, "up")
	run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	run(t, "ip", "-n", ns, "addr", "add", h.ip+"/24", "dev", "eth0")
	run(t, "ip", "-n", ns, "link", "set", "eth0", "up")
	run(t, "ip", "-n", ns, "route", "add", "default", "via", subnet+"1")
	t.Cleanup(func() {
		h.kill()
		if out, err := exec.Command("ip", "netns", "pids", ns).Output(); err == nil {
			for _, pid := range strings.Fields(string(out)) {
				_ = exec.Command("kill", "-9", pid).Run()
			}
		}
		if t.Failed() {
			t.Logf("---- last log lines of %s\n%s", name, h.tail(60))
		}
		_ = exec.Command("ip", "netns", "del", ns).Run()
		_ = exec.Command("ip", "link", "del", "sv-"+name).Run()
	})
	return h
}

func (h *host) ns() string { return "standin-" + h.name }

// data is a path below the host's k3s data directory.
func (h *host) data(parts ...string) string {
	return filepath.Join(append([]string{h.dir, "rancher", "k3s"}, parts...)...)
}

// start runs k3s with these arguments, as a service of type notify would.
func (h *host) start(env []string, args ...string) {
	t := h.lab.t
	t.Helper()
	h.args = args
	socket := filepath.Join(h.dir, "notify")
	_ = os.Remove(socket)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(h.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`hostname %s
mount --bind %[2]s/etc /etc/rancher; mount --bind %[2]s/rancher /var/lib/rancher; mount --bind %[2]s/run /run/k3s
mount --bind %[2]s/kubelet /var/lib/kubelet; mount --bind %[2]s/pods /var/log/pods
exec "$@"`, h.name, h.dir)
	full := append([]string{"netns", "exec", h.ns(), "unshare", "-u", "-m", "sh", "-ec", script, "k3s", h.lab.k3s}, args...)
	cmd := exec.Command("ip", full...)
	cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+socket), env...)
	cmd.Stdout, cmd.Stderr = log, log
	// The process itself is k3s after three execs, so signals reach it.
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = log.Close()
	h.cmd, h.done, h.ready = cmd, make(chan struct{}), make(chan struct{})
	go func(ready, done chan struct{}) {
		buf := make([]byte, 256)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte("READY=1")) {
				close(ready)
				return
			}
		}
	}(h.ready, h.done)
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		_ = conn.Close()
		close(done)
	}(cmd, h.done)
}

func (h *host) running() bool {
	if h.cmd == nil {
		return false
	}
	select {
	case <-h.done:
		return false
	default:
		return true
	}
}

// exit waits for the process to end and returns its exit code.
func (h *host) exit(within time.Duration) int {
	h.lab.t.Helper()
	select {
	case <-h.done:
		return h.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		h.lab.t.Fatalf("%s still runs after %s", h.name, within)
		return -1
	}
}

func (h *host) stop() int {
	h.lab.t.Helper()
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	return h.exit(40 * time.Second)
}

func (h *host) kill() {
	if h.running() {
		_ = h.cmd.Process.Kill()
		<-h.done
	}
}

func (h *host) awaitReady(within time.Duration) time.Duration {
	t := h.lab.t
	t.Helper()
	began := time.Now()
	select {
	case <-h.ready:
	case <-h.done:
		t.Fatalf("%s ended with %d before it was ready", h.name, h.cmd.ProcessState.ExitCode())
	case <-time.After(within):
		t.Fatalf("%s is not ready after %s", h.name, within)
	}
	return time.Since(began)
}

func (h *host) isReady() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

func (h *host) log() string {
	b, _ := os.ReadFile(filepath.Join(h.dir, "log"))
	return string(b)
}

func (h *host) tail(lines int) string {
	var own []string
	for _, l := range strings.Split(h.log(), "\n") {
		if strings.HasPrefix(l, "time=") {
			own = append(own, l)
		}
	}
	return strings.Join(own[max(0, len(own)-lines):], "\n")
}

// server and join are the arguments of a server.
func server(extra ...string) []string {
	return append([]string{"server", "--token", secret, "--disable", "traefik"}, extra...)
}

func join(to *host, extra ...string) []string {
	return server(append([]string{"--server", "https://" + to.ip + ":6443"}, extra...)...)
}

func agentOf(to *host, extra ...string) []string {
	return append([]string{"agent", "--token", secret, "--server", "https://" + to.ip + ":6443"}, extra...)
}

// kube is a client of one server's apiserver through its port 6443.
func (h *host) kube() kubernetes.Interface {
	cfg := h.rest()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		h.lab.t.Fatal(err)
	}
	return c
}

func (h *host) rest() *rest.Config {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(h.dir, "etc", "k3s", "k3s.yaml"))
	if err != nil {
		h.lab.t.Fatal(err)
	}
	cfg.Host = "https://" + h.ip + ":6443"
	cfg.Timeout = 20 * time.Second
	return cfg
}

// etcd is a client of one server's etcd.
func (h *host) etcd() *clientv3.Client {
	t := h.lab.t
	pair, err := tls.LoadX509KeyPair(h.data("server", "tls", "etcd", "client.crt"), h.data("server", "tls", "etcd", "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(h.data("server", "tls", "etcd", "server-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + h.ip + ":2379"}, DialTimeout: 5 * time.Second,
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// members lists names, learners with a star, as one server's etcd knows them.
func (h *host) members() map[string]bool {
	ctx, cancel := context.WithTimeout(h.lab.t.Context(), 10*time.Second)
	defer cancel()
	c := h.etcd()
	defer func() { _ = c.Close() }()
	resp, err := c.MemberList(ctx)
	if err != nil {
		h.lab.t.Logf("member list of %s: %v", h.name, err)
		return nil
	}
	out := map[string]bool{}
	for _, m := range resp.Members {
		out[m.Name] = !m.IsLearner
	}
	return out
}

// member is the host's etcd member name.
func (h *host) member() string {
	b, err := os.ReadFile(h.data("server", "db", "etcd", "name"))
	if err != nil {
		return ""
	}
	return string(b)
}

// until polls a condition.
func (l *lab) until(within time.Duration, what string, f func() bool) time.Duration {
	l.t.Helper()
	began := time.Now()
	for !f() {
		if time.Since(began) > within {
			l.t.Fatalf("after %s still not: %s", within, what)
		}
		time.Sleep(200 * time.Millisecond)
	}
	took := time.Since(began)
	l.t.Logf("%s: after %s", what, took.Round(100*time.Millisecond))
	return took
}

func getNode(t *testing.T, c kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	var last error
	for range 120 {
		n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			return n
		}
		last = err
		time.Sleep(250 * time.Millisecond)
	}
	t.Fatalf("node %s: %v", name, last)
	return nil
}

// annotate sets or, with nil, deletes annotations.
func annotate(t *testing.T, c kubernetes.Interface, node string, annotations map[string]any) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, b, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func voterReason(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == "EtcdIsVoter" {
			return c.Reason
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
