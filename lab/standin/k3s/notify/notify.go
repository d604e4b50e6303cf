// Package notify tells systemd that the service is ready (Type=notify).
package notify

import (
	"fmt"
	"net"
	"os"
)

// Socket is where systemd waits for the message; empty where nobody does.
type Socket string

// Take reads the socket from the environment and removes it there, so that no child says READY in our place: the
// apiserver and the kubelet both would.
func Take() (Socket, error) {
	s := Socket(os.Getenv("NOTIFY_SOCKET"))
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return "", fmt.Errorf("notify systemd: %w", err)
	}
	return s, nil
}

// Ready sends READY=1. Without a socket it does nothing.
func (s Socket) Ready() error {
	if s == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: string(s), Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("READY=1")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
