package entrypoint

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// ask looks who serves on a port. A connection is enough: to join needs no more, and
// not to found a cluster needs less. Every address of the host is tried, since one of
// another family that this host has no way to says nothing.
func ask(ctx context.Context, url, address string) Asked {
	a := Asked{URL: url, Says: Silent}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		a.Why = err.Error()
		return a
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		a.Why = err.Error()
		return a
	}
	nobody, own := false, false
	for _, ip := range ips {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip, port))
		switch {
		case err == nil:
			_ = c.Close()
			a.Says, a.Why = Answers, ""
			return a
		case errors.Is(err, syscall.ECONNREFUSED):
			nobody, own = true, own || ours(ip)
		case !errors.Is(err, syscall.ENETUNREACH) || a.Why == "":
			a.Why = err.Error()
		}
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENETUNREACH) {
			return a // one address in doubt is a host in doubt
		}
	}
	switch {
	case own:
		a.Says, a.Why = Itself, ""
	case nobody:
		a.Says, a.Why = Nobody, ""
	}
	return a
}

// ours says that an address is this host's: the kernel would speak to it from itself.
// Nothing is sent. To a loopback address it speaks from another one of them, and a host's
// own name often has one: Debian's hosts file gives it 127.0.1.1.
func ours(ip string) bool {
	if a, err := netip.ParseAddr(ip); err == nil && (a.Unmap().IsLoopback() || a.Unmap().IsUnspecified()) {
		return true
	}
	c, err := net.Dial("udp", net.JoinHostPort(ip, "9"))
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	from, ok1 := c.LocalAddr().(*net.UDPAddr)
	to, ok2 := c.RemoteAddr().(*net.UDPAddr)
	return ok1 && ok2 && from.IP.Equal(to.IP)
}
