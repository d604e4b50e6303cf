package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
)

type fake struct {
	noQuorum bool
	signed   CertRequest
}

func (f *fake) Password(user string) (string, []string, bool) { return Users("srv", "agt")(user) }
func (f *fake) Config(context.Context) (any, error) {
	return map[string]string{"cluster-domain": "x"}, nil
}
func (f *fake) APIServers(context.Context) ([]string, error) { return []string{"10.0.0.1:6443"}, nil }
func (f *fake) Ready(context.Context) error                  { return nil }
func (f *fake) CA(name string) ([]byte, error)               { return []byte(name), nil }
func (f *fake) Bootstrap(context.Context) (any, error)       { return map[string]string{}, nil }
func (f *fake) Members(context.Context) (DBInfo, error) {
	if f.noQuorum {
		return DBInfo{}, errors.New("no quorum")
	}
	return DBInfo{Members: []DBMember{{ID: 1, Name: "a"}}}, nil
}
func (f *fake) Snapshot(context.Context, []byte) (any, error) {
	return nil, Status{http.StatusBadRequest, "etcd datastore disabled"}
}
func (f *fake) Sign(_ context.Context, r CertRequest) ([]byte, error) {
	f.signed = r
	return []byte("cert"), nil
}

func serve(f *fake, passthrough http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	Handler(f, []byte("ca"), passthrough, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	return w
}

func TestPathsAskForTheirGroup(t *testing.T) {
	for _, tc := range []struct {
		method, path, user, password, remote string
		code                                 int
	}{
		{"GET", "/ping", "", "", "", 200},
		{"GET", "/cacerts", "", "", "", 200},
		{"GET", "/v1-k3s/config", "", "", "", 401},
		{"GET", "/v1-k3s/config", "node", "agt", "", 200},
		{"GET", "/v1-k3s/config", "node", "srv", "", 401},
		{"GET", "/v1-k3s/config", "server", "srv", "", 200},
		{"GET", "/v1-k3s/apiservers", "node", "agt", "", 200},
		{"GET", "/v1-k3s/server-bootstrap", "node", "agt", "", 403},
		{"GET", "/v1-k3s/server-bootstrap", "server", "srv", "", 200},
		{"GET", "/db/info", "node", "agt", "", 403},
		{"GET", "/db/info", "server", "srv", "", 200},
		{"GET", "/db/info", "", "", "127.0.0.1:99", 200},
		{"POST", "/db/snapshot", "server", "srv", "", 400},
		{"GET", "/db/snapshot", "server", "srv", "", 405},
	} {
		r := httptest.NewRequest(tc.method, tc.path, nil)
		if tc.user != "" {
			r.SetBasicAuth(tc.user, tc.password)
		}
		if tc.remote != "" {
			r.RemoteAddr = tc.remote
		}
		if w := serve(&fake{}, http.NotFoundHandler(), r); w.Code != tc.code {
			t.Errorf("%s %s as %q: %d, want %d", tc.method, tc.path, tc.user, w.Code, tc.code)
		}
	}
}

func TestAMemberListWithoutQuorumIs500(t *testing.T) {
	r := httptest.NewRequest("GET", "/db/info", nil)
	r.SetBasicAuth("server", "srv")
	if w := serve(&fake{noQuorum: true}, http.NotFoundHandler(), r); w.Code != 500 {
		t.Errorf("got %d", w.Code)
	}
}

func TestACertificateRequestCarriesNodeAndPassword(t *testing.T) {
	f := &fake{}
	r := httptest.NewRequest("POST", "/v1-k3s/client-kubelet.crt", strings.NewReader("csr"))
	r.SetBasicAuth("node", "agt")
	if w := serve(f, http.NotFoundHandler(), r); w.Code != 400 {
		t.Errorf("without node name: %d", w.Code)
	}
	r = httptest.NewRequest("POST", "/v1-k3s/client-kubelet.crt", strings.NewReader("csr"))
	r.SetBasicAuth("node", "agt")
	r.Header.Set(nodepassword.NameHeader, "n1")
	r.Header.Set(nodepassword.PasswordHeader, "pw")
	r.Header.Set(nodepassword.IPHeader, "10.0.0.1,10.0.0.2")
	if w := serve(f, http.NotFoundHandler(), r); w.Code != 200 || w.Body.String() != "cert" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if f.signed.Node != "n1" || f.signed.Password != "pw" || len(f.signed.IPs) != 2 || string(f.signed.CSR) != "csr" || f.signed.Kind != "client-kubelet" {
		t.Errorf("got %+v", f.signed)
	}
}

func TestBeforeHandlersExistEveryPathIsStarting(t *testing.T) {
	s := &Supervisor{}
	w := httptest.NewRecorder()
	s.dispatch(w, httptest.NewRequest("GET", "/ping", nil))
	if w.Code != 503 || strings.TrimSpace(w.Body.String()) != "starting" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestAnEtcdOnlyServerSaysApiserverDisabled(t *testing.T) {
	p := &Passthrough{Disabled: true}
	w := serve(&fake{}, p, httptest.NewRequest("GET", "/api/v1/nodes", nil))
	if w.Code != 503 || strings.TrimSpace(w.Body.String()) != "apiserver disabled" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestPassthroughCarriesCertificateUsersAndDropsClaimedOnes(t *testing.T) {
	var got http.Header
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		_, _ = io.WriteString(w, r.Proto)
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(backend.Certificate())
	p := NewPassthrough(target, &tls.Config{RootCAs: roots}, tls.Certificate{}, slog.New(slog.DiscardHandler))

	closedRequest := httptest.NewRequest("GET", "/version", nil)
	w := httptest.NewRecorder()
	if p.ServeHTTP(w, closedRequest); w.Code != 503 {
		t.Errorf("before the apiserver runs: %d", w.Code)
	}
	p.Open()

	r := httptest.NewRequest("GET", "/version", nil)
	r.Header.Set("X-Remote-User", "system:admin")
	r.Header.Set("X-Remote-Group", "system:masters")
	r.Header.Set("Authorization", "Bearer t")
	p.ServeHTTP(httptest.NewRecorder(), r)
	if got.Get("X-Remote-User") != "" || got.Get("X-Remote-Group") != "" || got.Get("Authorization") != "Bearer t" {
		t.Errorf("headers %v", got)
	}

	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	r = httptest.NewRequest("GET", "/version", nil)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	r.Header.Set("X-Remote-User", "system:admin")
	p.ServeHTTP(httptest.NewRecorder(), r)
	if got.Get("X-Remote-User") != "system:node:n1" || got.Get("X-Remote-Group") != "system:nodes" {
		t.Errorf("headers %v", got)
	}
}

// A refusal comes before the body was read: the apiserver judges the right first. The break check: send requests on without
// reading their body, and one of fifteen answers never ends.
func TestARefusalReachesTheClientWhole(t *testing.T) {
	server := func(h http.Handler) (*httptest.Server, *x509.CertPool) {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		return s, roots
	}
	backend, roots := server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("forbidden ", 30), http.StatusForbidden)
	}))
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPassthrough(target, &tls.Config{RootCAs: roots}, tls.Certificate{}, slog.New(slog.DiscardHandler))
	p.Open()
	front, _ := server(p)
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		r, err := http.NewRequestWithContext(ctx, http.MethodPatch, front.URL, strings.NewReader(`{"metadata":{"annotations":{"a":"b"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		res, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusForbidden || res.ProtoMajor != 2 {
			t.Fatalf("%s %s: %v", res.Proto, res.Status, err)
		}
		_ = res.Body.Close()
		cancel()
	}
}
