// Package supervisor is k3s's listener on 6443: its own API for joining hosts, and a way through to the local apiserver
// for everything else (k3s facts §14.1).
package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
	"github.com/exadev/regrade/lab/standin/k3s/token"
)

// Groups that supervisor paths ask for.
const (
	ServerGroup = "k3s:server"
	AgentGroup  = "k3s:agent"
	NodesGroup  = "system:nodes"
)

// Status is an answer with an HTTP status and a text, as an error.
type Status struct {
	Code int
	Text string
}

func (s Status) Error() string { return s.Text }

// DBMember is one entry of /db/info.
type DBMember struct {
	ID         uint64   `json:"ID,omitempty"`
	Name       string   `json:"name,omitempty"`
	PeerURLs   []string `json:"peerURLs,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	IsLearner  bool     `json:"isLearner,omitempty"`
}

// DBInfo is the answer of /db/info.
type DBInfo struct {
	Members []DBMember `json:"members"`
}

// CertRequest is a host's wish for a certificate.
type CertRequest struct {
	// Kind is the path's last element without .crt: serving-kubelet, client-kubelet, client-kube-proxy or
	// client-k3s-controller.
	Kind string
	// CSR is PEM.
	CSR []byte
	// Node, Password and IPs come from the k3s-Node-* headers.
	Node, Password string
	IPs            []string
}

// Backend is what the supervisor answers from. Errors of type Status choose the HTTP status; others are 500.
type Backend interface {
	// Password gives the secret of a basic authentication user, and its groups.
	Password(user string) (secret string, groups []string, ok bool)
	Config(ctx context.Context) (any, error)
	APIServers(ctx context.Context) ([]string, error)
	Ready(ctx context.Context) error
	// CA gives client-ca.crt or server-ca.crt.
	CA(name string) ([]byte, error)
	Sign(ctx context.Context, r CertRequest) ([]byte, error)
	Bootstrap(ctx context.Context) (any, error)
	Members(ctx context.Context) (DBInfo, error)
	// Snapshot handles POST /db/snapshot; the answer is JSON.
	Snapshot(ctx context.Context, body []byte) (any, error)
}

// Supervisor is a running listener. Before Serve gave it handlers it answers 503 "starting".
type Supervisor struct {
	log     *slog.Logger
	server  *http.Server
	handler atomic.Pointer[http.Handler]
}

// Config says how to listen.
type Config struct {
	// Certificate is the serving certificate of 6443.
	Certificate tls.Certificate
	// ClientCAs signed the client certificates that are believed.
	ClientCAs *x509.CertPool
	Log       *slog.Logger
}

// Start serves on a listener until ctx ends.
func Start(ctx context.Context, l net.Listener, cfg Config) *Supervisor {
	s := &Supervisor{log: cfg.Log}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	s.server = &http.Server{
		Handler: http.HandlerFunc(s.dispatch),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{cfg.Certificate},
			ClientAuth:   tls.VerifyClientCertIfGiven,
			ClientCAs:    cfg.ClientCAs,
			MinVersion:   tls.VersionTLS12,
		},
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.server.ServeTLS(l, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("Supervisor stopped", "error", err)
		}
	}()
	go func() {
		<-ctx.Done()
		_ = s.server.Close()
	}()
	return s
}

// Handle puts the handlers in place.
func (s *Supervisor) Handle(h http.Handler) { s.handler.Store(&h) }

func (s *Supervisor) dispatch(w http.ResponseWriter, r *http.Request) {
	if h := s.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	http.Error(w, "starting", http.StatusServiceUnavailable)
}

// Handler is the supervisor API with everything else going to passthrough.
func Handler(b Backend, caBundle []byte, passthrough http.Handler, log *slog.Logger) http.Handler {
	h := &handlers{b: b, log: log, reads: make(chan struct{}, 20), writes: make(chan struct{}, 10)}
	mux := http.NewServeMux()
	mux.HandleFunc("/ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "pong")
	})
	mux.HandleFunc("/cacerts", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(caBundle)
	})
	agent := []string{AgentGroup, ServerGroup, NodesGroup}
	mux.Handle("/v1-k3s/config", h.allow(agent, h.answer(func(r *http.Request) (any, error) { return b.Config(r.Context()) })))
	mux.Handle("/v1-k3s/apiservers", h.allow(agent, h.answer(func(r *http.Request) (any, error) { return b.APIServers(r.Context()) })))
	mux.Handle("/v1-k3s/readyz", h.allow(agent, h.ready))
	for _, ca := range []string{"client-ca.crt", "server-ca.crt"} {
		mux.Handle("/v1-k3s/"+ca, h.allow(agent, h.file(ca)))
	}
	for _, kind := range []string{"serving-kubelet", "client-kubelet", "client-kube-proxy", "client-k3s-controller"} {
		mux.Handle("/v1-k3s/"+kind+".crt", h.allow(agent, h.sign(kind)))
	}
	mux.Handle("/v1-k3s/connect", h.allow([]string{NodesGroup}, h.connect))
	mux.Handle("/v1-k3s/server-bootstrap", h.allow([]string{ServerGroup}, h.answer(func(r *http.Request) (any, error) { return b.Bootstrap(r.Context()) })))
	mux.Handle("/db/info", h.loopbackOr([]string{ServerGroup}, h.answer(func(r *http.Request) (any, error) { return b.Members(r.Context()) })))
	mux.Handle("/db/snapshot", h.allow([]string{ServerGroup}, h.snapshot))
	mux.Handle("/", passthrough)
	return mux
}

type handlers struct {
	b             Backend
	log           *slog.Logger
	reads, writes chan struct{}
}

// groupsOf authenticates by client certificate or by basic authentication.
func (h *handlers) groupsOf(r *http.Request) []string {
	if _, groups, ok := CertificateUser(r); ok {
		return groups
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		return nil
	}
	secret, groups, known := h.b.Password(user)
	if !known || secret == "" || secret != password {
		return nil
	}
	return groups
}

// CertificateUser is the user and groups of a verified client certificate.
func CertificateUser(r *http.Request) (user string, groups []string, ok bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", nil, false
	}
	subject := r.TLS.VerifiedChains[0][0].Subject
	return subject.CommonName, subject.Organization, true
}

func (h *handlers) allow(groups []string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		have := h.groupsOf(r)
		if have == nil {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		for _, g := range groups {
			for _, x := range have {
				if g == x {
					next(w, r)
					return
				}
			}
		}
		http.Error(w, "forbidden", http.StatusForbidden)
	})
}

func (h *handlers) loopbackOr(groups []string, next http.HandlerFunc) http.Handler {
	authenticated := h.allow(groups, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsLoopback() {
			next(w, r)
			return
		}
		authenticated.ServeHTTP(w, r)
	})
}

func (h *handlers) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var s Status
	if errors.As(err, &s) {
		code = s.Code
	}
	h.log.Info("Sending HTTP error response", "code", code, "path", r.URL.Path, "error", err)
	http.Error(w, err.Error(), code)
}

func (h *handlers) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if !enter(h.reads) {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		defer func() { <-h.reads }()
		v, err := f(r)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		writeJSON(w, v)
	}
}

func enter(c chan struct{}) bool {
	select {
	case c <- struct{}{}:
		return true
	default:
		return false
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (h *handlers) ready(w http.ResponseWriter, r *http.Request) {
	if err := h.b.Ready(r.Context()); err != nil {
		h.fail(w, r, err)
		return
	}
	_, _ = io.WriteString(w, "ok")
}

func (h *handlers) file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := h.b.CA(name)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		_, _ = w.Write(b)
	}
}

func (h *handlers) sign(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if !enter(h.writes) {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		defer func() { <-h.writes }()
		csr, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		if err != nil {
			h.fail(w, r, fmt.Errorf("read request: %w", err))
			return
		}
		req := CertRequest{
			Kind: kind, CSR: csr,
			Node: r.Header.Get(nodepassword.NameHeader), Password: r.Header.Get(nodepassword.PasswordHeader),
		}
		if ips := r.Header.Get(nodepassword.IPHeader); ips != "" {
			req.IPs = strings.Split(ips, ",")
		}
		if strings.HasSuffix(kind, "kubelet") && (req.Node == "" || req.Password == "") {
			h.fail(w, r, Status{http.StatusBadRequest, "node name or password not set"})
			return
		}
		cert, err := h.b.Sign(r.Context(), req)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		_, _ = w.Write(cert)
	}
}

// connect holds an agent's tunnel open: a byte every few seconds until either side goes.
func (h *handlers) connect(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		if _, err := w.Write([]byte{'.'}); err != nil {
			return
		}
		if err := rc.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func (h *handlers) snapshot(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		h.fail(w, r, fmt.Errorf("read request: %w", err))
		return
	}
	v, err := h.b.Snapshot(r.Context(), body)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, v)
}

// Users maps the basic authentication users to their secrets: the server's own, and the agents', which is the same
// unless an agent token was set.
func Users(serverSecret, agentSecret string) func(user string) (string, []string, bool) {
	return func(user string) (string, []string, bool) {
		switch user {
		case token.ServerUser:
			return serverSecret, []string{ServerGroup}, true
		case token.NodeUser:
			return agentSecret, []string{AgentGroup}, true
		default:
			return "", nil, false
		}
	}
}
