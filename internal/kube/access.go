package kube

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// RequestTimeout is when a request ends that nobody answers.
const RequestTimeout = 5 * time.Second

// Access says how the API is reached. The zero value is what kubectl does:
// KUBECONFIG, else the pod's own service account inside a cluster, else the
// default file.
type Access struct {
	// Kubeconfig is a file; empty for the default.
	Kubeconfig string
	Context    string
	// Servers are API servers to try in this order in place of the one that the
	// configuration names, such as https://10.0.0.1:6443.
	Servers []string
	// More are tried where the configured one does not answer, such as a host that is no
	// server any more.
	More []string
	// Token, when not empty, is the bearer token in place of all other credentials.
	Token     Secret
	UserAgent string
	// Plain asks for answers that are not compressed: to inflate a list of 1,000 Nodes
	// costs several times what reading it does.
	Plain bool
}

// Connection is a way to the API: a client without cache, and what its
// transport noticed.
type Connection struct {
	Client    client.WithWatch
	Transport *Transport
	core      rest.Interface // the same way, for an answer that is read as it comes
}

// Connect reads the configuration and makes a client. It sends nothing.
func Connect(a Access) (*Connection, error) {
	cfg, err := config(a)
	if err != nil {
		return nil, fmt.Errorf("kubernetes access: %w", err)
	}
	servers := a.Servers
	if len(servers) == 0 && len(a.More) > 0 {
		servers = []string{cfg.Host}
		for _, s := range a.More {
			if s != cfg.Host {
				servers = append(servers, s)
			}
		}
	}
	return connect(cfg, servers)
}

func connect(cfg *rest.Config, servers []string) (*Connection, error) {
	cfg = rest.CopyConfig(cfg)
	if len(servers) == 0 {
		servers = []string{cfg.Host}
	}
	t, err := newTransport(servers)
	if err != nil {
		return nil, fmt.Errorf("kubernetes access: %w", err)
	}
	cfg.Host = servers[0]
	cfg.QPS = -1 // a pass knows how much it asks for; waiting in the client would only hide it
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(t.wrap)
	if len(servers) == 1 {
		if cfg.Dial == nil {
			cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
		}
		kept := connrotation.NewDialer(cfg.Dial)
		cfg.Dial, t.hangUp = kept.DialContext, kept.CloseAll
	}
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{HTTPClient: h, Scheme: scheme.Scheme, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	v1 := rest.CopyConfig(cfg)
	v1.APIPath, v1.GroupVersion, v1.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	core, err := rest.RESTClientForConfigAndClient(v1, h)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return &Connection{Client: versioned{WithWatch: c, t: t}, Transport: t, core: core}, nil
}

// Named is host and port of the API server that the configuration names, whatever Servers
// says; empty inside a cluster, where a service stands before all of them.
func Named(a Access) string {
	a.Servers = nil
	cfg, err := config(a)
	if err != nil || cfg.BearerTokenFile != "" && a.Kubeconfig == "" {
		return ""
	}
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return ""
	}
	return u.Host
}

func config(a Access) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if a.Kubeconfig == "" && a.Context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		cfg, err = rest.InClusterConfig()
		if err == nil {
			return with(cfg, a), nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	over := &clientcmd.ConfigOverrides{CurrentContext: a.Context}
	cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, over).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		// The client's own sentence asks for a variable that nothing here reads.
		return nil, errors.New("no kubeconfig names a cluster: say which with --kubeconfig or KUBECONFIG; on a k3s server it is /etc/rancher/k3s/k3s.yaml")
	case err != nil:
		return nil, err
	}
	return with(cfg, a), nil
}

func with(cfg *rest.Config, a Access) *rest.Config {
	if a.UserAgent != "" {
		cfg.UserAgent = a.UserAgent
	}
	cfg.DisableCompression = a.Plain
	if a.Token != "" {
		anonymous := rest.AnonymousClientConfig(cfg)
		anonymous.BearerToken = a.Token.Reveal()
		return anonymous
	}
	return cfg
}

// mapper knows the kinds that are used, so that nothing is discovered.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(policyv1.SchemeGroupVersion.WithKind("Eviction"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	for _, k := range installedKinds {
		if _, err := m.RESTMapping(k.GroupKind(), k.Version); err != nil {
			m.Add(k.GroupVersionKind, k.scope)
		}
	}
	m.Add(snapshotKind, meta.RESTScopeRoot)
	m.Add(runnerSetKind, meta.RESTScopeNamespace)
	return m
}

// ParseServers reads a comma-separated list of API servers. A name or address
// without a scheme gets https, and port 6443 where it has none.
func ParseServers(list string) ([]string, error) {
	var servers []string
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if !strings.Contains(s, "://") {
			s = "https://" + s
		}
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") || (u.Path != "" && u.Path != "/") || u.User != nil || (u.Scheme != "https" && u.Scheme != "http") {
			if strings.Contains(s, "@") {
				s = "with a user" // and perhaps a password, which is not shown
			}
			return nil, fmt.Errorf("API server %q: want a URL like https://10.0.0.1:6443", s)
		}
		if u.Port() == "" {
			u.Host += ":6443"
		}
		servers = append(servers, u.Scheme+"://"+u.Host)
	}
	return servers, nil
}
