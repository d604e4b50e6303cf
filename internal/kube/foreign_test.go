package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What client-go says of a page is what it could not decode; who answered is not in it.
func TestWhatIsNoKubernetesIsNamed(t *testing.T) {
	const page = "<html><body>please log in</body></html>"
	for _, c := range []struct {
		name         string
		status       int
		kind, body   string
		want, refuse string
	}{
		{"a captive portal", 200, "text/html; charset=utf-8", page, "answers with something that is no Kubernetes: 200 OK, text/html", "login"},
		{"a proxy without a server behind it", 502, "text/html", page, "no Kubernetes: 502 Bad Gateway, text/html", page},
		{"a portal that sends one elsewhere", 302, "text/html", page, "no Kubernetes: 302 Found, text/html", page},
		{"another server's plain text", 200, "text/plain; charset=utf-8", "hello", "no Kubernetes: 200 OK, text/plain", "hello"},
		{"an empty answer without a content type", 200, "-", "", "no Kubernetes: 200 OK, no content type", ""},
		{"a content type that is none", 200, "/", page, "no Kubernetes: 200 OK, /", page},
		{"plain text of an API that is not up", 503, "text/plain", "starting", "", "no Kubernetes"},
		{"a failure without a content type", 500, "-", "", "", "no Kubernetes"},
		{"a Kubernetes", 200, "application/json", `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`, "-", ""},
		{"another server's JSON", 200, "application/json", `{}`, "no Kubernetes: an object without a resource version", ""},
		{"an object of another kind", 200, "application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`, "no Kubernetes: an object without a resource version", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.kind}
				if c.kind == "-" {
					w.Header()["Content-Type"] = nil
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(s.Close)
			_, err := NewClient(connectTo(t, s.URL), Options{}).Nodes(t.Context())
			if c.want == "-" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || c.refuse != "" && strings.Contains(err.Error(), c.refuse) {
				t.Fatalf("it says: %v", err)
			}
			if c.want == "" {
				return
			}
			if n := strings.Count(err.Error(), "no Kubernetes"); n != 1 || !strings.Contains(err.Error(), "the API at "+strings.TrimPrefix(s.URL, "http://")) {
				t.Errorf("said %d times: %v", n, err)
			}
		})
	}
}

// A page at /readyz is no ready API server: the next one is taken.
func TestAServerThatIsNoKubernetesIsLeft(t *testing.T) {
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	}))
	t.Cleanup(portal.Close)
	a := newAPI(t, 3)
	nodes, err := NewClient(connectTo(t, portal.URL, a.URL), Options{}).Nodes(t.Context())
	if err != nil || len(nodes) != 3 {
		t.Errorf("%d nodes, %v", len(nodes), err)
	}
}

func TestDeniedIsWhatNoRetryMends(t *testing.T) {
	for code, want := range map[int]string{401: "the API at 10.0.0.1:6443 does not accept these credentials", 403: "the API at 10.0.0.1:6443 does not allow", 500: "", 503: "", 429: "", 404: ""} {
		err := apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{Resource: "nodes"}, "", "", 0, true)
		if said, ok := Denied(err, "10.0.0.1:6443"); ok != (want != "") || !strings.Contains(said, want) {
			t.Errorf("%d: %q, %t", code, said, ok)
		}
	}
}

// Of several servers one that is no Kubernetes is not the end of it, and of a proxy that
// has lost its server nobody knows.
func TestAnAddressThatIsNoKubernetesIsDeniedOnceNoServerIsLeft(t *testing.T) {
	portal := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		servers []string
		want    bool
	}{
		"a portal":                           {[]string{portal(200)}, true},
		"two portals":                        {[]string{portal(200), portal(404)}, true},
		"a portal and a server that is away": {[]string{portal(200), gone.URL}, false},
		"a proxy without its server":         {[]string{portal(502)}, false},
		"a portal and such a proxy":          {[]string{portal(200), portal(503)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(connectTo(t, c.servers...), Options{}).Nodes(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			if said, denied := Denied(err, ""); denied != c.want {
				t.Errorf("denied %t, %q: %v", denied, said, err)
			}
		})
	}
	t.Run("a portal that takes the place of one of two", func(t *testing.T) {
		a, page := newAPI(t, 3), false
		first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if page {
				w.Header().Set("Content-Type", "text/html")
				return
			}
			a.Config.Handler.ServeHTTP(w, r)
		}))
		t.Cleanup(first.Close)
		k := NewClient(connectTo(t, first.URL, a.URL), Options{})
		if _, err := k.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
		page = true
		_, err := k.Nodes(t.Context())
		if _, denied := Denied(err, ""); err == nil || denied {
			t.Errorf("denied %t: %v", denied, err)
		}
		if nodes, err := k.Nodes(t.Context()); err != nil || len(nodes) != 3 {
			t.Errorf("the other one is not asked: %v", err)
		}
	})
}
