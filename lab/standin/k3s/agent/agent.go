// Package agent is the agent part of k3s: load balancer, certificates, kubelet and the Node's metadata. Servers run it
// too, unless --disable-agent is set (k3s facts §6.1, §7, §9, §10).
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exadev/regrade/lab/standin/k3s/access"
	"github.com/exadev/regrade/lab/standin/k3s/balancer"
	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/host"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
	"github.com/exadev/regrade/lab/standin/k3s/token"
	"github.com/exadev/regrade/lab/standin/parts"
)

// Mode says which process the agent part belongs to.
type Mode int

// The modes.
const (
	// Alone is k3s agent.
	Alone Mode = iota
	// FullServer talks to its own supervisor on 6443 and has no load balancer.
	FullServer
	// EtcdOnly bootstraps off its own supervisor and reaches apiservers through the load balancer.
	EtcdOnly
)

// Config is what Run needs.
type Config struct {
	Mode   Mode
	Values config.Values
	Host   host.Host
	Data   layout.Data
	// ServerURL is K3S_URL for an agent, the own supervisor for a server.
	ServerURL string
	// Token is the text of the token.
	Token string
	// Addresses reads key k3s/apiaddresses; only EtcdOnly.
	Addresses func(context.Context) ([]string, error)
	// ReadyLimit bounds the wait for an apiserver.
	ReadyLimit time.Duration
	// Ready is called once the Node is patched.
	Ready func()
	// Started is told of the kubelet, so that the process can kill it before it ends.
	Started func(*parts.Process)
	Log     *slog.Logger
}

type agent struct {
	cfg Config
	log *slog.Logger
	lb  *balancer.Balancer
}

// serverConfig is the part of /v1-k3s/config an agent uses.
type serverConfig map[string]string

// ErrStopped is returned when the kubelet or the wait for an apiserver ended: a shutdown k3s asks of itself.
var ErrStopped = errors.New("agent part ended")

// Run starts the agent part and returns when it ended. A cancelled ctx gives nil.
func Run(ctx context.Context, cfg Config) error {
	a := &agent{cfg: cfg, log: cfg.Log}
	err := a.run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (a *agent) lbPort() string { return a.cfg.Values.Text("lb-server-port") }

// apiURL is where the kubelet finds its apiserver.
func (a *agent) apiURL() string {
	if a.cfg.Mode == FullServer {
		return "https://127.0.0.1:6443"
	}
	return "https://127.0.0.1:" + a.lbPort()
}

// supervisorURL is where certificates come from.
func (a *agent) supervisorURL() string {
	if a.cfg.Mode == Alone {
		return a.apiURL()
	}
	return "https://127.0.0.1:6443"
}

func (a *agent) run(ctx context.Context) error {
	if a.cfg.Mode != FullServer {
		file := a.cfg.Data.AgentBalancer()
		if a.cfg.Mode == EtcdOnly {
			// An etcd-only server forgets its load balancer's state at every start.
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("load balancer state: %w", err)
			}
		}
		lb, err := balancer.Start(ctx, net.JoinHostPort("127.0.0.1", a.lbPort()), a.cfg.ServerURL, file, a.log)
		if err != nil {
			return err
		}
		a.lb = lb
	}
	acc, err := a.connect(ctx)
	if err != nil {
		return err
	}
	password, err := nodepassword.Ensure(layout.NodePassword)
	if err != nil {
		return err
	}
	server, err := a.bootstrap(ctx, acc, password)
	if err != nil {
		return err
	}
	switch a.cfg.Mode {
	case EtcdOnly:
		if err := a.awaitAddresses(ctx); err != nil {
			return err
		}
		go a.follow(ctx, acc)
	case Alone:
		if !a.cfg.Values.Bool("disable-apiserver-lb") {
			a.refresh(ctx, acc)
			go a.follow(ctx, acc)
			go a.tunnels(ctx)
		}
	case FullServer:
	}
	if err := a.awaitAPIServer(ctx); err != nil {
		return err
	}
	kubelet, err := a.startKubelet(ctx)
	if err != nil {
		return err
	}
	patched := make(chan error, 1)
	go func() { patched <- a.patchNode(ctx, server) }()
	for {
		select {
		case err := <-patched:
			if err != nil {
				return err
			}
			patched = nil
			a.log.Info("Annotations and labels have been set successfully on node: " + a.cfg.Host.NodeName)
			if a.cfg.Ready != nil {
				a.cfg.Ready()
			}
		case <-kubelet.Done():
			return fmt.Errorf("%w: kubelet exited: %w", ErrStopped, errOr(kubelet.Wait()))
		}
	}
}

