package kube

import (
	"testing"
	"time"
)

// Found by auto_swap: the first server of the list was behind the slow link, and
// each pass went through it to the end.
func TestASlowServerIsLeftForAQuickerOne(t *testing.T) {
	slow, quick := newAPI(t, 1), newAPI(t, 1)
	slow.delay.Store(int64(60 * time.Millisecond))
	conn := connectTo(t, slow.URL, quick.URL)
	conn.Transport.pace.limit = 20 * time.Millisecond
	c := NewClient(conn, Options{})
	moved := false
	for range 100 {
		if _, err := c.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if moved = conn.Transport.Server() == quick.URL; moved {
			break
		}
	}
	if !moved {
		t.Fatalf("still asks %s", conn.Transport.Server())
	}
	if n := slow.requests.Load(); n < slowAnswers {
		t.Errorf("left after %d requests: one slow answer is no slow server", n)
	}
}

// Where all are slow the comparison settles nothing and must cost little.
func TestServersThatAreAllSlowAreNotComparedAtEachRequest(t *testing.T) {
	a, b := newAPI(t, 1), newAPI(t, 1)
	a.delay.Store(int64(5 * time.Millisecond))
	b.delay.Store(int64(5 * time.Millisecond))
	conn := connectTo(t, a.URL, b.URL)
	conn.Transport.pace.limit = time.Millisecond
	c := NewClient(conn, Options{})
	const lists = 60
	for range lists {
		if _, err := c.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The first request asks one of them whether it is ready, one comparison both.
	if n := a.requests.Load() + b.requests.Load(); n > lists+3 {
		t.Errorf("%d requests for %d lists", n, lists)
	}
}

func TestAServerThatIsNotReadyIsNoQuickerOne(t *testing.T) { // safety rule 23
	slow, unready := newAPI(t, 1), newAPI(t, 1)
	slow.delay.Store(int64(10 * time.Millisecond))
	unready.ready.Store(false)
	conn := connectTo(t, slow.URL, unready.URL)
	conn.Transport.pace.limit = time.Millisecond
	c := NewClient(conn, Options{})
	for range 20 {
		if _, err := c.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if conn.Transport.Server() != slow.URL {
		t.Errorf("asks %s", conn.Transport.Server())
	}
}
