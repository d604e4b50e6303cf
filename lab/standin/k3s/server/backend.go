package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/standin/k3s/bootstrap"
	"github.com/exadev/regrade/lab/standin/k3s/controllers"
	"github.com/exadev/regrade/lab/standin/k3s/etcdclient"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/netx"
	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
	"github.com/exadev/regrade/lab/standin/k3s/snapshot"
	"github.com/exadev/regrade/lab/standin/k3s/supervisor"
	"github.com/exadev/regrade/lab/standin/parts/pki"
)

// listen brings the supervisor up on 6443, then handles tombstone and name file, then puts the handlers in place.
func (s *server) listen(ctx context.Context) error {
	tlsFile := func(f string) string { return s.data.Server("tls", f) }
	serving, err := tls.LoadX509KeyPair(tlsFile("serving-kube-apiserver.crt"), tlsFile("serving-kube-apiserver.key"))
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	proxy, err := tls.LoadX509KeyPair(tlsFile("client-auth-proxy.crt"), tlsFile("client-auth-proxy.key"))
	if err != nil {
		return fmt.Errorf("front proxy certificate: %w", err)
	}
	pools := map[string]*x509.CertPool{}
	bundles := map[string][]byte{}
	for _, ca := range []string{"client-ca.crt", "server-ca.crt"} {
		b, err := os.ReadFile(tlsFile(ca))
		if err != nil {
			return fmt.Errorf("read CA: %w", err)
		}
		pools[ca], bundles[ca] = x509.NewCertPool(), b
		if !pools[ca].AppendCertsFromPEM(b) {
			return fmt.Errorf("%s holds no certificate", ca)
		}
	}
	l, err := netx.Listen(ctx, net.JoinHostPort(s.v.Text("bind-address"), s.v.Text("https-listen-port")))
	if err != nil {
		return err
	}
	log := s.log.With("part", "supervisor")
	s.supervisor = supervisor.Start(ctx, l, supervisor.Config{Certificate: serving, ClientCAs: pools["client-ca.crt"], Log: log})
	if err := s.registerMember(); err != nil {
		return err
	}
	s.taker = s.newTaker()
	s.passthrough = supervisor.NewPassthrough(&url.URL{Scheme: "https", Host: "127.0.0.1:6444"},
		&tls.Config{RootCAs: pools["server-ca.crt"], MinVersion: tls.VersionTLS12}, proxy, log)
	s.passthrough.Disabled = s.etcdOnly()
	s.supervisor.Handle(supervisor.Handler(s, bundles["server-ca.crt"], s.passthrough, log))
	return nil
}

// Password implements supervisor.Backend.
func (s *server) Password(user string) (string, []string, bool) {
	return supervisor.Users(s.secret, s.agentSecret)(user)
}

// Config implements supervisor.Backend.
func (s *server) Config(context.Context) (any, error) { return bootstrap.CriticalOf(s.v), nil }

// CA implements supervisor.Backend.
func (s *server) CA(name string) ([]byte, error) { return os.ReadFile(s.data.Server("tls", name)) }

