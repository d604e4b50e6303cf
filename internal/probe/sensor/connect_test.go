package sensor

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fitness"
)

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l.Addr().String())
		defer func() { _ = l.Close() }()
	}
	return out
}

func TestRealListenersAreConnectedTo(t *testing.T) { // R-185-03, R-185-40
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	closed := freePorts(t, 1)[0]
	dial := (&net.Dialer{}).DialContext
	got := Connect(t.Context(), dial, []Peer{{"up", l.Addr().String()}, {"down", closed}, {"odd", "no.such.host.invalid:2380"}}, time.Minute)
	if len(got) != 3 || got[0].To != "up" || got[0].Failed || got[0].Fault != nil || got[0].Took <= 0 {
		t.Errorf("%+v", got)
	}
	if !got[1].Failed || got[1].Fault.Code != CodeRefused || got[1].Why != fitness.Refused {
		t.Errorf("%+v", got[1])
	}
	if !got[2].Failed || got[2].Fault.Code != CodeUnreachable && got[2].Fault.Code != CodeTimeout {
		t.Errorf("%+v", got[2])
	}
}

// All at once, so that slow peers do not add up, and no longer than the bound.
func TestPeersAreConnectedToAtOnceAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := map[string]time.Duration{"a": 30 * time.Millisecond, "b": 4 * time.Second, "c": time.Hour}
		dial := func(ctx context.Context, _, address string) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
			case <-time.After(delays[address]):
			}
			one, other := net.Pipe()
			_ = other.Close()
			return one, nil
		}
		begun := time.Now()
		got := Connect(t.Context(), dial, []Peer{{"a", "a"}, {"b", "b"}, {"c", "c"}}, 5*time.Second)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if got[0].Took != delays["a"] || got[1].Took != delays["b"] || !got[2].Failed || got[2].Fault.Code != CodeTimeout || got[2].Why != fitness.Unanswered {
			t.Errorf("%+v", got)
		}
	})
}

func TestAnErrorThatIsNoFaultIsUnreadable(t *testing.T) {
	if a := AbsenceOf(fitness.ReadingLink, errors.New("x")); a.Code != CodeUnreadable || a.Reading != fitness.ReadingLink {
		t.Errorf("%+v", a)
	}
}

// What a failed connect says of the other end: a refusal that it runs, silence that
// nobody answers there, and a fault of this host nothing.
func TestWhyAConnectFailed(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want fitness.Failure
	}{
		"nothing listens":                         {syscall.ECONNREFUSED, fitness.Refused},
		"the connection is reset":                 {syscall.ECONNRESET, fitness.Refused},
		"the time is over":                        {context.DeadlineExceeded, fitness.Unanswered},
		"the kernel gave up":                      {syscall.ETIMEDOUT, fitness.Unanswered},
		"nobody has that address":                 {syscall.EHOSTUNREACH, fitness.Unanswered},
		"no way to that network":                  {syscall.ENETUNREACH, fitness.Unanswered},
		"the probe is told to end":                {context.Canceled, ""},
		"this host has no socket left":            {syscall.EMFILE, ""},
		"this host's own filter forbids it":       {syscall.EPERM, ""},
		"this host has no address for it":         {syscall.EADDRNOTAVAIL, ""},
		"an address that is a name nobody knows":  {&net.DNSError{Err: "no such host", IsNotFound: true}, ""},
		"a name server that does not answer":      {&net.DNSError{Err: "timeout", IsTimeout: true}, ""},
		"an error that no one has thought of yet": {errors.New("x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			dial := func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: c.err}
			}
			got := Connect(t.Context(), dial, []Peer{{"a", "a"}}, time.Minute)[0]
			if !got.Failed || got.Why != c.want {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}
