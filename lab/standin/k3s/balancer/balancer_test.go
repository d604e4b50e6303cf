package balancer

import (
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRememberedServersAreLoadedOnlyForTheSameURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "etc", "lb.json")
	if err := store(file, saved{ServerURL: "https://a:6443", ServerAddresses: []string{"b:6443"}}); err != nil {
		t.Fatal(err)
	}
	same, err := load(file, "https://a:6443")
	if err != nil || len(same) != 1 {
		t.Errorf("got %v, %v", same, err)
	}
	other, err := load(file, "https://c:6443")
	if err != nil || other != nil {
		t.Errorf("a changed URL must discard them, got %v, %v", other, err)
	}
}

func TestTheDefaultIsAStandbyWhenItIsNotListed(t *testing.T) {
	p := newPool("d:6443", nil)
	if dropped := p.set(nil); dropped != nil || len(p.order()) != 1 {
		t.Error("an empty list must be ignored")
	}
	p.set([]string{"a:6443", "b:6443"})
	if d := cmp.Diff([]string{"a:6443", "b:6443", "d:6443"}, p.order()); d != "" {
		t.Error(d)
	}
	p.mark("b:6443", active)
	p.mark("a:6443", failed)
	if d := cmp.Diff([]string{"b:6443", "d:6443", "a:6443"}, p.order()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"a:6443", "b:6443"}, p.listed()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"a:6443"}, p.set([]string{"b:6443"})); d != "" {
		t.Error(d)
	}
}

// echo serves a fixed greeting to each connection.
func echo(t *testing.T, greeting string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, greeting)
			_ = c.Close()
		}
	}()
	return l
}

func TestADeadServerIsPassedOver(t *testing.T) {
	dead, live := echo(t, "dead"), echo(t, "live")
	file := filepath.Join(t.TempDir(), "lb.json")
	b, err := Start(t.Context(), "127.0.0.1:0", "https://"+dead.Addr().String(), file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	read := func() string {
		c, err := net.Dial("tcp", b.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		got, err := io.ReadAll(c)
		if err != nil {
			return ""
		}
		return string(got)
	}
	if got := read(); got != "dead" {
		t.Fatalf("got %q", got)
	}
	b.Update([]string{dead.Addr().String(), live.Addr().String()})
	_ = dead.Close()
	if got := read(); got != "live" {
		t.Errorf("got %q", got)
	}
	remembered, err := load(file, "https://"+dead.Addr().String())
	if err != nil || len(remembered) != 2 {
		t.Errorf("remembered %v, %v", remembered, err)
	}
}
