package parts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// APIServerConfig is what k3s tells its kube-apiserver (k3s-facts §14.3).
type APIServerConfig struct {
	// TLSDir is …/server/tls, as package pki fills it; every certificate is taken from there.
	TLSDir string
	// BindAddress and SecurePort are where it listens: "127.0.0.1" and 6444 (0 means 6444). The supervisor
	// on 6443 passes API traffic through to it.
	BindAddress string
	SecurePort  int
	// AdvertiseAddress and AdvertisePort (0 means 6443) are what the kubernetes Service's endpoints say.
	AdvertiseAddress string
	AdvertisePort    int
	// EtcdServers are client URLs; empty means https://127.0.0.1:2379.
	EtcdServers []string
	// ServiceCIDR is the range of Services; empty means k3s's 10.43.0.0/16.
	ServiceCIDR string
	// ExtraArgs are k3s's kube-apiserver-arg: "name=value", later ones win.
	ExtraArgs []string

	Output
}

// StartAPIServer starts kube-apiserver. It answers /readyz about 3 s after etcd serves: see WaitAPIReady.
// It exits when etcd cannot be reached at its start.
func StartAPIServer(ctx context.Context, cfg APIServerConfig) (*Process, error) {
	cmd := Command(APIServerName, apiServerArgs(cfg)...)
	cfg.Output.apply(cmd)
	return StartProcess(ctx, cmd)
}

