package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/netx"
)

// dialTimeout bounds one attempt to reach a server.
const dialTimeout = 10 * time.Second

// Balancer is a running load balancer.
type Balancer struct {
	file      string
	serverURL string
	listener  net.Listener
	log       *slog.Logger

	mu    sync.Mutex
	pool  *pool
	conns map[string]map[net.Conn]struct{}
}

// Start listens on address (127.0.0.1:6444) and proxies to the server of serverURL, or to the servers remembered for
// that same URL in file. It ends with ctx.
func Start(ctx context.Context, address, serverURL, file string, log *slog.Logger) (*Balancer, error) {
	def, err := HostPort(serverURL)
	if err != nil {
		return nil, err
	}
	remembered, err := load(file, serverURL)
	if err != nil {
		return nil, err
	}
	l, err := netx.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	b := &Balancer{
		file: file, serverURL: serverURL, listener: l, log: log,
		pool: newPool(def, remembered), conns: map[string]map[net.Conn]struct{}{},
	}
	log.Info("Running load balancer", "address", address, "servers", remembered, "default", def)
	if err := b.save(); err != nil {
		_ = l.Close()
		return nil, err
	}
	go func() {
		<-ctx.Done()
		_ = l.Close()
	}()
	go b.serve(ctx)
	return b, nil
}

// HostPort is the dial address of a server URL; the port defaults to 443 as in k3s.
func HostPort(serverURL string) (string, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return "", fmt.Errorf("only https:// URLs are supported, invalid scheme: %s", serverURL)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// Update replaces the server list (host:port). An empty list is ignored.
func (b *Balancer) Update(servers []string) {
	b.mu.Lock()
	dropped := b.pool.set(servers)
	b.mu.Unlock()
	for _, s := range dropped {
		b.closeAll(s)
	}
	if err := b.save(); err != nil {
		b.log.Error("Failed to save load balancer state", "error", err)
	}
}

// SetDefault moves the default server; what it was before is dropped unless listed.
func (b *Balancer) SetDefault(server string) {
	b.mu.Lock()
	old := b.pool.def
	if old != server {
		delete(b.pool.servers, old)
		b.pool.def = server
		if _, ok := b.pool.servers[server]; !ok {
			b.pool.servers[server] = unchecked
		}
	}
	b.mu.Unlock()
	if old != server {
		b.closeAll(old)
	}
}

// Servers lists every server in the order they would be tried.
func (b *Balancer) Servers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool.order()
}

// Failed marks a server whose tunnel dropped and closes every connection to it.
func (b *Balancer) Failed(server string) {
	b.mu.Lock()
	b.pool.mark(server, failed)
	b.mu.Unlock()
	b.closeAll(server)
}

// Healthy marks a server whose tunnel is up.
func (b *Balancer) Healthy(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if st, ok := b.pool.servers[server]; ok && (st == failed || st == unchecked || st == recovering) {
		b.pool.mark(server, healthy)
	}
}

func (b *Balancer) save() error {
	b.mu.Lock()
	s := saved{ServerURL: b.serverURL, ServerAddresses: b.pool.listed()}
	b.mu.Unlock()
	return store(b.file, s)
}

func (b *Balancer) serve(ctx context.Context) {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				b.log.Error("Load balancer stopped", "error", err)
			}
			return
		}
		go b.proxy(ctx, conn)
	}
}

func (b *Balancer) proxy(ctx context.Context, client net.Conn) {
	server, backend, err := b.dial(ctx)
	if err != nil {
		_ = client.Close()
		return
	}
	b.track(server, client, true)
	defer b.track(server, client, false)
	var once sync.Once
	closeBoth := func() {
		_ = client.Close()
		_ = backend.Close()
	}
	done := make(chan struct{}, 2)
	pipe := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		once.Do(closeBoth)
		done <- struct{}{}
	}
	go pipe(backend, client)
	go pipe(client, backend)
	select {
	case <-done:
	case <-ctx.Done():
		once.Do(closeBoth)
	}
}

// dial tries the servers in order; one that fails is marked and its other connections are closed.
func (b *Balancer) dial(ctx context.Context) (string, net.Conn, error) {
	var errs []error
	for _, server := range b.Servers() {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", server)
		if err == nil {
			b.mu.Lock()
			b.pool.mark(server, active)
			b.mu.Unlock()
			return server, conn, nil
		}
		errs = append(errs, err)
		b.Failed(server)
	}
	return "", nil, errors.Join(errs...)
}

func (b *Balancer) track(server string, conn net.Conn, add bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if add {
		if b.conns[server] == nil {
			b.conns[server] = map[net.Conn]struct{}{}
		}
		b.conns[server][conn] = struct{}{}
		return
	}
	delete(b.conns[server], conn)
}

func (b *Balancer) closeAll(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns[server] {
		_ = conn.Close()
	}
}