func errOr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// connect checks the token's CA hash against /cacerts, every 2 s without end.
func (a *agent) connect(ctx context.Context) (*access.Access, error) {
	tok, err := token.Parse(a.cfg.Token, token.NodeUser)
	if err != nil {
		return nil, err
	}
	if tok.CAHash == "" && a.cfg.Mode == Alone {
		a.log.Warn("Cluster CA certificate is not trusted by the host CA bundle, and the token does not include a CA hash. " +
			"Use the full token from the server's node-token file to enable Cluster CA validation.")
	}
	for {
		acc, err := access.Connect(ctx, a.supervisorURL(), tok, token.NodeUser)
		if err == nil {
			return acc, nil
		}
		if a.cfg.Mode == Alone {
			a.log.Error("Failed to validate connection to cluster at "+a.cfg.ServerURL, "error", err)
		} else {
			a.log.Info("Waiting for the local supervisor", "error", err)
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

// bootstrap fetches configuration and certificates; the whole step is repeated every 5 to 10 s without end.
func (a *agent) bootstrap(ctx context.Context, acc *access.Access, password string) (serverConfig, error) {
	for {
		server := serverConfig{}
		err := acc.GetJSON(ctx, "/v1-k3s/config", 15*time.Second, &server)
		if err == nil {
			err = a.fetchFiles(ctx, acc, password)
		}
		if err == nil {
			return server, nil
		}
		if access.Code(err) == http.StatusForbidden {
			a.log.Error("Waiting to retrieve agent configuration; server is not ready: Node password rejected, duplicate hostname or contents of '" +
				layout.NodePassword + "' may not match server node-passwd entry, try enabling a unique node name with the --with-node-id flag")
		} else {
			a.log.Info("Waiting to retrieve agent configuration; server is not ready: " + err.Error())
		}
		wait := 5*time.Second + rand.N(5*time.Second)
		if a.cfg.Mode != Alone {
			// The local supervisor is only waiting for its own handlers.
			wait = time.Second
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// awaitAddresses waits for apiserver addresses in etcd and moves the load balancer's default to the first.
func (a *agent) awaitAddresses(ctx context.Context) error {
	for {
		addresses, err := a.cfg.Addresses(ctx)
		if err == nil && len(addresses) > 0 {
			a.lb.SetDefault(addresses[0])
			a.lb.Update(addresses)
			return nil
		}
		a.log.Info("Waiting for control-plane node to register apiserver addresses in etcd")
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// follow keeps the load balancer's list equal to /v1-k3s/apiservers. Two failures in a row mean that the server it
// asks through is of no use, although it accepts connections: the next one is tried.
func (a *agent) follow(ctx context.Context, acc *access.Access) {
	failures := 0
	for sleep(ctx, 3*time.Second) == nil {
		if a.refresh(ctx, acc) {
			failures = 0
			continue
		}
		if failures++; failures >= 2 && a.cfg.Mode == Alone {
			failures = 0
			a.lb.Failed(a.lb.Servers()[0])
		}
	}
}

func (a *agent) refresh(ctx context.Context, acc *access.Access) bool {
	var servers []string
	if err := acc.GetJSON(ctx, "/v1-k3s/apiservers", 5*time.Second, &servers); err != nil {
		a.log.Debug("Failed to get apiserver addresses from supervisor", "error", err)
		return false
	}
	now := a.lb.Servers()
	slices.Sort(now)
	slices.Sort(servers)
	if !slices.Equal(now, servers) {
		a.lb.Update(servers)
	}
	return true
}

func (a *agent) kubeconfig() string { return a.cfg.Data.Agent("kubelet.kubeconfig") }

// awaitAPIServer waits for /readyz.
func (a *agent) awaitAPIServer(ctx context.Context) error {
	d := a.cfg.Data
	bound, cancel := context.WithTimeout(ctx, a.cfg.ReadyLimit)
	defer cancel()
	err := parts.WaitAPIReady(bound, strings.TrimPrefix(a.apiURL(), "https://"), parts.TLSFiles{
		Cert: d.Agent("client-kubelet.crt"), Key: d.Agent("client-kubelet.key"), CA: d.Agent("server-ca.crt"),
	})
	if err != nil {
		return fmt.Errorf("%w: failed to wait for apiserver ready: %w", ErrStopped, err)
	}
	return nil
}

func (a *agent) startKubelet(ctx context.Context) (*parts.Process, error) {
	labels, taints, err := registration(a.cfg.Values)
	if err != nil {
		return nil, err
	}
	d := a.cfg.Data
	p, err := parts.StartKubelet(ctx, parts.KubeletConfig{
		NodeName: a.cfg.Host.NodeName, NodeIP: a.cfg.Host.IP(), Kubeconfig: a.kubeconfig(),
		ServingCert: d.Agent("serving-kubelet.crt"), ServingKey: d.Agent("serving-kubelet.key"), ClientCA: d.Agent("client-ca.crt"),
		Labels: labels, Taints: taints, DataDir: string(d),
		RuntimeSocket: layout.RunDir + "/containerd/containerd.sock",
		RootDir:       layout.KubeletDir, StaticPods: d.Agent("pod-manifests"), PodLogs: "/var/log/pods",
		Output: parts.Output{Stdout: os.Stdout, Stderr: os.Stderr},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStopped, err)
	}
	if a.cfg.Started != nil {
		a.cfg.Started(p)
	}
	a.log.Info("Running kubelet")
	return p, nil
}

// patchNode waits for the Node object and writes the agent's annotations and labels on it, until it worked.
func (a *agent) patchNode(ctx context.Context, server serverConfig) error {
	rest, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig())
	if err != nil {
		return fmt.Errorf("kubelet kubeconfig: %w", err)
	}
	rest.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("kubelet client: %w", err)
	}
	name := a.cfg.Host.NodeName
	for {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			if err = a.patchOnce(ctx, client, node, server); err == nil {
				return nil
			}
		}
		a.log.Info("Waiting to set annotations and labels on node "+name, "error", err)
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

func (a *agent) patchOnce(ctx context.Context, client kubernetes.Interface, node *corev1.Node, server serverConfig) error {
	m, err := nodeMetadata(node, a.cfg.Host, a.cfg.Values, environ(), server["egress-selector-mode"], server["disable-cloud-controller"] != "true")
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]metadata{"metadata": m})
	if err != nil {
		return fmt.Errorf("node patch: %w", err)
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