func apiServerArgs(cfg APIServerConfig) []string {
	tlsFile := func(name string) string { return cfg.TLSDir + "/" + name }
	etcd := cfg.EtcdServers
	if len(etcd) == 0 {
		etcd = []string{"https://127.0.0.1:2379"}
	}
	args := []string{
		"--advertise-address=" + cfg.AdvertiseAddress,
		"--advertise-port=" + strconv.Itoa(orDefault(cfg.AdvertisePort, 6443)),
		"--allow-privileged=true",
		"--anonymous-auth=false",
		"--api-audiences=https://kubernetes.default.svc.cluster.local,k3s",
		"--authorization-mode=Node,RBAC",
		"--bind-address=" + orDefault(cfg.BindAddress, "127.0.0.1"),
		"--cert-dir=" + tlsFile("temporary-certs"),
		"--client-ca-file=" + tlsFile("client-ca.crt"),
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--etcd-cafile=" + tlsFile("etcd/server-ca.crt"),
		"--etcd-certfile=" + tlsFile("etcd/client.crt"),
		"--etcd-keyfile=" + tlsFile("etcd/client.key"),
		"--etcd-servers=" + strings.Join(etcd, ","),
		"--kubelet-certificate-authority=" + tlsFile("server-ca.crt"),
		"--kubelet-client-certificate=" + tlsFile("client-kube-apiserver.crt"),
		"--kubelet-client-key=" + tlsFile("client-kube-apiserver.key"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--profiling=false",
		"--proxy-client-cert-file=" + tlsFile("client-auth-proxy.crt"),
		"--proxy-client-key-file=" + tlsFile("client-auth-proxy.key"),
		"--requestheader-allowed-names=system:auth-proxy",
		"--requestheader-client-ca-file=" + tlsFile("request-header-ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--secure-port=" + strconv.Itoa(orDefault(cfg.SecurePort, 6444)),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + tlsFile("service.key"),
		"--service-account-signing-key-file=" + tlsFile("service.current.key"),
		"--service-cluster-ip-range=" + orDefault(cfg.ServiceCIDR, "10.43.0.0/16"),
		"--service-node-port-range=30000-32767",
		"--storage-backend=etcd3",
		"--tls-cert-file=" + tlsFile("serving-kube-apiserver.crt"),
		"--tls-private-key-file=" + tlsFile("serving-kube-apiserver.key"),
	}
	return append(args, flagged(cfg.ExtraArgs)...)
}

// ControllerManagerConfig is what k3s tells its kube-controller-manager.
type ControllerManagerConfig struct {
	// TLSDir is …/server/tls.
	TLSDir string
	// Kubeconfig is …/server/cred/controller.kubeconfig.
	Kubeconfig string
	// SecurePort on loopback; 0 means 10257.
	SecurePort int
	// ClusterCIDR and ServiceCIDR; empty means k3s's 10.42.0.0/16 and 10.43.0.0/16.
	ClusterCIDR, ServiceCIDR string
	// ExtraArgs are k3s's kube-controller-manager-arg.
	ExtraArgs []string

	Output
}

// StartControllerManager starts kube-controller-manager. The API server must be ready before (else it
// exits). It ends with status 1 when it loses its Lease, as in k3s.
func StartControllerManager(ctx context.Context, cfg ControllerManagerConfig) (*Process, error) {
	tlsFile := func(name string) string { return cfg.TLSDir + "/" + name }
	args := []string{
		"--allocate-node-cidrs=true",
		"--authentication-kubeconfig=" + cfg.Kubeconfig,
		"--authorization-kubeconfig=" + cfg.Kubeconfig,
		"--bind-address=127.0.0.1",
		"--cert-dir=" + tlsFile("kube-controller-manager"),
		"--cluster-cidr=" + orDefault(cfg.ClusterCIDR, "10.42.0.0/16"),
		"--cluster-signing-kube-apiserver-client-cert-file=" + tlsFile("client-ca.nochain.crt"),
		"--cluster-signing-kube-apiserver-client-key-file=" + tlsFile("client-ca.key"),
		"--cluster-signing-kubelet-client-cert-file=" + tlsFile("client-ca.nochain.crt"),
		"--cluster-signing-kubelet-client-key-file=" + tlsFile("client-ca.key"),
		"--cluster-signing-kubelet-serving-cert-file=" + tlsFile("server-ca.nochain.crt"),
		"--cluster-signing-kubelet-serving-key-file=" + tlsFile("server-ca.key"),
		"--cluster-signing-legacy-unknown-cert-file=" + tlsFile("server-ca.nochain.crt"),
		"--cluster-signing-legacy-unknown-key-file=" + tlsFile("server-ca.key"),
		"--configure-cloud-routes=false",
		"--controllers=*,tokencleaner,-service,-route,-cloud-node-lifecycle",
		"--kubeconfig=" + cfg.Kubeconfig,
		"--profiling=false",
		"--root-ca-file=" + tlsFile("server-ca.crt"),
		"--secure-port=" + strconv.Itoa(orDefault(cfg.SecurePort, 10257)),
		"--service-account-private-key-file=" + tlsFile("service.current.key"),
		"--service-cluster-ip-range=" + orDefault(cfg.ServiceCIDR, "10.43.0.0/16"),
		"--use-service-account-credentials=true",
	}
	cmd := Command(ControllerManagerName, append(args, flagged(cfg.ExtraArgs)...)...)
	cfg.Output.apply(cmd)
	return StartProcess(ctx, cmd)
}

// SchedulerConfig is what k3s tells its kube-scheduler.
type SchedulerConfig struct {
	// TLSDir is …/server/tls.
	TLSDir string
	// Kubeconfig is …/server/cred/scheduler.kubeconfig.
	Kubeconfig string
	// SecurePort on loopback; 0 means 10259.
	SecurePort int
	// ExtraArgs are k3s's kube-scheduler-arg.
	ExtraArgs []string

	Output
}

// StartScheduler starts kube-scheduler. The API server must be ready before. It ends with status 1 when it
// loses its Lease, as in k3s.
func StartScheduler(ctx context.Context, cfg SchedulerConfig) (*Process, error) {
	args := []string{
		"--authentication-kubeconfig=" + cfg.Kubeconfig,
		"--authorization-kubeconfig=" + cfg.Kubeconfig,
		"--bind-address=127.0.0.1",
		"--cert-dir=" + cfg.TLSDir + "/kube-scheduler",
		"--kubeconfig=" + cfg.Kubeconfig,
		"--profiling=false",
		"--secure-port=" + strconv.Itoa(orDefault(cfg.SecurePort, 10259)),
	}
	cmd := Command(SchedulerName, append(args, flagged(cfg.ExtraArgs)...)...)
	cfg.Output.apply(cmd)
	return StartProcess(ctx, cmd)
}

// flagged turns k3s's "name=value" into "--name=value".
func flagged(extra []string) []string {
	args := make([]string, 0, len(extra))
	for _, arg := range extra {
		args = append(args, "--"+strings.TrimLeft(arg, "-"))
	}
	return args
}

// APIReady asks the API server at hostPort for /readyz with a client certificate (anonymous access is off,
// k3s-facts §11.3). nil means it answered 200. One try of at most 5 s.
func APIReady(ctx context.Context, hostPort string, client TLSFiles) error {
	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil {
		return fmt.Errorf("API server client certificate: %w", err)
	}
	ca, err := os.ReadFile(client.CA)
	if err != nil {
		return fmt.Errorf("API server CA: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+hostPort+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("API server readiness: %w", err)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return fmt.Errorf("API server readiness: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return fmt.Errorf("API server is not ready: %s: %s", response.Status, text)
	}
	return nil
}

// WaitAPIReady asks every 200 ms until the API server is ready or ctx ends; the error then has the last answer.
func WaitAPIReady(ctx context.Context, hostPort string, client TLSFiles) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := APIReady(ctx, hostPort, client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func runAPIServer(args []string) int { return runCobra(apiServerCommand(), args) }
func runControllerManager(args []string) int {
	return runCobra(controllermanager.NewControllerManagerCommand(), args)
}
func runScheduler(args []string) int { return runCobra(scheduler.NewSchedulerCommand(), args) }

func runCobra(command *cobra.Command, args []string) int {
	command.SetArgs(args)
	return cli.Run(command)
}
