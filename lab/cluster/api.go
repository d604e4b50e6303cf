package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exadev/regrade/lab/host"
)

// fileAdmin is the administrator's kubeconfig on a server.
const fileAdmin = "/etc/rancher/k3s/k3s.yaml"

// attemptLimit ends one try of a request at one server.
const attemptLimit = 5 * time.Second

// API is an administrator's way to the cluster, for what the test does and looks at. It goes to the first of its servers that
// answers as an API server, so it survives what scenarios do to single hosts.
type API struct {
	kubernetes.Interface
	Dynamic dynamic.Interface
	// Config is the connection, for other clients.
	Config *rest.Config
}

// AdminConfig is the administrator's connection through this host alone, dialled from the lab's network.
func (c *Cluster) AdminConfig(h *host.Host) (*rest.Config, error) {
	content, err := c.adminFile()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return nil, fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	config.Host = URL(h)
	config.Dial = c.Lab.DialContext
	config.QPS = -1
	config.Timeout = 30 * time.Second
	config.UserAgent = "regrade-lab"
	return config, nil
}

// adminFile is read once, from the host that started the cluster: the file goes stale there when the host becomes an agent,
// the certificate in it stays good.
func (c *Cluster) adminFile() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.admin == nil {
		content, err := c.Lab.Hosts()[0].ReadFile(fileAdmin)
		if err != nil {
			return nil, err
		}
		c.admin = content
	}
	return c.admin, nil
}

// Via is the administrator's client through this host alone.
func (c *Cluster) Via(h *host.Host) (*API, error) {
	config, err := c.AdminConfig(h)
	if err != nil {
		return nil, err
	}
	return newAPI(config)
}

// API is the administrator's client through any server that works. It is made once.
func (c *Cluster) API() (*API, error) {
	config, err := c.AdminConfig(c.Lab.Hosts()[0])
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		return c.api, nil
	}
	var hosts []string
	for _, h := range c.Lab.Hosts() {
		if c.Spec.host(h.Name()).eligible() {
			hosts = append(hosts, fmt.Sprintf("%s:%d", h.IP(), APIPort))
		}
	}
	servers := &servers{hosts: hosts}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		servers.next = next
		return servers
	})
	c.api, err = newAPI(config)
	return c.api, err
}

func newAPI(config *rest.Config) (*API, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return &API{Interface: typed, Dynamic: untyped, Config: config}, nil
}

// servers tries one API server after the other, the last good one first.
type servers struct {
	next  http.RoundTripper
	hosts []string

	mu   sync.Mutex
	good int
}

func (s *servers) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		body, err = io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	first := s.good
	s.mu.Unlock()
	var failed []error
	for i := range s.hosts {
		at := (first + i) % len(s.hosts)
		response, err := s.try(request, s.hosts[at], body)
		if err == nil {
			s.mu.Lock()
			s.good = at
			s.mu.Unlock()
			return response, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", s.hosts[at], err))
		if request.Context().Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}

// try sends the request to one server. The answer is read to its end here, so that a server that falls silent in the middle
// counts as one that did not answer; a watch is handed through.
func (s *servers) try(request *http.Request, host string, body []byte) (*http.Response, error) {
	ctx, cancel := request.Context(), func() {}
	watch := request.URL.Query().Get("watch") != ""
	if !watch {
		ctx, cancel = context.WithTimeout(ctx, attemptLimit)
	}
	defer cancel()
	out := request.Clone(ctx)
	out.URL.Host, out.Host = host, host
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	response, err := s.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if watch {
		return response, nil
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	// A supervisor without an API server, or one that starts, answers 503 itself.
	if response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusBadGateway {
		return nil, fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(content[:min(len(content), 200)]))
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, nil
}
