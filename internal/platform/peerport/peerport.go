// Package peerport holds etcd's peer port of a host that runs no etcd: it accepts
// and closes, so that the voters can prove the way to a standby before it becomes
// a member (safety rule 17).
package peerport

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Port is one port. The zero value holds nothing and would listen on :2380.
type Port struct {
	// Address is where it listens; empty is :2380.
	Address string

	mu       sync.Mutex
	listener net.Listener
}

// Hold listens, or stops to. Holding twice is one holding.
func (p *Port) Hold(hold bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case hold && p.listener == nil:
		address := p.Address
		if address == "" {
			address = ":2380"
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("hold the peer port: %w", err)
		}
		p.listener = l
		go answer(l)
	case !hold && p.listener != nil:
		err := p.listener.Close()
		p.listener = nil
		if err != nil {
			return fmt.Errorf("let the peer port go: %w", err)
		}
	}
	return nil
}

// Held says whether it listens.
func (p *Port) Held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener != nil
}

// answer accepts and closes until the listener ends.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // out of descriptors, perhaps; nothing says when that is over
			continue
		}
		_ = c.Close()
	}
}
