package parts

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exadev/regrade/lab/standin/parts/pki"
)

// cluster is etcd, the control plane and a client, on free ports of loopback.
type cluster struct {
	dir, tls, api string
	client        *kubernetes.Clientset
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctx := context.Background()
	c := &cluster{dir: t.TempDir(), tls: certificates(t)}
	etcd := member(t, c.tls, "one", "", "new")
	await(t, start(t, etcd), EventReady, 20*time.Second)

	ports := freePorts(t, 3)
	c.api = fmt.Sprintf("127.0.0.1:%d", ports[0])
	began := time.Now()
	api, err := StartAPIServer(ctx, APIServerConfig{
		TLSDir: c.tls, SecurePort: ports[0], AdvertiseAddress: "192.0.2.1", EtcdServers: etcd.AdvertiseClientURLs,
		Output: logFile(t, "kube-apiserver"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Kill)
	admin := TLSFiles{Cert: c.tls + "/client-admin.crt", Key: c.tls + "/client-admin.key", CA: c.tls + "/server-ca.crt"}
	wait, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if err := WaitAPIReady(wait, c.api, admin); err != nil {
		t.Fatal(err)
	}
	t.Logf("API server ready after %v", time.Since(began).Round(time.Millisecond))

	kubeconfig := func(name string) string {
		path := filepath.Join(c.dir, name+".kubeconfig")
		if err := pki.WriteKubeconfig(path, "https://"+c.api, c.tls+"/server-ca.crt", c.tls+"/"+name+".crt", c.tls+"/"+name+".key"); err != nil {
			t.Fatal(err)
		}
		return path
	}
	controllers, err := StartControllerManager(ctx, ControllerManagerConfig{
		TLSDir: c.tls, Kubeconfig: kubeconfig("client-controller"), SecurePort: ports[1], Output: logFile(t, "kube-controller-manager"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controllers.Kill)
	scheduler, err := StartScheduler(ctx, SchedulerConfig{
		TLSDir: c.tls, Kubeconfig: kubeconfig("client-scheduler"), SecurePort: ports[2], Output: logFile(t, "kube-scheduler"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Kill)

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig("client-admin"))
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// kubelet configures the kubelet of a node, with certificates as the supervisor would sign them.
func (c *cluster) kubelet(t *testing.T, node string) KubeletConfig {
	t.Helper()
	agent := filepath.Join(c.dir, "agent")
	key, err := pki.EnsureKey(agent + "/client-kubelet.key")
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := pki.SignClientKubelet(c.tls, node, request)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := pki.SignServingKubelet(c.tls, node, []string{"127.0.0.1"}, request)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"client-kubelet.crt": client, "serving-kubelet.crt": serving} {
		if err := os.WriteFile(filepath.Join(agent, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := agent + "/kubelet.kubeconfig"
	if err := pki.WriteKubeconfig(kubeconfig, "https://"+c.api, c.tls+"/server-ca.crt", agent+"/client-kubelet.crt", agent+"/client-kubelet.key"); err != nil {
		t.Fatal(err)
	}
	// A unix socket's path is short; the test's own folder may be long.
	run, err := os.MkdirTemp("", "shim")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(c.dir, "k3s")
	t.Cleanup(func() {
		killShims(data)
		_ = os.RemoveAll(run)
	})
	ports := freePorts(t, 2)
	return KubeletConfig{
		NodeName: node, NodeIP: hostAddress(t), Kubeconfig: kubeconfig,
		ServingCert: agent + "/serving-kubelet.crt", ServingKey: agent + "/client-kubelet.key", ClientCA: c.tls + "/client-ca.crt",
		Labels:  map[string]string{"node.kubernetes.io/instance-type": "k3s", "example.com/lab": "yes"},
		DataDir: data, RuntimeSocket: run + "/containerd.sock",
		RootDir: c.dir + "/kubelet", StaticPods: agent + "/pod-manifests", PodLogs: c.dir + "/pods",
		Address: "127.0.0.1", Port: ports[0], HealthzPort: ports[1],
		Output: logFile(t, "kubelet"),
	}
}

// hostAddress is an address the kubelet accepts as its Node's. Nothing talks to it.
func hostAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	return ""
}

// shims are the processes a clean-up like k3s-killall.sh would find, but only those of this data folder.
func shims(data string) []int {
	var found []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		command, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err == nil && strings.HasPrefix(string(command), data+"/data/") && strings.Contains(string(command), "/bin/containerd-shim") {
			found = append(found, pid)
		}
	}
	return found
}

func killShims(data string) {
	for _, pid := range shims(data) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (c *cluster) node(t *testing.T, name string) func() error {
	return func() error {
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is not Ready: %+v", name, node.Status.Conditions)
	}
}

func (c *cluster) createPod(t *testing.T, name string, command ...string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"actions-ephemeral-runner": "True"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "runner", Image: "example.com/runner:1", Command: command}},
		},
	}
	// The default ServiceAccount comes from the controller manager, a moment after the API server.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	retry(t, ctx, "create pod "+name, func() error {
		_, err := c.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

func (c *cluster) awaitPhase(t *testing.T, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	var pod *corev1.Pod
	began := time.Now()
	retry(t, ctx, fmt.Sprintf("pod %s is %s", name, phase), func() (err error) {
		if pod, err = c.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != phase {
			return fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
	t.Logf("pod %s %s after %v", name, phase, time.Since(began).Round(time.Millisecond))
	return pod
}

// The whole life of a host: its Node registers, a runner pod runs and outlives a restart of the kubelet, one
// finishes by itself, an eviction ends one, and when all is killed the pods start anew.
func TestAKubeletRegistersRunsPodsAndComesBack(t *testing.T) {
	c := startCluster(t)
	cfg := c.kubelet(t, "one")
	startKubelet := func() *Process {
		t.Helper()
		began := time.Now()
		kubelet, err := StartKubelet(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(kubelet.Kill)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		retry(t, ctx, "Node Ready", c.node(t, "one"))
		t.Logf("Node Ready after %v", time.Since(began).Round(time.Millisecond))
		return kubelet
	}
	kubelet := startKubelet()

	node, err := c.client.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels["example.com/lab"] != "yes" || node.Spec.ProviderID != "k3s://one" {
		t.Errorf("labels %v, provider id %q", node.Labels, node.Spec.ProviderID)
	}
	// A kubelet whose first look at its Lease comes before its Node is registered writes none then, and looks again
	// after a quarter of the Lease's duration, up to 10.4 s later.
	wait, cancelWait := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelWait()
	retry(t, wait, "Lease of the Node", func() error {
		_, err := c.client.CoordinationV1().Leases("kube-node-lease").Get(wait, "one", metav1.GetOptions{})
		return err
	})

	// k3s-facts §14.3: what other hosts are told is the supervisor's port.
	endpoints, err := c.client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if port := *endpoints.Ports[0].Port; port != 6443 {
		t.Errorf("the kubernetes Service's endpoints name port %d, want 6443", port)
	}

	c.createPod(t, "runner", "run.sh")
	c.createPod(t, "short", "sleep", "3")
	before := c.awaitPhase(t, "runner", corev1.PodRunning)
	c.awaitPhase(t, "short", corev1.PodSucceeded)
	if found := shims(cfg.DataDir); len(found) != 1 {
		t.Errorf("shims while pods run: %v, want one", found)
	}

	// SIGKILL of the kubelet alone: the container stays the same.
	kubelet.Kill()
	kubelet = startKubelet()
	time.Sleep(2 * time.Second) // two looks of the kubelet at its runtime
	after := c.awaitPhase(t, "runner", corev1.PodRunning)
	if before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container was started anew by a restart of the kubelet")
	}

	if err := c.client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "runner", Namespace: "default"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	began := time.Now()
	retry(t, ctx, "evicted pod is gone", func() error {
		_, err := c.client.CoreV1().Pods("default").Get(ctx, "runner", metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	t.Logf("evicted pod gone after %v", time.Since(began).Round(time.Millisecond))

	// A host crash: kubelet and runtime are gone at once.
	c.createPodAlways(t, "service")
	before = c.awaitPhase(t, "service", corev1.PodRunning)
	kubelet.Kill()
	killShims(cfg.DataDir)
	startKubelet()
	ctx, cancel = context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	retry(t, ctx, "pod runs anew after the crash", func() error {
		pod, err := c.client.CoreV1().Pods("default").Get(ctx, "service", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := pod.Status.ContainerStatuses[0]
		if status.State.Running == nil || status.ContainerID == before.Status.ContainerStatuses[0].ContainerID {
			return fmt.Errorf("container %s in state %+v", status.ContainerID, status.State)
		}
		return nil
	})
}

func (c *cluster) createPodAlways(t *testing.T, name string) {
	t.Helper()
	_, err := c.client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "service", Image: "example.com/service:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
