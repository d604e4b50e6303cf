package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/swap"
)

// api is an API server that answers what an idle pass asks.
type api struct {
	mu sync.Mutex
	*httptest.Server
	requests atomic.Int64
	ready    atomic.Bool
	status   atomic.Int64 // 0: as it should
	delay    atomic.Int64 // of each answer, in ns
	paths    chan string
}

const date = "Sun, 29 Nov 2026 12:00:00 GMT"

func newAPI(t *testing.T, nodes int) *api {
	t.Helper()
	a := &api{paths: make(chan string, 1000)}
	a.ready.Store(true)
	list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range nodes {
		list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}})
	}
	cm := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
	}
	own := "/api/v1/namespaces/" + fleet.DefaultNamespace + "/configmaps/"
	held := cm(fleet.ConfigMapStatus)
	answers := map[string]any{
		"GET /api/v1/nodes": list,
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fleet-regrade": &coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"},
		},
		"GET /apis/coordination.k8s.io/v1/namespaces/" + fleet.DefaultNamespace + "/leases": &coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		},
		"GET " + own + fleet.ConfigMapActuators: cm(fleet.ConfigMapActuators),
		"GET " + own + fleet.ConfigMapProbe:     cm(fleet.ConfigMapProbe),
		"GET " + own + fleet.ConfigMapStatus:    held,
		"PATCH " + own + fleet.ConfigMapStatus:  held,
	}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		a.paths <- r.Method + " " + r.URL.Path
		time.Sleep(time.Duration(a.delay.Load()))
		w.Header().Set("Date", date)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/readyz" {
			if !a.ready.Load() || r.Header.Get("Authorization") != "Bearer t" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return
		}
		if s := a.status.Load(); s != 0 {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(int(s))
			return
		}
		body, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404})
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.Method == http.MethodPatch {
			_ = json.NewDecoder(r.Body).Decode(held) // what is written is read again
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(a.Close)
	return a
}

func connectTo(t *testing.T, servers ...string) *Connection {
	t.Helper()
	conn, err := connect(&rest.Config{Host: servers[0], BearerToken: "t"}, servers)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Design §8: at most 6 requests, whatever the number of nodes. Nothing is
// discovered, either: the first pass costs what every pass costs.
func TestAnIdlePassIsAtMostSixRequests(t *testing.T) {
	for _, nodes := range []int{3, 1000} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			a := newAPI(t, nodes)
			conn := connectTo(t, a.URL)
			c := controller.New(NewClient(conn, Options{}), controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove, Judge: decide.Rules{}.Judge},
				controller.Settings{Self: "me", Policy: swap.DefaultPolicy()})
			// The first two write the status, which is so once a minute then.
			for pass, most := range []int64{7, 7, 6} {
				before := conn.Transport.Requests()
				turn := c.Pass(t.Context())
				if turn.Err != nil || turn.PublishErr != nil {
					t.Fatal(turn.Err, turn.PublishErr)
				}
				if got := conn.Transport.Requests() - before; got > most || len(turn.Observation.Hosts) != nodes {
					t.Errorf("pass %d: %d requests, %d hosts", pass, got, len(turn.Observation.Hosts))
				}
			}
			if got := a.requests.Load(); got != conn.Transport.Requests() {
				t.Errorf("the server saw %d requests, the transport counted %d", got, conn.Transport.Requests())
			}
		})
	}
}

func TestTheDateIsTheServers(t *testing.T) { // safety rule 22
	a := newAPI(t, 1)
	conn := connectTo(t, a.URL)
	c := NewClient(conn, Options{})
	if !c.Date().IsZero() {
		t.Error("a Date before the first answer")
	}
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC); !c.Date().Equal(want) {
		t.Errorf("got %s", c.Date())
	}
}

// Safety rule 23: a server is judged by an authenticated /readyz, and one that
// fails is left.
func TestADeadServerIsLeftForOneThatIsReady(t *testing.T) {
	dead, unready, good := newAPI(t, 1), newAPI(t, 1), newAPI(t, 1)
	dead.Close()
	unready.ready.Store(false)
	conn := connectTo(t, dead.URL, unready.URL, good.URL)
	c := NewClient(conn, Options{})
	for range 3 {
		if _, err := c.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if conn.Transport.Server() != good.URL {
		t.Errorf("asked %s", conn.Transport.Server())
	}
	if n := unready.requests.Load(); n != 1 {
		t.Errorf("the one that is not ready was asked %d times, want its /readyz alone", n)
	}
	if n := good.requests.Load(); n != 4 {
		t.Errorf("the good one was asked %d times, want /readyz and three lists", n)
	}
	// It dies: the request that notices fails over, for it never left.
	unready.ready.Store(true)
	good.CloseClientConnections()
	good.Close()
	if _, err := c.Nodes(t.Context()); err != nil {
		if _, err = c.Nodes(t.Context()); err != nil { // a connection that was cut may cost one request
			t.Fatal(err)
		}
	}
	if conn.Transport.Server() != unready.URL {
		t.Errorf("asked %s", conn.Transport.Server())
	}
}

func TestAServerWithoutAQuorumIsLeft(t *testing.T) {
	sick, good := newAPI(t, 1), newAPI(t, 1)
	conn := connectTo(t, sick.URL, good.URL)
	c := NewClient(conn, Options{})
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	sick.status.Store(http.StatusInternalServerError)
	sick.ready.Store(false)
	if _, err := c.Nodes(t.Context()); err == nil {
		t.Error("the answer of a server without a quorum was taken")
	}
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Errorf("the next request did not go to the next server: %v", err)
	}
}