// Bootstrap implements supervisor.Backend.
func (s *server) Bootstrap(context.Context) (any, error) {
	return bootstrap.Read(bootstrap.Paths(s.data, pki.BootstrapFiles()))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Ready implements supervisor.Backend: the controllers are up.
func (s *server) Ready(context.Context) error {
	if s.nodes.Load() == nil {
		return supervisor.Status{Code: http.StatusServiceUnavailable, Text: "runtime core not ready"}
	}
	return nil
}

// addresses reads key k3s/apiaddresses.
func (s *server) addresses(ctx context.Context) ([]string, error) {
	c := s.etcdClient.Load()
	if c == nil || !closed(s.etcdReady) {
		return nil, errors.New("etcd is not ready")
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	resp, err := c.Get(ctx, controllers.AddressesKey)
	if err != nil {
		return nil, fmt.Errorf("read apiserver addresses: %w", err)
	}
	var out []string
	if len(resp.Kvs) > 0 {
		if err := json.Unmarshal(resp.Kvs[0].Value, &out); err != nil {
			return nil, fmt.Errorf("read apiserver addresses: %w", err)
		}
	}
	return out, nil
}

// APIServers implements supervisor.Backend: the union of the kubernetes EndpointSlice and key k3s/apiaddresses.
func (s *server) APIServers(ctx context.Context) ([]string, error) {
	out, etcdErr := s.addresses(ctx)
	clients := s.clients.Load()
	kubeErr := errors.New("no apiserver yet")
	if clients != nil {
		kctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		slice, err := clients.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(kctx, "kubernetes", metav1.GetOptions{})
		if kubeErr = err; err == nil {
			out = append(out, controllers.AddressesOf(slice)...)
		}
	}
	if etcdErr != nil && kubeErr != nil {
		return nil, supervisor.Status{Code: http.StatusServiceUnavailable, Text: errors.Join(etcdErr, kubeErr).Error()}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Members implements supervisor.Backend with a linearizable list within 2 s.
func (s *server) Members(ctx context.Context) (supervisor.DBInfo, error) {
	if s.noEtcd() {
		return supervisor.DBInfo{}, supervisor.Status{Code: http.StatusBadRequest, Text: "etcd datastore disabled"}
	}
	c := s.etcdClient.Load()
	if c == nil {
		return supervisor.DBInfo{}, errors.New("etcd datastore is not started")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	members, err := etcdclient.Members(ctx, c)
	if err != nil {
		return supervisor.DBInfo{}, err
	}
	var out supervisor.DBInfo
	for _, m := range members {
		out.Members = append(out.Members, supervisor.DBMember{
			ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.Learner,
		})
	}
	return out, nil
}

// Snapshot implements supervisor.Backend.
func (s *server) Snapshot(ctx context.Context, body []byte) (any, error) {
	if s.noEtcd() {
		return nil, supervisor.Status{Code: http.StatusBadRequest, Text: "etcd datastore disabled"}
	}
	answer, err := s.taker.Handle(ctx, body)
	if errors.Is(err, snapshot.ErrBusy) {
		return nil, supervisor.Status{Code: http.StatusConflict, Text: err.Error()}
	}
	return answer, err
}

// Sign implements supervisor.Backend: kubelet certificates only for a matching node password.
func (s *server) Sign(ctx context.Context, r supervisor.CertRequest) ([]byte, error) {
	dir := s.data.Server("tls")
	node := strings.ToLower(r.Node)
	if strings.HasSuffix(r.Kind, "kubelet") {
		if err := s.checkPassword(ctx, node, r.Password); err != nil {
			return nil, err
		}
	}
	switch r.Kind {
	case "serving-kubelet":
		return pki.SignServingKubelet(dir, node, r.IPs, r.CSR)
	case "client-kubelet":
		return pki.SignClientKubelet(dir, node, r.CSR)
	case "client-kube-proxy":
		return pki.SignClientKubeProxy(dir, r.CSR)
	case "client-k3s-controller":
		return pki.SignClientController(dir, r.CSR)
	default:
		return nil, supervisor.Status{Code: http.StatusNotFound, Text: "unknown certificate " + r.Kind}
	}
}

// checkPassword is k3s facts §9: a server checks its own node against the local file only, an etcd-only server takes
// everybody, a full server without controllers asks to come again.
func (s *server) checkPassword(ctx context.Context, node, password string) error {
	forbidden := supervisor.Status{
		Code: http.StatusForbidden,
		Text: fmt.Sprintf("unable to verify password for node %s: hash does not match", node),
	}
	if node == s.host.NodeName {
		local, err := os.ReadFile(layout.NodePassword)
		if err != nil {
			return fmt.Errorf("read node password: %w", err)
		}
		if strings.TrimSpace(string(local)) != password {
			return forbidden
		}
		return nil
	}
	nodes := s.nodes.Load()
	switch {
	case nodes == nil && s.etcdOnly():
		go s.checkLater(context.WithoutCancel(ctx), node, password)
		return nil
	case nodes == nil:
		return supervisor.Status{Code: http.StatusServiceUnavailable, Text: "runtime core not ready"}
	}
	err := controllers.CheckPassword(ctx, nodes.Client, node, password)
	switch {
	case err == nil:
		return nil
	case s.etcdOnly():
		go controllers.CheckLater(context.WithoutCancel(ctx), nodes, node, password)
		return nil
	case errors.Is(err, nodepassword.ErrMismatch):
		return forbidden
	default:
		return err
	}
}

// checkLater waits for an apiserver, then checks.
func (s *server) checkLater(ctx context.Context, node, password string) {
	for s.nodes.Load() == nil {
		time.Sleep(time.Second)
	}
	controllers.CheckLater(ctx, s.nodes.Load(), node, password)
}
