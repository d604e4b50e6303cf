package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// maxHops bounds a chain of ProxyJump.
const maxHops = 8

// Dial makes the runner of a target: this machine, where it is run as root, or a host over
// SSH. What keeps it from that is a [Problem].
func Dial(ctx context.Context, t Target, o Options) (Runner, error) {
	if t.Local {
		if os.Geteuid() != 0 {
			return nil, &Problem{Code: NotRoot, Host: LocalName, Sentence: "this machine: only root may change it (sudo regrade ...)"}
		}
		return local{}, nil
	}
	l, err := connect(ctx, t, o, nil, nil)
	if err != nil {
		return nil, err
	}
	return &sshRunner{link: l}, nil
}

// connect makes the connection to a host, through via where that is given, else through
// the hosts of its ProxyJump. trail are the hosts that wait for it.
func connect(ctx context.Context, t Target, o Options, via *link, trail []string) (_ *link, err error) {
	// Where it fails the way there has nobody who would close it.
	defer func() {
		if err != nil && via != nil {
			via.close()
		}
	}()
	s, err := resolve(t, o)
	if err != nil {
		return nil, err
	}
	if via == nil && len(s.jumps) > 0 {
		if via, err = jump(ctx, s, t, o, trail); err != nil {
			return nil, err
		}
	}
	h, err := readHostKeys(s)
	if err != nil {
		return nil, &Problem{Code: ConfigUnsupported, Host: s.name, Sentence: fmt.Sprintf("%s: %v", s.name, err), Err: err}
	}

	// One bound for the whole: whoever accepts a connection and then says nothing is down.
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("no answer in %s", s.timeout))
	defer cancel()
	conn, err := dialTCP(ctx, s, via)
	if err != nil {
		return nil, s.down(ctx, err)
	}
	k := readKeys(ctx, s)
	defer k.close()
	return handshake(ctx, conn, s, h, k, via)
}

// jump connects to the last host of ProxyJump, through those before it. The first is reached
// by its own configuration, the others only through the one before.
func jump(ctx context.Context, s settings, t Target, o Options, trail []string) (via *link, err error) {
	bad := func(why string) error {
		return &Problem{Code: ConfigUnsupported, Host: s.name, Sentence: fmt.Sprintf("%s: ProxyJump %s: %s", s.name, strings.Join(s.jumps, ","), why)}
	}
	trail = append(trail, t.Host)
	if len(trail)+len(s.jumps) > maxHops {
		return nil, bad("leads in a circle, or over too many hosts: " + strings.Join(trail, ", "))
	}
	var hops []Target
	for _, name := range s.jumps {
		hop, err := ParseTarget(strings.TrimPrefix(strings.TrimSpace(name), "ssh://"))
		if err != nil {
			return nil, bad(err.Error())
		}
		if hop.Local {
			return nil, bad("this machine is no host on the way")
		}
		hops = append(hops, hop)
	}
	for _, hop := range hops {
		if via, err = connect(ctx, hop, o, via, trail); err != nil {
			return nil, err
		}
	}
	return via, nil
}

func dialTCP(ctx context.Context, s settings, via *link) (net.Conn, error) {
	addr := net.JoinHostPort(s.hostName, strconv.Itoa(s.port))
	if via == nil {
		d := net.Dialer{KeepAlive: keepaliveEvery}
		return d.DialContext(ctx, s.network, addr)
	}
	conn, err := via.client.DialContext(ctx, s.network, addr)
	if err != nil {
		return nil, fmt.Errorf("through %s: %w", via.name, err)
	}
	return conn, nil
}

// handshake agrees on keys, checks the host's, and logs in.
func handshake(ctx context.Context, conn net.Conn, s settings, h *hostKeys, k *keys, via *link) (*link, error) {
	heard := &heardConn{Conn: conn}
	heard.note()
	var refused error // what was said against the host's key
	config := &ssh.ClientConfig{
		User: s.user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(k.signers...)},
		HostKeyCallback: func(name string, at net.Addr, key ssh.PublicKey) error {
			refused = h.verify(name, at, key)
			return refused
		},
		HostKeyAlgorithms: h.algorithms(),
		BannerCallback:    func(string) error { return nil },
		ClientVersion:     "SSH-2.0-regrade",
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, chans, reqs, err := ssh.NewClientConn(heard, h.s.keyName, config)
	if !stop() && err == nil {
		// Closed in the last moment.
		_ = c.Close()
		err = context.Cause(ctx)
	}
	switch {
	case refused != nil:
		_ = conn.Close()
		return nil, refused
	case err != nil:
		_ = conn.Close()
		if ctx.Err() == nil && (strings.Contains(err.Error(), "unable to authenticate") || strings.Contains(err.Error(), "ssh: disconnect, reason 2")) {
			return nil, k.refused(s, err)
		}
		return nil, s.down(ctx, err)
	}
	return newLink(ssh.NewClient(c, chans, reqs), heard, s, via), nil
}

// down is the problem of a host that did not answer as an SSH server does.
func (s settings) down(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	addr := net.JoinHostPort(s.hostName, strconv.Itoa(s.port))
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("connect to %s (%s): %w", s.name, addr, err)
	}
	return &Problem{Code: HostDown, Host: s.name, Err: err,
		Sentence: fmt.Sprintf("%s (%s) is not reached: %v", s.name, addr, err)}
}

// Times of a connection: it is given up once nothing was heard for keepaliveGiveUp.
const (
	keepaliveEvery  = 5 * time.Second
	keepaliveGiveUp = 15 * time.Second
)
