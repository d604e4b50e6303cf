package remote

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// link is a connection to a host, and what it goes through.
type link struct {
	name   string // the host as it was written
	client *ssh.Client
	heard  *heardConn
	via    *link

	closing chan struct{}
	once    sync.Once
	tasks   sync.WaitGroup
	silent  atomic.Bool // given up, for nothing was heard
}

func newLink(c *ssh.Client, heard *heardConn, s settings, via *link) *link {
	l := &link{name: s.name, client: c, heard: heard, via: via, closing: make(chan struct{})}
	l.tasks.Go(l.keepalive)
	return l
}

// keepalive asks the host for a sign of life, and gives the connection up where there was
// none for keepaliveGiveUp. Whatever comes counts: the answer itself may wait behind a
// large file on a slow line.
func (l *link) keepalive() {
	tick := time.NewTicker(keepaliveEvery)
	defer tick.Stop()
	var asking atomic.Bool
	for {
		select {
		case <-l.closing:
			return
		case <-tick.C:
		}
		if l.heard.age() >= keepaliveGiveUp {
			l.silent.Store(true)
			_ = l.client.Close()
			return
		}
		if asking.CompareAndSwap(false, true) {
			l.tasks.Go(func() {
				defer asking.Store(false)
				_, _, _ = l.client.SendRequest("keepalive@openssh.com", true, nil) // a refusal is an answer as well
			})
		}
	}
}

// stands asks the host whether the connection still stands: what a command printed last may
// be missing where it does not.
func (l *link) stands() error {
	if _, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		return l.lost(err)
	}
	return nil
}

// lost is the problem of a connection that broke.
func (l *link) lost(err error) error {
	why := fmt.Sprint(err)
	if l.silent.Load() {
		why = fmt.Sprintf("nothing was heard for %s", keepaliveGiveUp)
	}
	return &Problem{Code: HostLost, Host: l.name, Err: err, Sentence: fmt.Sprintf("the connection to %s broke: %s", l.name, why)}
}

// close ends the connection and those it goes through, and waits for all that ran for it.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closing)
		_ = l.client.Close() // an error says that it is closed already
		_ = l.client.Wait()
		l.tasks.Wait()
		if l.via != nil {
			l.via.close()
		}
	})
}

// heardConn remembers when something was last read from a connection.
type heardConn struct {
	net.Conn
	at atomic.Pointer[time.Time] // with its monotonic reading
}

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.note()
	}
	return n, err
}

func (c *heardConn) note() {
	now := time.Now()
	c.at.Store(&now)
}

func (c *heardConn) age() time.Duration { return time.Since(*c.at.Load()) }
