package kube

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// hostServer is an API server with the few objects a host daemon touches.
type hostServer struct {
	*httptest.Server
	t  *testing.T
	mu sync.Mutex
	// down: it answers TLS and /ping but no API, as an etcd-only server does.
	down   bool
	beats  map[string]map[string]any
	data   map[string]string
	seen   []string
	events chan string
}

const lease1 = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"fleet-regrade","resourceVersion":"7","namespace":"kube-system","annotations":{"swap-id":"20261129T120000Z-a-d"}},"spec":{"holderIdentity":"fleet-role","leaseDurationSeconds":900,"renewTime":"2026-11-29T12:00:00.000000Z"}}`

func node(name string) string {
	return `{"kind":"Node","apiVersion":"v1","metadata":{"name":"` + name + `","resourceVersion":"7","labels":{"x":"y"}},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.4"}],"nodeInfo":{"kubeletVersion":"v1.36.3+k3s1"}}}`
}

func newHostServer(t *testing.T) *hostServer {
	s := &hostServer{t: t, beats: map[string]map[string]any{}, data: map[string]string{}, events: make(chan string, 4)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *hostServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	down := s.down
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if down {
		http.Error(w, "apiserver disabled", http.StatusServiceUnavailable)
		return
	}
	answer := func(code int, body string) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
	const missing = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	switch p := r.URL.Path; {
	case p == "/readyz":
		answer(200, "ok")
	case p == "/api/v1/nodes" && r.URL.Query().Get("watch") != "":
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case e := <-s.events:
				_, _ = w.Write([]byte(e + "\n"))
				w.(http.Flusher).Flush()
			}
		}
	case p == "/api/v1/nodes" && r.URL.Query().Get("continue") == "":
		answer(200, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"more"},"items":[`+node("d")+`]}`)
	case p == "/api/v1/nodes":
		answer(200, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+node("a")+`]}`)
	case p == "/api/v1/nodes/d":
		answer(200, node("d"))
	case p == "/api/v1/nodes/z":
		answer(404, missing)
	case strings.HasSuffix(p, "/leases/fleet-regrade"):
		answer(200, lease1)
	case strings.HasSuffix(p, "/configmaps/fleet-role-actuators") && r.Method == http.MethodPatch:
		var patch struct{ Data map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			s.t.Error(err)
		}
		s.mu.Lock()
		for k, v := range patch.Data {
			s.data[k] = v
		}
		s.mu.Unlock()
		answer(200, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fleet-role-actuators","namespace":"github-runner-platform"}}`)
	case strings.Contains(p, "/github-runner-platform/leases"):
		s.mu.Lock()
		defer s.mu.Unlock()
		name := p[strings.LastIndexByte(p, '/')+1:]
		if r.Method == http.MethodPatch && s.beats[name] == nil {
			answer(404, missing)
			return
		}
		if r.Method == http.MethodPost {
			name = fleet.HeartbeatName("d")
			s.beats[name] = map[string]any{"created": true}
		} else if err := json.NewDecoder(r.Body).Decode(ptr(s.beats, name)); err != nil {
			s.t.Error(err)
		}
		answer(200, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"`+name+`","namespace":"github-runner-platform"}}`)
	default:
		answer(404, missing)
	}
}

func ptr(m map[string]map[string]any, name string) *map[string]any {
	v := map[string]any{}
	m[name] = v
	return &v
}

func (s *hostServer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func hostAPI(t *testing.T, node string, own []string, servers ...string) *HostAPI {
	t.Helper()
	conn := func(servers []string) *Connection {
		c, err := connect(&rest.Config{Host: servers[0], BearerToken: "x"}, servers)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	others := slices.DeleteFunc(slices.Clone(servers), func(s string) bool { return slices.Contains(own, s) })
	var second *Connection
	if len(others) > 0 {
		second = conn(others)
	}
	return newHostAPI(conn(servers), second, HostOptions{Node: node})
}

func TestReadIsAQuorumReadWithTheServersDate(t *testing.T) { // safety rules 22, 23
	s := newHostServer(t)
	v, err := hostAPI(t, "d", nil, s.URL).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Self == nil || v.Self.InternalIP != "10.0.0.4" || v.Server != s.URL || time.Since(v.Date).Abs() > time.Minute {
		t.Errorf("view: %+v", v)
	}
	if v.Lease.SwapID() != "20261129T120000Z-a-d" || v.Lease.Duration != 900*time.Second {
		t.Errorf("lease: %+v", v.Lease)
	}
	for _, r := range s.log() {
		if strings.Contains(r, "resourceVersion") {
			t.Errorf("not a quorum read: %s", r)
		}
	}
}

func TestANodeThatIsNotThereIsNone(t *testing.T) {
	s := newHostServer(t)
	v, err := hostAPI(t, "z", nil, s.URL).Read(t.Context())
	if err != nil || v.Self != nil {
		t.Errorf("%+v %v", v.Self, err)
	}
}

func TestAServerThatCannotServeIsLeft(t *testing.T) { // safety rule 23
	a, b := newHostServer(t), newHostServer(t)
	h := hostAPI(t, "d", nil, a.URL, b.URL)
	if v, err := h.Read(t.Context()); err != nil || v.Server != a.URL {
		t.Fatal(v.Server, err)
	}
	a.mu.Lock()
	a.down = true
	a.mu.Unlock()
	if _, err := h.Read(t.Context()); err == nil {
		t.Fatal("a 503 was taken for an answer")
	}
	if v, err := h.Read(t.Context()); err != nil || v.Server != b.URL {
		t.Errorf("%s %v", v.Server, err)
	}
	b.mu.Lock()
	b.down = true
	b.mu.Unlock()
	for range 2 {
		if _, err := h.Read(t.Context()); err == nil {
			t.Error("nobody is ready")
		}
	}
}

func TestALeavingHostAvoidsItsOwnServer(t *testing.T) { // safety rule 23
	own, other := newHostServer(t), newHostServer(t)
	h := hostAPI(t, "d", []string{own.URL}, own.URL, other.URL)
	h.Avoid(true)
	if v, err := h.Read(t.Context()); err != nil || v.Server != other.URL {
		t.Errorf("%s %v", v.Server, err)
	}
	if n := len(own.log()); n != 0 {
		t.Errorf("its own server was asked %d times", n)
	}
	alone := hostAPI(t, "d", []string{own.URL}, own.URL)
	alone.Avoid(true)
	if _, err := alone.Read(t.Context()); err == nil {
		t.Error("with no other server it asked its own")
	}
}

func TestReportAndHeartbeat(t *testing.T) { // R-D1-07, safety rule 29
	s := newHostServer(t)
	h := hostAPI(t, "d", nil, s.URL)
	if err := h.WriteReport(t.Context(), status.Report{Protocol: 1, BootID: "b", Counter: 3}); err != nil {
		t.Fatal(err)
	}
	if r, err := status.ParseReport([]byte(s.data["d"])); err != nil || r.Counter != 3 || len(s.data) != 1 {
		t.Errorf("%v %v", s.data, err)
	}
	beat := hostapi.Beat{BootID: "b", Counter: 3, At: time.Unix(1e9, 0)}
	for range 2 {
		if err := h.WriteHeartbeat(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := json.Marshal(s.beats["fleet-role-host-d"])
	for _, want := range []string{`"counter":"3"`, `"boot-id":"b"`, `"fleet-role-host"`, `"renewTime":"2001-09-09T01:46:40.000000Z"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("heartbeat %s lacks %s", got, want)
		}
	}
}