func TestNoServerIsReady(t *testing.T) {
	a, b := newAPI(t, 1), newAPI(t, 1)
	a.Close()
	b.ready.Store(false)
	c := NewClient(connectTo(t, a.URL, b.URL), Options{})
	if _, err := c.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "no API server is ready") {
		t.Errorf("got %v", err)
	}
}

// The client must not sleep on Retry-After: when to ask again is the loop's.
func TestABusyServerIsNotWaitedFor(t *testing.T) {
	a := newAPI(t, 1)
	a.status.Store(http.StatusTooManyRequests)
	c := NewClient(connectTo(t, a.URL), Options{})
	start := time.Now()
	_, err := c.Nodes(t.Context())
	if err == nil || time.Since(start) > 3*time.Second || a.requests.Load() != 1 {
		t.Errorf("got %v after %s and %d requests", err, time.Since(start), a.requests.Load())
	}
}

func TestARequestEndsByItself(t *testing.T) {
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer stuck.Close()
	c := NewClient(connectTo(t, stuck.URL), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // stands for RequestTimeout
	defer cancel()
	start := time.Now()
	if _, err := c.Nodes(ctx); err == nil || time.Since(start) > 3*time.Second {
		t.Errorf("got %v after %s", err, time.Since(start))
	}
	bound, done := bounded(t.Context())
	defer done()
	if end, ok := bound.Deadline(); !ok || time.Until(end) > RequestTimeout {
		t.Errorf("a request may take until %s", end)
	}
}

func TestParseServers(t *testing.T) {
	got, err := ParseServers("10.0.0.1, https://[fd00::1]:7443/,nas:8443,,http://x")
	want := []string{"https://10.0.0.1:6443", "https://[fd00::1]:7443", "https://nas:8443", "http://x:6443"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"ftp://x", "https://", "https://x/path", "https://u:p@x", "://", "https://x:port", ":", "10.0.0.1:", "https://:6443", "u:hunter2@x/y"} {
		if got, err := ParseServers(bad); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q gives %q, %v", bad, got, err)
		}
	}
}

func FuzzParseServers(f *testing.F) {
	f.Add("10.0.0.1,https://[fd00::1]:7443/")
	f.Add("::1")
	f.Fuzz(func(t *testing.T, s string) {
		servers, err := ParseServers(s)
		if err != nil {
			return
		}
		again, err := ParseServers(strings.Join(servers, ","))
		if err != nil || !slices.Equal(servers, again) {
			t.Errorf("%q gives %q, which gives %q, %v", s, servers, again, err)
		}
	})
}

func TestConnectReadsAKubeconfig(t *testing.T) {
	a := newAPI(t, 2)
	file := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
		"clusters: [{name: k, cluster: {server: " + a.URL + "}}]\n" +
		"users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := Connect(Access{Kubeconfig: file, UserAgent: "regrade/test"})
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := NewClient(conn, Options{}).Nodes(t.Context()); err != nil || len(nodes) != 2 {
		t.Errorf("got %d nodes, %v", len(nodes), err)
	}
	for name, access := range map[string]Access{
		"a file that is not there":    {Kubeconfig: file + ".none"},
		"a context that is not there": {Kubeconfig: file, Context: "none"},
		"a server that is none":       {Kubeconfig: file, Servers: []string{"https://"}},
	} {
		if _, err := Connect(access); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	over, err := Connect(Access{Kubeconfig: file, Token: "another", Servers: []string{a.URL, a.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(over, Options{}).Nodes(t.Context()); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("with another token: %v", err)
	}
}

// The server that a person's kubeconfig names may be an agent by now: others are tried then.
func TestAServerThatIsNoneAnyMoreIsLeftForOthers(t *testing.T) {
	gone, good := newAPI(t, 1), newAPI(t, 1)
	gone.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: \"" + gone.URL + "\"}}]\ncontexts: [{name: a, context: {cluster: a}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		a    Access
		want string
	}{
		{Access{Kubeconfig: file, More: []string{gone.URL, good.URL}}, good.URL},
		{Access{Kubeconfig: file, Servers: []string{good.URL}, More: []string{gone.URL}}, good.URL},
		{Access{Kubeconfig: file}, ""},
	} {
		test.a.Token = "t" // a kubeconfig's own is not sent without TLS
		conn, err := Connect(test.a)
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewClient(conn, Options{}).Nodes(t.Context())
		if (err == nil) != (test.want != "") || err == nil && conn.Transport.Server() != test.want {
			t.Errorf("%+v: %v, asked %s", test.a, err, conn.Transport.Server())
		}
	}
}
