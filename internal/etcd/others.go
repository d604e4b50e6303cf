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
)

// keptFor is how long a connection to another member is kept after it was last
// asked for. A host asks the others while a step waits, pass after pass.
const keptFor = time.Minute

// others are connections to other members. A new one costs four round trips before
// its first question, over a link that is bad enough to be swapped out for more than
// CallTimeout; it goes on being made while the pass that wanted it has given up, and
// the next pass finds it.
type others struct {
	mu    sync.Mutex
	conns map[string]*clientv3.Client
	cert  []byte // the certificate they were made with
	end   *time.Timer
}

// to is the connection to url, made where there is none. cert tells whether k3s has
// renewed the certificate.
func (o *others) to(cfg *tls.Config, cert []byte, url string) (*clientv3.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !bytes.Equal(cert, o.cert) {
		o.drop()
		o.cert = cert
	}
	if o.end == nil {
		o.end = time.AfterFunc(keptFor, o.close)
	}
	o.end.Reset(keptFor)
	if conn := o.conns[url]; conn != nil {
		return conn, nil
	}
	conn, err := dial(cfg, url, grpc.WithConnectParams(grpc.ConnectParams{
		// A member that comes back is found within seconds, however long it was away.
		Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 2 * CallTimeout,
	}))
	if err != nil {
		return nil, err
	}
	if o.conns == nil {
		o.conns = map[string]*clientv3.Client{}
	}
	o.conns[url] = conn
	return conn, nil
}

// close ends them all.
func (o *others) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop()
}

func (o *others) drop() {
	for _, conn := range o.conns {
		_ = conn.Close()
	}
	o.conns = nil
	if o.end != nil {
		o.end.Stop()
		o.end = nil
	}
}

// open says whether the connection stands, as far as this side knows.
func open(conn *clientv3.Client) bool {
	return conn.ActiveConnection().GetState() == connectivity.Ready
}
