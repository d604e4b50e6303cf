package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages are what a server answers with.
type Pages struct {
	// Metrics are served under /metrics.
	Metrics prometheus.Gatherer
	// Live and Ready are asked for each request to /healthz and /readyz; an error
	// is answered as 503 with its text. Nil is always well.
	Live, Ready func() error
	// Plain serves the metrics uncompressed, whatever the scraper takes.
	Plain bool
}

// Handler is the pages' routes.
func (p Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second, DisableCompression: p.Plain,
	}))
	mux.Handle("GET /healthz", asked(p.Live))
	mux.Handle("GET /readyz", asked(p.Ready))
	return mux
}

func asked(f func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if f != nil {
			if err := f(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprintln(w, err)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}

// Listen takes an address like :9464 at once, so that one in use is known when
// the process starts.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	return l, nil
}

// Serve answers until ctx ends.
func Serve(ctx context.Context, l net.Listener, p Pages) error {
	s := &http.Server{
		Handler: p.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stopped := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stopped()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
