package etcd_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/status"
)

// A host that lost its power tells nobody that its connections have ended, and neither
// does a link that loses every packet: what is sent goes nowhere, and TCP tries again
// ever more rarely, two minutes apart in the end. The host is back long before, and a
// step would go on waiting for it. The break check: no keepalive.
func TestAMemberThatLostItsPowerIsHeardSoonAfterItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dir, serve := prepare(t)
		w := &wire{}
		go serve(w.up())
		m := &muting{wire: w}
		c := client(t, dir, "https://127.0.0.1:2379").Through(m.dial)
		ask := func() bool {
			return len(c.Answering(t.Context(), big63, 0xb, []status.Member{{ID: 0xa, ClientURLs: []string{"https://127.0.0.1:2379"}}})) == 1
		}
		if !ask() {
			t.Fatal("it does not answer")
		}
		m.mute()
		cut := time.Now()
		for time.Since(cut) < time.Minute {
			if ask() {
				t.Logf("heard after %s", time.Since(cut))
				return
			}
			time.Sleep(2 * time.Second)
		}
		t.Error("it has been back for a minute, and is not heard")
	})
}

// muting is a way whose present connections carry nothing any more once it is muted; a
// new one does.
type muting struct {
	*wire
	mu   sync.Mutex
	open []*mutable
}

func (m *muting) dial(ctx context.Context, to string) (net.Conn, error) {
	c, err := m.wire.dial(ctx, to)
	if err != nil {
		return nil, err
	}
	x := &mutable{Conn: c, muted: make(chan struct{}), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = append(m.open, x)
	return x, nil
}

func (m *muting) mute() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.open {
		close(x.muted)
	}
	m.open = nil
}

type mutable struct {
	net.Conn
	muted, closed chan struct{}
	once          sync.Once
}

func (x *mutable) is() bool {
	select {
	case <-x.muted:
		return true
	default:
		return false
	}
}

func (x *mutable) Read(b []byte) (int, error) {
	n, err := x.Conn.Read(b)
	if x.is() {
		<-x.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (x *mutable) Write(b []byte) (int, error) {
	if x.is() {
		return len(b), nil
	}
	return x.Conn.Write(b)
}

func (x *mutable) Close() error {
	x.once.Do(func() { close(x.closed) })
	return x.Conn.Close()
}
