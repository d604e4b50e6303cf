// Package netx opens listeners the way k3s does and finds this host's address (k3s facts §1.1, §3.5).
package netx

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen opens a TCP listener with SO_REUSEPORT and SO_REUSEADDR: two k3s processes on one host do not fail here, the
// kernel spreads connections over both.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var opErr error
		err := c.Control(func(fd uintptr) {
			if opErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); opErr == nil {
				opErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
		})
		if err != nil {
			return err
		}
		return opErr
	}}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// DefaultIP is the address of the interface that has the default route.
func DefaultIP() (string, error) {
	f, err := os.Open("/proc/net/route")
	if err != nil {
		return "", fmt.Errorf("read routes: %w", err)
	}
	name, err := defaultRoute(f)
	_ = f.Close()
	if err != nil {
		return "", err
	}
	return InterfaceIP(name)
}

// defaultRoute reads /proc/net/route and gives the interface of the default route with the lowest metric.
func defaultRoute(r io.Reader) (string, error) {
	best, name := -1, ""
	for s := bufio.NewScanner(r); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		metric, err := strconv.Atoi(f[6])
		if err != nil {
			continue
		}
		if best < 0 || metric < best {
			best, name = metric, f[0]
		}
	}
	if name == "" {
		return "", fmt.Errorf("no default routes found in \"/proc/net/route\"; set --node-ip")
	}
	return name, nil
}

// InterfaceIP is the first IPv4 address of an interface.
func InterfaceIP(name string) (string, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", name, err)
	}
	addrs, err := iface.Addrs()
	if err != nil {
		return "", fmt.Errorf("addresses of %s: %w", name, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("interface %s has no IPv4 address", name)
}
