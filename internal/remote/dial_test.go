package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// answering is a TCP server that does something with each connection until the test ends.
func answering(t *testing.T, do func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer func() { _ = c.Close() }()
				do(c)
				_, _ = io.Copy(io.Discard, c) // until the other side goes
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); tasks.Wait() })
	return l.Addr().String()
}

func TestAHostThatIsNotThere(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for name, test := range map[string]struct{ addr, says string }{
		"nobody listens":              {gone.Addr().String(), "connection refused"},
		"it says nothing":             {answering(t, func(net.Conn) {}), "no answer in 300ms"},
		"it is no SSH server":         {answering(t, func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); _ = c.Close() }), "handshake"},
		"it ends after its greeting":  {answering(t, func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-x\r\n"); _ = c.Close() }), "handshake"},
		"it stops after its greeting": {answering(t, func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-x\r\n") }), "no answer in 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := ParseTarget(test.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Dial(t.Context(), target, Options{User: "root", Timeout: 300 * time.Millisecond})
			if CodeOf(err) != HostDown || !strings.Contains(fmt.Sprint(err), test.says) || !strings.Contains(fmt.Sprint(err), test.addr) {
				t.Errorf("got %q: %v, want %s that says %q", CodeOf(err), err, HostDown, test.says)
			}
		})
	}
	t.Run("a person breaks off", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		addr := answering(t, func(net.Conn) { cancel() })
		target, _ := ParseTarget(addr)
		if _, err := Dial(ctx, target, Options{User: "root"}); !errors.Is(err, context.Canceled) || CodeOf(err) != "" {
			t.Errorf("got %v", err)
		}
	})
}

func TestOnlyRootIsARunnerOfThisMachine(t *testing.T) {
	r, err := Dial(t.Context(), Target{Local: true}, Options{})
	if root := os.Geteuid() == 0; root != (err == nil) || !root && CodeOf(err) != NotRoot {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestTargets(t *testing.T) {
	for s, want := range map[string]Target{
		"local": {Local: true}, "web1": {Host: "web1"}, "me@web1": {User: "me", Host: "web1"}, "web1:2222": {Host: "web1", Port: 2222},
		"me@corp@web1:22": {User: "me@corp", Host: "web1", Port: 22}, "10.0.0.1": {Host: "10.0.0.1"},
		"[fd00::1]:2222": {Host: "fd00::1", Port: 2222}, "root@[fd00::1]": {User: "root", Host: "fd00::1"}, "fd00::1": {Host: "fd00::1"},
		"local:22": {Host: "local", Port: 22},
	} {
		got, err := ParseTarget(s)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", s, got, err, want)
		}
		if again, err := ParseTarget(got.String()); err != nil || again != got {
			t.Errorf("%q: printed as %q, read as %+v, %v", s, got, again, err)
		}
	}
	for _, s := range []string{
		"", "@web1", "me@", "web1:", "web1:0", "web1:65536", "web1:ssh", "[fd00::1", "[fd00::1]x", "-oProxyCommand=x", "me@-x", "-x@web1",
		"web 1", "web1\n", "$(id)", "a;b", "a/b", "a'b", "*", "!a", "ssh://web1",
	} {
		if got, err := ParseTarget(s); CodeOf(err) != BadTarget {
			t.Errorf("%q: got %+v, %v, want %s", s, got, err, BadTarget)
		}
	}
}

func FuzzATargetThatIsReadIsPrintedAsItself(f *testing.F) {
	for _, s := range []string{"local", "me@web1:22", "[fd00::1]:2222", "a@b@c", "::", "[]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTarget(s)
		if err != nil {
			return
		}
		if again, err := ParseTarget(got.String()); err != nil || again != got {
			t.Errorf("%q: %+v is printed as %q, read as %+v, %v", s, got, got, again, err)
		}
	})
}

// A chain: each host is reached only through the one before, each one's key is checked, and
// all connections end with the runner.
func TestHostsOnTheWay(t *testing.T) {
	needRoot(t)
	hostKey, _ := newKey(t)
	user, private := newKey(t)
	one, two, end := newServer(t, []ssh.Signer{hostKey}, user.PublicKey()), newServer(t, []ssh.Signer{hostKey}, user.PublicKey()), newServer(t, []ssh.Signer{hostKey}, user.PublicKey())
	id := keyFile(t, private, "")
	entry := func(name string, s *server, more string) string {
		host, port, _ := net.SplitHostPort(s.addr)
		return fmt.Sprintf("Host %s\n HostName %s\n Port %s\n %s\n", name, host, port, more)
	}
	seen := func(s *server) int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) }
	all := []string{one.line(hostKey.PublicKey()), two.line(hostKey.PublicKey()), end.line(hostKey.PublicKey())}

	for name, test := range map[string]struct {
		config string
		known  []string
		code   Code
		says   string
	}{
		"one":                           {config: entry("end", end, "ProxyJump two") + entry("two", two, ""), known: all},
		"a chain in one line":           {config: entry("end", end, "ProxyJump one,two") + entry("one", one, "") + entry("two", two, "ProxyJump none-such"), known: all},
		"a chain of configurations":     {config: entry("end", end, "ProxyJump two") + entry("two", two, "ProxyJump one") + entry("one", one, ""), known: all},
		"none":                          {config: entry("end", end, "ProxyJump none"), known: all},
		"by address":                    {config: entry("end", end, "ProxyJump root@"+two.addr), known: all},
		"one whose key is not known":    {config: entry("end", end, "ProxyJump two") + entry("two", two, ""), known: all[2:], code: HostKeyUnknown, says: "two ("},
		"an end whose key is not known": {config: entry("end", end, "ProxyJump two") + entry("two", two, ""), known: all[:2], code: HostKeyUnknown, says: "end ("},
		"a circle":                      {config: entry("end", end, "ProxyJump two") + entry("two", two, "ProxyJump end"), known: all, code: ConfigUnsupported, says: "circle"},
		"itself":                        {config: entry("end", end, "ProxyJump end"), known: all, code: ConfigUnsupported, says: "circle"},
		"this machine":                  {config: entry("end", end, "ProxyJump local"), known: all, code: ConfigUnsupported, says: "this machine"},
		"no name":                       {config: entry("end", end, "ProxyJump two,,"), known: all, code: ConfigUnsupported},
		"an end that is not there":      {config: "Host end\n HostName 127.0.0.1\n Port 1\n ProxyJump two\n" + entry("two", two, ""), known: all, code: HostDown, says: "through two"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{User: "root", KnownHosts: []string{knownHosts(t, test.known...)}, IdentityFiles: []string{id},
				ConfigFiles: []string{write(t, filepath.Join(t.TempDir(), "config"), test.config, 0o600)}}
			before := [...]int{seen(one), seen(two)}
			r, err := Dial(t.Context(), Target{Host: "end"}, o)
			if CodeOf(err) != test.code || err != nil && test.code == "" {
				t.Fatalf("got %q: %v, want %q", CodeOf(err), err, test.code)
			}
			if err != nil {
				if !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v does not say %q", err, test.says)
				}
				return
			}
			defer func() { _ = r.Close() }()
			got, err := r.Run(t.Context(), Command{Argv: []string{"echo", "through"}})
			if err != nil || string(got.Out) != "through\n" {
				t.Errorf("got %q, %v", got.Out, err)
			}
			want := [...]int{before[0], before[1]}
			if strings.Contains(name, "chain") {
				want[0]++
			}
			if name != "none" {
				want[1]++
			}
			if got := [...]int{seen(one), seen(two)}; got != want {
				t.Errorf("connections to one and two: %v, want %v", got, want)
			}
		})
	}
}
