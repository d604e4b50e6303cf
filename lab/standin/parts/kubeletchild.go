package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"go.opentelemetry.io/otel/trace/noop"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"

	"k8s.io/apimachinery/pkg/types"
)

func runKubelet([]string) int {
	var cfg KubeletConfig
	if err := json.NewDecoder(os.Stdin).Decode(&cfg); err != nil {
		fmt.Fprintf(os.Stderr, "kubelet configuration: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serveKubelet(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serveKubelet runs the kubelet until ctx ends. Containers are left as they are.
func serveKubelet(ctx context.Context, cfg KubeletConfig) error {
	if err := ensureRuntime(ctx, cfg); err != nil {
		return err
	}
	go keepRuntime(ctx, cfg)

	config, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return fmt.Errorf("kubelet kubeconfig: %w", err)
	}
	client, heartbeat, err := kubeletClients(config)
	if err != nil {
		return fmt.Errorf("kubelet client: %w", err)
	}
	flags, settings, err := kubeletSettings(cfg)
	if err != nil {
		return err
	}
	logger := klog.Background()
	runtimeService, err := remote.NewRemoteRuntimeService("unix://"+cfg.RuntimeSocket, 15*time.Second, noop.NewTracerProvider(), &logger)
	if err != nil {
		return fmt.Errorf("kubelet runtime client: %w", err)
	}
	watched := &watchedRuntime{RuntimeService: runtimeService, listed: make(chan struct{}, 1)}
	hollow := kubemark.NewHollowKubelet(flags, settings, client, heartbeat,
		&machine{
			Fake: cadvisortest.Fake{NodeName: cfg.NodeName}, listed: watched.listed,
			cores: orDefault(cfg.Cores, 4), memory: orDefault(cfg.MemoryBytes, 8<<30),
		},
		apitest.NewFakeImageService(), watched, cm.NewStubContainerManager())
	if settings.EnableServer {
		tls, err := kubeletapp.InitializeTLS(ctx, flags, settings)
		if err != nil {
			return fmt.Errorf("kubelet TLS: %w", err)
		}
		auth, runAuth, err := kubeletapp.BuildAuth(types.NodeName(cfg.NodeName), client, *settings)
		if err != nil {
			return fmt.Errorf("kubelet authentication: %w", err)
		}
		runAuth(ctx.Done())
		hollow.KubeletDeps.TLSOptions, hollow.KubeletDeps.Auth = tls, auth
	}
	failed := make(chan error, 1)
	go func() { failed <- serveHealthz(orDefault(cfg.HealthzPort, 10248)) }()
	go hollow.Run(ctx) // blocks for ever; it ends the process itself when it cannot start
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// kubeletClients are the kubelet's client and the one for its heartbeats, which never waits long.
func kubeletClients(config *rest.Config) (client, heartbeat *clientset.Clientset, err error) {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = "kubelet"
	config.QPS, config.Burst = 50, 100
	if client, err = clientset.NewForConfig(config); err != nil {
		return nil, nil, err
	}
	beat := *config
	beat.QPS = -1
	beat.Timeout = 10 * time.Second
	heartbeat, err = clientset.NewForConfig(&beat)
	return client, heartbeat, err
}

func kubeletSettings(cfg KubeletConfig) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	flags, settings := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName:           cfg.NodeName,
		KubeletPort:        orDefault(cfg.Port, 10250),
		MaxPods:            orDefault(cfg.MaxPods, 110),
		NodeLabels:         cfg.Labels,
		RegisterWithTaints: cfg.Taints,
	})
	// The helper makes folders under the temporary folder; ours are given.
	if err := os.RemoveAll(flags.RootDirectory); err != nil {
		return nil, nil, fmt.Errorf("kubelet folders: %w", err)
	}
	for _, folder := range []string{cfg.RootDir, cfg.StaticPods, cfg.PodLogs} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return nil, nil, fmt.Errorf("kubelet folders: %w", err)
		}
	}
	flags.RootDirectory = cfg.RootDir
	flags.NodeIP = cfg.NodeIP
	settings.StaticPodPath = cfg.StaticPods
	settings.PodLogsDir = cfg.PodLogs
	settings.Address = orDefault(cfg.Address, "0.0.0.0")
	settings.ProviderID = "k3s://" + cfg.NodeName
	settings.EnableServer = cfg.ServingCert != ""
	settings.TLSCertFile, settings.TLSPrivateKeyFile = cfg.ServingCert, cfg.ServingKey
	settings.Authentication.X509.ClientCAFile = cfg.ClientCA
	return flags, settings, nil
}

// watchedRuntime tells when containers were listed.
type watchedRuntime struct {
	internalapi.RuntimeService
	listed chan struct{}
}

// ListContainers lists, and says so without waiting for anyone.
func (w *watchedRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	containers, err := w.RuntimeService.ListContainers(ctx, filter)
	select {
	case w.listed <- struct{}{}:
	default:
	}
	return containers, err
}

// machine says the Node's capacity in place of cAdvisor.
type machine struct {
	cadvisortest.Fake
	listed <-chan struct{}
	cores  int
	memory uint64
}

// Start takes as long as the kubelet needs to look at its pods once. The kubelet reports its Node only after
// this; a cAdvisor that starts in no time, unlike the real one, makes a restarted kubelet report "PLEG is not
// healthy" first, and then the Node is NotReady for 10 s.
func (m *machine) Start() error {
	select {
	case <-m.listed: // an earlier listing: not the one that counts
	default:
	}
	select {
	case <-m.listed:
		time.Sleep(50 * time.Millisecond)
	case <-time.After(2 * time.Second):
	}
	return nil
}

func (m *machine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	info, err := m.Fake.MachineInfo()
	if err != nil {
		return nil, err
	}
	info.NumCores, info.MemoryCapacity = m.cores, m.memory
	return info, nil
}

func serveHealthz(port int) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	server := &http.Server{
		Addr:              net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
	}
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("kubelet healthz: %w", err)
	}
	return nil
}
