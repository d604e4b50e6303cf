package etcd

import (
	"bytes"
	"crypto/tls"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
)

// keptFor is how long a connection is kept after it was last asked for: a host asks
// its own etcd, and while a step waits the others, pass after pass.
const keptFor = time.Minute

// kept are the connections. A new one costs four round trips before its first
// question, over a link that is bad enough to be swapped out for more than
// CallTimeout; it goes on being made while the pass that wanted it has given up, and
// the next pass finds it. None outlives the server it was for by much: a connection
// tries again ever more rarely, by itself minutes apart, and a host that becomes a
// server again would not hear its own etcd for that long.
type kept struct {
	mu    sync.Mutex
	conns map[string]*clientv3.Client
	cert  []byte // the certificate they were made with
	end   *time.Timer
	dial  Dialer // nil is TCP
}

// to is the connection to url, made where there is none. cert tells whether k3s has
// renewed the certificate.
func (k *kept) to(cfg *tls.Config, cert []byte, url string) (*clientv3.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !bytes.Equal(cert, k.cert) {
		k.drop()
		k.cert = cert
	}
	if k.end == nil {
		k.end = time.AfterFunc(keptFor, k.close)
	}
	k.end.Reset(keptFor)
	if conn := k.conns[url]; conn != nil {
		return conn, nil
	}
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		// A member that comes back is found within seconds, however long it was away.
		Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 2 * CallTimeout,
	}), grpc.WithKeepaliveParams(keepalive.ClientParameters{
		// A member that lost its power, or the way to it, ends no connection: TCP would
		// send into it for minutes, and not hear that it is back. A lossy link has more
		// time than any call to it. etcd allows a question each five seconds.
		Time: 10 * time.Second, Timeout: 10 * time.Second,
	})}
	if k.dial != nil {
		options = append(options, grpc.WithContextDialer(k.dial))
	}
	conn, err := dial(cfg, url, options...)
	if err != nil {
		return nil, err
	}
	if k.conns == nil {
		k.conns = map[string]*clientv3.Client{}
	}
	k.conns[url] = conn
	return conn, nil
}

// close ends them all.
func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop()
}

func (k *kept) drop() {
	for _, conn := range k.conns {
		_ = conn.Close()
	}
	k.conns = nil
	if k.end != nil {
		k.end.Stop()
		k.end = nil
	}
}

// open says whether the connection stands, as far as this side knows.
func open(conn *clientv3.Client) bool {
	return conn.ActiveConnection().GetState() == connectivity.Ready
}
