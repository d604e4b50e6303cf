package kube

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/exadev/regrade/internal/fleet"
)

// A kubeconfig of another cluster meets a server with another CA's certificate: to ask
// it again mends nothing. Of several servers another one may be the right one.
func TestAServerThatTheConfigurationDoesNotKnowIsDenied(t *testing.T) {
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	secure, clear := httptest.NewTLSServer(page), httptest.NewServer(page)
	t.Cleanup(secure.Close)
	t.Cleanup(clear.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	known := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(known)
	clearText := strings.Replace(clear.URL, "http:", "https:", 1)
	for name, c := range map[string]struct {
		ca      []byte
		name    string
		servers []string
		want    bool
	}{
		"a certificate of another CA":                {nil, "", []string{secure.URL}, true},
		"a certificate of another name":              {known, "another", []string{secure.URL}, true},
		"no TLS at all":                              {nil, "", []string{clearText}, true},
		"two that it does not know":                  {nil, "", []string{secure.URL, clearText}, true},
		"one that it does not know, and one away":    {nil, "", []string{secure.URL, gone.URL}, false},
		"one that is away, and one it does not know": {nil, "", []string{gone.URL, secure.URL}, false},
		"one that is away":                           {nil, "", []string{gone.URL}, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := connect(&rest.Config{Host: c.servers[0], TLSClientConfig: rest.TLSClientConfig{CAData: c.ca, ServerName: c.name}}, c.servers)
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewClient(conn, Options{}).Nodes(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			said, denied := Denied(err, "")
			if denied != c.want || denied && !strings.Contains(said, strings.TrimPrefix(c.servers[0], "https://")+" is not the one that this configuration knows") {
				t.Errorf("denied %t, %q: %v", denied, said, err)
			}
		})
	}
}

// Safety rules 24 and 25: what another server answers in JSON is not an empty cluster.
func TestAnObjectThatNoKubernetesGaveIsNoEmptyOne(t *testing.T) {
	for name, body := range map[string]string{
		"another server's JSON":     `{"ok":true}`,
		"an object of another kind": `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"7"}}`,
		"a success":                 `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(body))
			}))
			t.Cleanup(s.Close)
			k := NewClient(connectTo(t, s.URL), Options{})
			_, err := k.Nodes(t.Context())
			_, there, errNode := k.Node(t.Context(), "n1")
			_, errMap := k.ConfigMap(t.Context(), fleet.ConfigMapStatus)
			_, errLease := k.Lease(t.Context())
			for what, err := range map[string]error{"Nodes": err, "Node": errNode, "ConfigMap": errMap, "Lease": errLease} {
				if _, denied := Denied(err, ""); !denied || there {
					t.Errorf("%s: denied %t, %v", what, denied, err)
				}
			}
		})
	}
}

func TestAServersURLHasASchemeThatIsSpoken(t *testing.T) {
	for url, want := range map[string]bool{"https://a:6443": true, "http://a": true, "a:6443": false, "ftp://a": false, "https://": false, "unix:///run/x": false} {
		if _, err := newTransport([]string{url}); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
	}
}
