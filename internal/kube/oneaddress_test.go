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

// The shipped Deployment reaches the API by the Service's one address, and each connection to it stays with
// the server that it was given to. A server that answers with an error of its own (an etcd-only one: 503, for as
// long as its member is not removed) is to be left: with one address that means another connection.
func TestAServerBehindOneAddressIsLeftWhenItIsNoAPIServer(t *testing.T) {
	answer := func(code int, body string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}))
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	etcdOnly := answer(http.StatusServiceUnavailable, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"apiserver is disabled","code":503}`)
	full := answer(http.StatusOK, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
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
			to := full
			if conns.Add(1) == 1 {
				to = etcdOnly // the endpoint is stale: the first connection goes to the host that has just restarted
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
	url := "https://" + l.Addr().String()
	conn, err := connect(&rest.Config{Host: url, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := NewClient(conn, Options{})
	for range 20 {
		if _, err = k.Nodes(t.Context()); err == nil {
			return
		}
	}
	t.Errorf("twenty requests, %d connection: %v", conns.Load(), err)
}
