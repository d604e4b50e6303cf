package notify

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReadyReachesTheSocketAndChildrenDoNotSeeIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	s, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	if _, set := os.LookupEnv("NOTIFY_SOCKET"); set {
		t.Error("a child would inherit the socket")
	}
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q %v", buf[:n], err)
	}
	if err := Socket("").Ready(); err != nil {
		t.Errorf("without a socket: %v", err)
	}
}
