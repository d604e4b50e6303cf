package peerport_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/platform/peerport"
)

func TestAHeldPortAcceptsAndCloses(t *testing.T) {
	address := free(t)
	p := peerport.Port{Address: address}
	for range 2 {
		if err := p.Hold(true); err != nil || !p.Held() {
			t.Fatal(err)
		}
	}
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	_ = c.Close()
	for range 2 {
		if err := p.Hold(false); err != nil || p.Held() {
			t.Fatal(err)
		}
	}
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		_ = c.Close()
		t.Error("let go, and it answers")
	}
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the end of a test
	p := peerport.Port{Address: l.Addr().String()}
	if err := p.Hold(true); err == nil || p.Held() {
		t.Errorf("held: %v", err)
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only its number is wanted
	return l.Addr().String()
}
