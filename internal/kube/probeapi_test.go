package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/probe"
)

var _ probe.Cluster = (*ProbeAPI)(nil)

// probeServer is an API server as a probe sees it.
type probeServer struct {
	*httptest.Server
	mu     sync.Mutex
	seen   []string
	data   map[string]any // nil: there is no ConfigMap
	leases map[string]string
	status int // not 0: what every answer is
}

func newProbeServer(t *testing.T) (*probeServer, *ProbeAPI) {
	t.Helper()
	s := &probeServer{data: map[string]any{"other": "x"}, leases: map[string]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	conn, err := connect(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, NewProbeAPI(conn, ProbeOptions{Node: "n4"})
}

func (s *probeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	form := "whole"
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		form = "names"
	}
	q := r.URL.Query()
	s.seen = append(s.seen, strings.Join([]string{r.Method, r.URL.Path, q.Get("labelSelector"), q.Get("resourceVersion"), form}, " "))
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	failed := func(code int, reason string) {
		answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
	}
	lease := strings.TrimPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/github-runner-platform/leases")
	switch {
	case s.status != 0:
		failed(s.status, "Forbidden")
	case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("labelSelector") == fleet.LabelEtcd:
		_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+strings.Replace(node("n1"), `"x":"y"`, `"`+fleet.LabelEtcd+`":"true"`, 1)+`]}`)
	case r.URL.Path == "/api/v1/nodes":
		answer(200, map[string]any{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": []any{map[string]any{"metadata": map[string]any{"name": "n4"}}}})
	case strings.HasSuffix(r.URL.Path, "/configmaps/fleet-role-probe"):
		if s.data == nil {
			failed(404, "NotFound")
			return
		}
		if r.Method == http.MethodPatch {
			var patch struct{ Data map[string]any }
			_ = json.Unmarshal(body, &patch)
			for k, v := range patch.Data {
				if s.data[k] = v; v == nil {
					delete(s.data, k)
				}
			}
		}
		answer(200, map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "fleet-role-probe", "resourceVersion": "7"}, "data": s.data})
	case r.Method == http.MethodPatch && s.leases[strings.TrimPrefix(lease, "/")] == "":
		failed(404, "NotFound")
	case r.Method == http.MethodPatch, r.Method == http.MethodPost:
		name := strings.TrimPrefix(lease, "/")
		if name == "" {
			name = "fleet-role-probe-n4" // a create's body is protobuf
		}
		s.leases[name] = string(body)
		answer(200, map[string]any{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": map[string]any{"name": name}})
	default:
		failed(404, "NotFound")
	}
}

func TestAProbeReadsTheNodesThatMatterToIt(t *testing.T) { // R-185-10
	s, p := newProbeServer(t)
	servers, eligible, err := p.Nodes(t.Context())
	if err != nil || len(servers) != 1 || servers[0].Name != "n1" || servers[0].InternalIP != "10.0.0.4" || !slices.Equal(eligible, []string{"n4"}) {
		t.Errorf("%+v, %v, %v", servers, eligible, err)
	}
	want := []string{
		"GET /api/v1/nodes node-role.kubernetes.io/etcd 0 whole",
		"GET /api/v1/nodes github-runner.exadev.com/voter-eligible=true 0 names",
	}
	if !slices.Equal(s.seen, want) {
		t.Errorf("asked %q", s.seen)
	}
}

func TestAProbeWritesItsOwnKey(t *testing.T) { // R-185-01, R-185-09
	s, p := newProbeServer(t)
	size, err := p.PutEntry(t.Context(), "a window")
	if err != nil || size != len("other")+1+len("n4")+len("a window") {
		t.Errorf("the map has %d bytes, %v", size, err)
	}
	if s.data["n4"] != "a window" || s.data["other"] != "x" {
		t.Errorf("%v", s.data)
	}
	if raw, err := p.Entry(t.Context()); err != nil || raw != "a window" {
		t.Errorf("%q, %v", raw, err)
	}
	if err := p.DropEntry(t.Context()); err != nil || len(s.data) != 1 {
		t.Errorf("%v, %v", s.data, err)
	}
	if raw, err := p.Entry(t.Context()); err != nil || raw != "" {
		t.Errorf("%q, %v", raw, err)
	}
}

func TestAProbeMakesNoConfigMap(t *testing.T) { // R-185-28: it has no right to
	s, p := newProbeServer(t)
	s.data = nil
	if raw, err := p.Entry(t.Context()); err != nil || raw != "" {
		t.Errorf("%q, %v", raw, err)
	}
	if _, err := p.PutEntry(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "patch ConfigMap github-runner-platform/fleet-role-probe") {
		t.Errorf("%v", err)
	}
	if err := p.DropEntry(t.Context()); err != nil {
		t.Error(err)
	}
	if slices.ContainsFunc(s.seen, func(c string) bool { return strings.HasPrefix(c, "POST") }) {
		t.Errorf("%q", s.seen)
	}
}

func TestAProbesHeartbeat(t *testing.T) { // safety rule 29
	s, p := newProbeServer(t)
	for n := range uint64(2) {
		if err := p.Beat(t.Context(), hostapi.Beat{BootID: "b", Counter: 7 + n, At: time.Unix(1800000000, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	got := s.leases["fleet-role-probe-n4"]
	for _, part := range []string{`"counter":"8"`, `"boot-id":"b"`, `"app.kubernetes.io/component":"fleet-role-probe"`, `"holderIdentity":"n4"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in %s", part, got)
		}
	}
	if len(s.seen) != 3 {
		t.Errorf("a patch, a create, a patch: %q", s.seen)
	}
}

func TestARefusalNamesTheObject(t *testing.T) { // R-185-10
	s, p := newProbeServer(t)
	s.status = http.StatusForbidden
	for what, call := range map[string]func(context.Context) error{
		"list nodes": func(c context.Context) error { _, _, err := p.Nodes(c); return err },
		"get ConfigMap github-runner-platform/fleet-role-probe":   func(c context.Context) error { _, err := p.Entry(c); return err },
		"patch ConfigMap github-runner-platform/fleet-role-probe": func(c context.Context) error { _, err := p.PutEntry(c, "x"); return err },
		"patch ConfigMap": p.DropEntry,
		"Lease github-runner-platform/fleet-role-probe-n4": func(c context.Context) error { return p.Beat(c, hostapi.Beat{}) },
	} {
		if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
