package kube

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// A server behind one address that has lost its etcd answers with errors, and the watch
// that was begun on it stands: it holds the connection, and every request after it went
// to the same server for as long as the watch. The break check: close what is idle alone.
func TestAServerBehindOneAddressIsLeftThoughAWatchStandsOnIt(t *testing.T) { // safety rule 23
	var lost atomic.Bool
	answer := func(lost *atomic.Bool) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Query().Get("watch") != "":
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			case lost != nil && lost.Load():
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request timed out","code":500}`)
			default:
				_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
			}
		}))
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	first, second := answer(&lost), answer(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var conns atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to := second
			if conns.Add(1) == 1 {
				to = first
			}
			go func() {
				defer func() { _ = c.Close() }()
				b, err := net.Dial("tcp", strings.TrimPrefix(to.URL, "https://"))
				if err != nil {
					return
				}
				defer func() { _ = b.Close() }()
				go func() { _, _ = io.Copy(c, b); _ = c.Close() }()
				_, _ = io.Copy(b, c)
			}()
		}
	}()
	conn, err := connect(&rest.Config{Host: "https://" + l.Addr().String(), BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := NewClient(conn, Options{})
	if _, err := k.Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.Wake(t.Context())
	for conn.Transport.Requests() < 4 { // three watches
		if _, err := k.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lost.Store(true)
	for range 20 {
		if _, err = k.Nodes(t.Context()); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("twenty requests, %d connections: %v", conns.Load(), err)
	}
}
