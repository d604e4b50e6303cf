package sensor

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fitness"
)

// Peer is a voter to connect to.
type Peer struct {
	Node    string // name in the reading
	Address string // host:port
}

// Connected is one connect: the reading, and why it failed.
type Connected struct {
	fitness.Connect
	Fault *Fault
}

// Dial makes a TCP connection; net.Dialer's DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Connect connects to all peers at once and says how long each took until the
// connection stood (R-185-03). It ends with bound: a peer that has not answered
// by then has failed, as one that refuses has. Failures are kept. The
// connection is closed at once; nothing is sent.
func Connect(ctx context.Context, dial Dial, peers []Peer, bound time.Duration) []Connected {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	out := make([]Connected, len(peers))
	var all sync.WaitGroup
	for i, p := range peers {
		all.Go(func() { out[i] = connect(ctx, dial, p) })
	}
	all.Wait()
	return out
}

func connect(ctx context.Context, dial Dial, p Peer) Connected {
	begun := time.Now()
	conn, err := dial(ctx, "tcp", p.Address)
	took := time.Since(begun)
	if err != nil {
		return Connected{
			Connect: fitness.Connect{To: p.Node, Failed: true, Why: why(err)},
			Fault:   faultf(netCode(err), "connect to %s: %v", p.Address, err),
		}
	}
	_ = conn.Close()
	return Connected{Connect: fitness.Connect{To: p.Node, Took: took}}
}

// why is what a failed connect says of the host at the other end. An error that is of
// this host, such as a socket that could not be had, says nothing of that one.
func why(err error) fitness.Failure {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return ""
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return fitness.Refused
	case netCode(err) == CodeTimeout,
		errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return fitness.Unanswered
	}
	return ""
}