func TestNodesAreListedInPagesAndFollowed(t *testing.T) {
	s := newHostServer(t)
	h := hostAPI(t, "d", nil, s.URL)
	if _, err := h.Nodes(t.Context()); err == nil {
		t.Error("an empty cluster before anything was listed")
	}
	go h.Watch(t.Context())
	names := func() string {
		list, _ := h.Nodes(t.Context())
		var all []string
		for _, n := range list {
			all = append(all, n.Name+n.Annotations["k"])
		}
		return strings.Join(all, " ")
	}
	wait := func(want string) {
		t.Helper()
		for range 200 {
			if names() == want {
				return
			}
			select {
			case <-h.Changed():
			case <-time.After(50 * time.Millisecond):
			}
		}
		t.Fatalf("nodes %q, want %q", names(), want)
	}
	wait("a d")
	s.events <- `{"type":"MODIFIED","object":` + strings.Replace(node("a"), `"labels"`, `"annotations":{"k":"1"},"labels"`, 1) + `}`
	wait("a1 d")
	s.events <- `{"type":"DELETED","object":` + node("a") + `}`
	wait("d")
}

func TestOwnAddressesAreLeftOut(t *testing.T) {
	h, err := ConnectHost(Access{Kubeconfig: writeKubeconfig(t), Servers: []string{"https://10.0.0.1:6443", "https://10.0.0.4:6443"}}, HostOptions{Node: "d", Own: []string{"10.0.0.4"}})
	if err != nil {
		t.Fatal(err)
	}
	h.Avoid(true)
	c, err := h.conn()
	if err != nil {
		t.Fatal(err)
	}
	if u, _ := url.Parse(c.Transport.Server()); u.Hostname() != "10.0.0.1" {
		t.Error(u)
	}
	if _, err := ConnectHost(Access{}, HostOptions{}); err == nil {
		t.Error("no servers were accepted")
	}
}

func writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/kubeconfig"
	content := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":{"server":"https://10.0.0.1:6443"}}],"users":[{"name":"u","user":{"token":"x"}}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
