package fault

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/exadev/regrade/lab/host"
)

// Proxy stands between a program on the lab's network and servers of it. It
// can hold what the program sends, as a network does that loses its way for a while:
// nothing is refused, nothing is lost, all of it arrives late.
type Proxy struct {
	listeners []net.Listener
	urls      []string

	mu     sync.Mutex
	open   chan struct{} // closed while bytes may pass
	count  int           // pieces sent since arm
	at     int           // hold from this piece on, 0 for never
	caught chan struct{}
	late   time.Duration         // by which what the program sends arrives later
	closed bool                  // nothing is let in
	conns  map[net.Conn]struct{} // of the program
}

// greeting is how many pieces at the beginning of a connection are never late: those
// of its handshake, so that it is requests that are slow.
const greeting = 3

// NewProxy makes one door for each host's port. It goes with the lab.
func NewProxy(lab *host.Lab, port int, hosts ...*host.Host) (*Proxy, error) {
	p := &Proxy{open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(p.open)
	for _, h := range hosts {
		var l net.Listener
		err := lab.Within(func() error {
			var err error
			l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("proxy of %s: %w", h.Name(), err)
		}
		lab.Defer(func() { _ = l.Close() })
		p.listeners = append(p.listeners, l)
		p.urls = append(p.urls, "https://"+l.Addr().String())
		go p.serve(lab, l, fmt.Sprintf("%s:%d", h.IP(), port))
	}
	return p, nil
}

// URLs of the doors, in the order of the hosts.
func (p *Proxy) URLs() []string { return p.urls }

// Hold lets nothing pass to the servers from now on, in new connections neither.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold()
}

func (p *Proxy) hold() {
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// HoldAt holds from the n-th piece on that the program sends from now; the channel
// is closed when that is on its way.
func (p *Proxy) HoldAt(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.at, p.caught = 0, n, make(chan struct{})
	return p.caught
}

// Release lets everything pass, what was held first.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = 0
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// Slow lets what the program sends arrive so much later from now on, in its order, each
// piece on its own: a request takes at least as long. Zero ends it.
func (p *Proxy) Slow(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
}

// Refuse ends every connection, and each new one at once, until Admit.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Admit ends Refuse.
func (p *Proxy) Admit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
}

// enter notes a connection of the program; false when none is let in.
func (p *Proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) lateness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// gate is open while bytes may pass; each piece sent asks it.
func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at > 0 {
		if p.count++; p.count == p.at {
			p.hold()
			close(p.caught)
		}
	}
	return p.open
}

func (p *Proxy) serve(lab *host.Lab, l net.Listener, to string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			if !p.enter(from) {
				return
			}
			defer p.leave(from)
			<-p.gateOfNew()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			server, err := lab.DialContext(ctx, "tcp", to)
			cancel()
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			go func() {
				p.pass(from, server, p.gateOfNew)
				_ = from.Close()
			}()
			p.passLate(server, from)
		}()
	}
}

// gateOfNew is the gate, without counting.
func (p *Proxy) gateOfNew() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *Proxy) pass(to, from net.Conn, gate func() <-chan struct{}) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			<-gate()
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passLate is pass for what the program sends, each piece as late as Slow says.
func (p *Proxy) passLate(to, from net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	queue := make(chan piece, 1024)
	var sender sync.WaitGroup
	sender.Go(func() {
		for x := range queue {
			time.Sleep(time.Until(x.due))
			if _, err := to.Write(x.data); err != nil {
				_ = from.Close()
			}
		}
	})
	defer sender.Wait()
	defer close(queue)
	buffer := make([]byte, 64<<10)
	for n := 0; ; n++ {
		read, err := from.Read(buffer)
		if read > 0 {
			<-p.gate()
			x := piece{due: time.Now(), data: append([]byte(nil), buffer[:read]...)}
			if n >= greeting {
				x.due = x.due.Add(p.lateness())
			}
			queue <- x
		}
		if err != nil {
			return
		}
	}
}
