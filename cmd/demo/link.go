package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is the network in front of a host's peer port: a TCP proxy that can be
// slow. What it delays, it delays in both directions; the bandwidth stays.
type link struct {
	listener net.Listener
	backend  string
	delay    atomic.Int64 // nanoseconds each way
	cut      atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newLink(backend string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	k := &link{listener: l, backend: backend, conns: map[net.Conn]bool{}}
	go k.accept()
	return k, nil
}

func (k *link) address() string { return k.listener.Addr().String() }

func (k *link) slow(each time.Duration) { k.delay.Store(int64(each)) }

// close ends the link and every connection through it.
func (k *link) close() {
	_ = k.listener.Close()
	k.drop()
}

// lose cuts the link, as a power cut does; restore mends it.
func (k *link) lose() {
	k.cut.Store(true)
	k.drop()
}

func (k *link) restore() { k.cut.Store(false) }

func (k *link) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
	clear(k.conns)
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		go k.carry(c)
	}
}

func (k *link) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	if k.cut.Load() {
		return
	}
	far, err := net.DialTimeout("tcp", k.backend, time.Second)
	if err != nil {
		k.answer(near)
		return
	}
	defer func() { _ = far.Close() }()
	if !k.keep(near, far) {
		return
	}
	defer k.forget(near, far)
	done := make(chan struct{}, 2)
	go func() { k.pipe(far, near); done <- struct{}{} }()
	go func() { k.pipe(near, far); done <- struct{}{} }()
	<-done
}

func (k *link) keep(cs ...net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cut.Load() {
		return false
	}
	for _, c := range cs {
		k.conns[c] = true
	}
	return true
}

func (k *link) forget(cs ...net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range cs {
		delete(k.conns, c)
	}
}

// parcel is bytes on their way, due at a time.
type parcel struct {
	bytes []byte
	due   time.Time
}

// pipe carries bytes one way, each as late as the link says when it came in.
func (k *link) pipe(to, from net.Conn) {
	way := make(chan parcel, 256)
	go func() {
		defer close(way)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				way <- parcel{buf[:n], time.Now().Add(time.Duration(k.delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range way {
		if d := time.Until(p.due); d > 0 {
			time.Sleep(d)
		}
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range way { // let the reader end
	}
}

// answer stands in for a standby, whose host daemon holds the peer port while
// no etcd does: enough HTTP for a round trip to be measured.
func (k *link) answer(c net.Conn) {
	buf := make([]byte, 1024)
	for {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(buf); err != nil {
			return
		}
		time.Sleep(2 * time.Duration(k.delay.Load()))
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nstandby\n"); err != nil {
			return
		}
	}
}
