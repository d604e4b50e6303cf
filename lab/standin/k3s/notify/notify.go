// Package notify tells systemd that the service is ready (Type=notify).
package notify

import (
	"fmt"
	"net"
	"os"
)

// Ready sends READY=1 to the socket systemd named, once; the variable is then removed so that no child speaks for us.
// Without a socket it does nothing.
func Ready() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("READY=1")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
