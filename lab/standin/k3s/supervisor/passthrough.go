package supervisor

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// Passthrough sends requests to the local apiserver. Users of client certificates arrive there by request headers,
// signed for by the front proxy's certificate, as TLS ends here; bearer tokens go through unchanged.
type Passthrough struct {
	// Disabled is set on etcd-only servers: every API path answers 503 "apiserver disabled".
	Disabled bool
	open     atomic.Bool
	asUser   *httputil.ReverseProxy
	asIs     *httputil.ReverseProxy
}

// NewPassthrough proxies to target (https://127.0.0.1:6444). trust verifies the apiserver; proxy is the front proxy's
// client certificate.
func NewPassthrough(target *url.URL, trust *tls.Config, proxy tls.Certificate, log *slog.Logger) *Passthrough {
	withCert := trust.Clone()
	withCert.Certificates = []tls.Certificate{proxy}
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	build := func(cfg *tls.Config, identify bool) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				p.Out.Host = p.In.Host
				p.SetXForwarded()
				for name := range p.Out.Header {
					if isIdentity(name) {
						p.Out.Header.Del(name)
					}
				}
				if !identify {
					return
				}
				user, groups, _ := CertificateUser(p.In)
				p.Out.Header.Set("X-Remote-User", user)
				for _, g := range groups {
					p.Out.Header.Add("X-Remote-Group", g)
				}
			},
			Transport:     newTransport(cfg),
			FlushInterval: -1,
			ErrorLog:      errorLog,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "apiserver not ready: "+err.Error(), http.StatusServiceUnavailable)
			},
		}
	}
	return &Passthrough{asUser: build(withCert, true), asIs: build(trust, false)}
}

// isIdentity says whether a header (in canonical form) claims an identity.
func isIdentity(name string) bool {
	const prefix = "X-Remote-"
	return len(name) >= len(prefix) && name[:len(prefix)] == prefix
}

// newTransport speaks HTTP/2 to the apiserver, and HTTP/1.1 where a request wants to switch protocols (exec).
func newTransport(cfg *tls.Config) http.RoundTripper {
	h2 := &http.Transport{TLSClientConfig: cfg.Clone(), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64}
	h1 := &http.Transport{TLSClientConfig: cfg.Clone(), MaxIdleConnsPerHost: 8, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	return byUpgrade{h2: h2, h1: h1}
}

type byUpgrade struct{ h2, h1 *http.Transport }

func (t byUpgrade) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.h1.RoundTrip(r)
	}
	return t.h2.RoundTrip(r)
}

// Open lets requests through; the apiserver runs.
func (p *Passthrough) Open() { p.open.Store(true) }

// ServeHTTP implements http.Handler.
func (p *Passthrough) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case p.Disabled:
		http.Error(w, "apiserver disabled", http.StatusServiceUnavailable)
	case !p.open.Load():
		http.Error(w, "apiserver not ready", http.StatusServiceUnavailable)
	default:
		if err := hold(w, r); err != nil {
			http.Error(w, "request body: "+err.Error(), http.StatusBadRequest)
			return
		}
		if _, _, ok := CertificateUser(r); ok {
			p.asUser.ServeHTTP(w, r)
			return
		}
		p.asIs.ServeHTTP(w, r)
	}
}

// bodyMost is above what the apiserver takes in a request.
const bodyMost = 8 << 20

// hold reads the whole body of a request before it is sent on. k3s hands requests to its apiserver in its own process; here
// a proxy is between, and one that still reads the body when the answer comes, as a refusal does, loses the answer's end.
func hold(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody || r.Header.Get("Upgrade") != "" {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}
