package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// silence is how long a tunnel may say nothing; the server sends a byte every 5 s.
const silence = 15 * time.Second

// tunnels keeps one connection to every listed server. When one drops, its connections through the load balancer are
// closed at once; when it is back, the server is healthy again (k3s facts §10.2).
func (a *agent) tunnels(ctx context.Context) {
	running := map[string]context.CancelFunc{}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		wanted := map[string]bool{}
		for _, s := range a.lb.Servers() {
			wanted[s] = true
			if running[s] == nil {
				tctx, cancel := context.WithCancel(ctx)
				running[s] = cancel
				go a.tunnel(tctx, s)
			}
		}
		for s, cancel := range running {
			if !wanted[s] {
				cancel()
				delete(running, s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *agent) tunnel(ctx context.Context, server string) {
	for ctx.Err() == nil {
		connected, err := a.hold(ctx, server)
		if ctx.Err() != nil {
			return
		}
		if connected {
			a.log.Info("Remotedialer proxy error; closing connections", "server", server, "error", err)
			a.lb.Failed(server)
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// hold connects and reads until the connection drops or falls silent.
func (a *agent) hold(ctx context.Context, server string) (connected bool, err error) {
	cfg, err := a.nodeTLS()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+"/v1-k3s/connect", nil)
	if err != nil {
		return false, err
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("connect: %s", resp.Status)
	}
	a.lb.Healthy(server)
	buf := make([]byte, 64)
	for {
		if _, err := resp.Body.Read(buf); err != nil {
			return true, err
		}
		watchdog.Reset(silence)
	}
}

// nodeTLS is the node's own client certificate with the cluster's server CA.
func (a *agent) nodeTLS() (*tls.Config, error) {
	d := a.cfg.Data
	pair, err := tls.LoadX509KeyPair(d.Agent("client-kubelet.crt"), d.Agent("client-kubelet.key"))
	if err != nil {
		return nil, fmt.Errorf("node certificate: %w", err)
	}
	ca, err := os.ReadFile(d.Agent("server-ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("server CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("server CA holds no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}
