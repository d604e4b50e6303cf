package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// badAPI is an API server behind the client's own transport, so that it lives in a
// synctest bubble and time costs nothing. It answers what it is told to.
type badAPI struct {
	mu     sync.Mutex
	answer func(*http.Request) (*http.Response, error) // nil: as it should
	seen   []string
	lasted []time.Duration // how long each request took, watches left out
	live   []*io.PipeWriter
}

func (a *badAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.seen = append(a.seen, req.Method+" "+req.URL.Path)
	answer, began := a.answer, time.Now()
	a.mu.Unlock()
	watches := req.URL.Query().Get("watch") != ""
	if !watches {
		defer func() {
			a.mu.Lock()
			a.lasted = append(a.lasted, time.Since(began))
			a.mu.Unlock()
		}()
	}
	if answer != nil {
		if resp, err := answer(req); resp != nil || err != nil {
			return resp, err
		}
	}
	if watches {
		return a.stream(req), nil
	}
	return good(req), nil
}

func (a *badAPI) set(answer func(*http.Request) (*http.Response, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

func (a *badAPI) count(prefix string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.seen {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (a *badAPI) longest() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Max(append(a.lasted, 0))
}

func respond(req *http.Request, code int, body string) *http.Response {
	h := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req}
}

const someNode = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","resourceVersion":"7"}}`

// good is what a healthy server answers.
func good(req *http.Request) *http.Response {
	typed := func(o any) *http.Response {
		raw, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		return respond(req, 200, string(raw))
	}
	switch path := req.URL.Path; {
	case path == "/readyz":
		return respond(req, 200, "ok")
	case strings.HasSuffix(path, "/nodes"):
		return respond(req, 200, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`+someNode+`]}`)
	case strings.Contains(path, "/nodes/"):
		return respond(req, 200, someNode)
	case strings.HasSuffix(path, "/leases"):
		return typed(&coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"}})
	case strings.Contains(path, "/leases/"):
		return typed(&coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: fleet.LeaseNamespace, Name: fleet.LeaseName, ResourceVersion: "7"}})
	case strings.Contains(path, "/configmaps/"):
		return typed(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "7"}})
	case strings.HasSuffix(path, "/pods"):
		return typed(&corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
	}
	return respond(req, 404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
}

// stream is a watch that says nothing until it is cut or its client goes.
func (a *badAPI) stream(req *http.Request) *http.Response {
	r, w := io.Pipe()
	a.mu.Lock()
	a.live = append(a.live, w)
	a.mu.Unlock()
	context.AfterFunc(req.Context(), func() { _ = w.CloseWithError(req.Context().Err()) })
	resp := respond(req, 200, "")
	resp.Body, resp.ContentLength = r, -1
	return resp
}

// cut ends every watch, with a last event when there is one.
func (a *badAPI) cut(last string) {
	a.mu.Lock()
	live := a.live
	a.live = nil
	a.mu.Unlock()
	for _, w := range live {
		if last != "" {
			_, _ = io.WriteString(w, last)
		}
		_ = w.Close()
	}
}

func hangs(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func says(code int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		resp := respond(req, code, body)
		for i := 0; i+1 < len(headers); i += 2 {
			resp.Header.Set(headers[i], headers[i+1])
		}
		return resp, nil
	}
}

func takes(d time.Duration) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil, nil
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// only lets a request through that is not one of those.
func only(bad func(*http.Request) bool, answer func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		if bad(req) {
			return answer(req)
		}
		return nil, nil
	}
}

func watching(req *http.Request) bool { return req.URL.Query().Get("watch") != "" }

func failure(code int, reason metav1.StatusReason) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code)
}

// stalls is a body of which the second half never comes.
type stalls struct {
	io.Reader
	ctx context.Context
}

func (s stalls) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p); err == nil {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (s stalls) Close() error { return nil }

// badAnswers are the ways in which an API server can fail a request, and what is
// then said.
var badAnswers = map[string]struct {
	answer func(*http.Request) (*http.Response, error)
	words  string
}{
	// The client asks again by itself after a cut connection, within the same time.
	"it hangs":              {hangs, "deadline exceeded"},
	"it answers 500":        {says(500, failure(500, metav1.StatusReasonInternalError)), "no"},
	"it answers 503":        {says(503, "apiserver not ready"), ""},
	"it answers 429":        {says(429, failure(429, metav1.StatusReasonTooManyRequests), "Retry-After", "60"), "no"},
	"it answers 504":        {says(504, failure(504, metav1.StatusReasonTimeout)), "no"},
	"it answers 403":        {says(403, failure(403, metav1.StatusReasonForbidden)), "no"},
	"it closes connections": {func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, "unexpected EOF"},
	"its JSON ends too early": {func(req *http.Request) (*http.Response, error) {
		return respond(req, 200, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resour`), nil
	}, ""},
	"its body ends too early": {func(req *http.Request) (*http.Response, error) {
		resp := respond(req, 200, "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"kind":"Node`), errReader{io.ErrUnexpectedEOF}))
		return resp, nil
	}, "unexpected EOF"},
	"its body never ends": {func(req *http.Request) (*http.Response, error) {
		resp := respond(req, 200, "")
		resp.Body = stalls{strings.NewReader(`{"kind":"Node`), req.Context()}
		return resp, nil
	}, "deadline exceeded"},
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func badConnection(t *testing.T, a *badAPI, servers ...string) *Connection {
	t.Helper()
	if len(servers) == 0 {
		servers = []string{"http://one"}
	}
	conn, err := connect(&rest.Config{Host: servers[0], BearerToken: "t", Transport: a}, servers)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Safety rule 23, issue 3 (bad input): each request ends within five seconds
// whatever the server does, and the error says what was asked of what.
func TestEachRequestEndsWithinFiveSeconds(t *testing.T) {
	calls := map[string]func(context.Context, *Client) error{
		"list nodes":  func(ctx context.Context, c *Client) error { _, err := c.Nodes(ctx); return err },
		"get node n1": func(ctx context.Context, c *Client) error { _, _, err := c.Node(ctx, "n1"); return err },
		"get Lease":   func(ctx context.Context, c *Client) error { _, err := c.Lease(ctx); return err },
		"ConfigMap":   func(ctx context.Context, c *Client) error { _, err := c.ConfigMap(ctx, "m"); return err },
		"heartbeat":   func(ctx context.Context, c *Client) error { _, err := c.Heartbeats(ctx); return err },
		"list pods":   func(ctx context.Context, c *Client) error { _, err := c.Pods(ctx, "n1"); return err },
		"evict pod a/p": func(ctx context.Context, c *Client) error {
			refusal, err := c.TryEvict(ctx, observe.Pod{Namespace: "a", Name: "p"})
			if refusal != "" {
				return fmt.Errorf("taken for a budget: %s", refusal)
			}
			return err
		},
		"create event on node n1": func(ctx context.Context, c *Client) error { return c.Tell(ctx, status.Event{Node: "n1"}) },
		"kube-node-lease":         func(ctx context.Context, c *Client) error { _, err := c.KubeletRenewed(ctx, "n1"); return err },
		"snapshot":                func(ctx context.Context, c *Client) error { _, err := c.Snapshots(ctx); return err },
		"node n1": func(ctx context.Context, c *Client) error {
			return c.PatchNode(ctx, "n1", "7", execute.NodePatch{Unschedulable: new(true)})
		},
		"Lease": func(ctx context.Context, c *Client) error {
			return c.PutLease(ctx, "7", lease.Lease{Exists: true, Holder: "x"})
		},
		"patch ConfigMap": func(ctx context.Context, c *Client) error {
			return c.PatchConfigMap(ctx, "m", "7", map[string]*string{"k": new("v")})
		},
	}
	for how, bad := range badAnswers {
		t.Run(how, func(t *testing.T) {
			for what, call := range calls {
				synctest.Test(t, func(t *testing.T) {
					a := &badAPI{answer: bad.answer}
					began := time.Now()
					err := call(t.Context(), NewClient(badConnection(t, a), Options{}))
					if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), bad.words) {
						t.Errorf("%s: %v, want %q and %q in it", what, err, what, bad.words)
					}
					if took := time.Since(began); took > RequestTimeout || len(a.seen) != 1 && how != "it closes connections" {
						t.Errorf("%s took %s and %d requests", what, took, len(a.seen))
					}
					if errors.Is(err, execute.ErrConflict) {
						t.Errorf("%s: taken for a lost race: %v", what, err)
					}
				})
			}
		})
	}
}

// Issue 3, bad input: whatever an API server does in the middle of a swap, a pass
// ends, nothing is written, and what it waits for is named.
func TestAPassOnABadAPIWritesNothingAndNamesWhy(t *testing.T) {
	for how, bad := range badAnswers {
		for _, at := range []string{"/nodes", "/leases/fleet-regrade", "/configmaps/" + fleet.ConfigMapActuators, "/configmaps/" + fleet.ConfigMapStatus, ""} {
			t.Run(how+" at "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := &badAPI{answer: only(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, at) }, bad.answer)}
					c := controller.New(NewClient(badConnection(t, a), Options{}), controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove},
						controller.Settings{Self: "me", Policy: swap.DefaultPolicy()})
					turn := c.Pass(t.Context())
					if turn.Acted || turn.Decision.Acts() {
						t.Errorf("it acted: %+v", turn.Decision)
					}
					if turn.Err == nil && len(turn.Observation.Missing) == 0 {
						t.Error("nothing says what is missing")
					}
					for _, s := range a.seen {
						if !strings.HasPrefix(s, "GET ") && !strings.HasSuffix(s, "/configmaps/"+fleet.ConfigMapStatus) {
							t.Errorf("it wrote: %s", s)
						}
					}
					if took := a.longest(); took > RequestTimeout {
						t.Errorf("a request took %s", took)
					}
				})
			})
		}
	}
}

// An API that takes four seconds for each answer is slow, and no more: what needs
// two requests gets both.
func TestASlowAPIIsGoodEnough(t *testing.T) {
	for what, call := range map[string]func(context.Context, *Connection) error{
		"a Node is patched": func(ctx context.Context, c *Connection) error {
			return NewClient(c, Options{}).PatchNode(ctx, "n1", "7", execute.NodePatch{Unschedulable: new(true)})
		},
		"the Lease is renewed": func(ctx context.Context, c *Connection) error {
			return NewClient(c, Options{}).PutLease(ctx, "7", lease.Lease{Exists: true, Holder: "x"})
		},
		"a host reads its Node and the Lease": func(ctx context.Context, c *Connection) error {
			_, err := newHostAPI(c, c, HostOptions{Node: "n1"}).Read(ctx)
			return err
		},
		"a first heartbeat is made": func(ctx context.Context, c *Connection) error {
			return newHostAPI(c, c, HostOptions{Node: "n1"}).WriteHeartbeat(ctx, hostapi.Beat{BootID: "b", Counter: 1, At: time.Now()})
		},
		"a report is written": func(ctx context.Context, c *Connection) error {
			return newHostAPI(c, c, HostOptions{Node: "n1"}).WriteReport(ctx, status.Report{})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := takes(4 * time.Second)
				a := &badAPI{answer: func(req *http.Request) (*http.Response, error) {
					if resp, err := slow(req); resp != nil || err != nil {
						return resp, err
					}
					switch {
					case req.Method == http.MethodPatch && strings.Contains(req.URL.Path, fleet.HeartbeatName("n1")):
						return respond(req, 404, failure(404, metav1.StatusReasonNotFound)), nil
					case req.Method == http.MethodPost:
						body, _ := io.ReadAll(req.Body)
						resp := respond(req, 201, "")
						resp.Header.Set("Content-Type", req.Header.Get("Content-Type"))
						resp.Body = io.NopCloser(bytes.NewReader(body))
						return resp, nil
					}
					return nil, nil
				}}
				if err := call(t.Context(), badConnection(t, a)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// With several servers each is asked first whether it is ready; when all are slow
// about it, one is given the time, and the next request is answered.
func TestSeveralSlowServersAreGoodEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &badAPI{answer: takes(4 * time.Second)}
		conn := badConnection(t, a, "http://one", "http://two")
		c := NewClient(conn, Options{})
		failed := 0
		for ; failed < 10; failed++ {
			if _, err := c.Nodes(t.Context()); err == nil {
				break
			} else if !strings.Contains(err.Error(), "deadline exceeded") {
				t.Fatal(err)
			}
		}
		if failed > 2 {
			t.Errorf("%d requests failed before one was answered", failed)
		}
		for range 5 {
			if _, err := c.Nodes(t.Context()); err != nil {
				t.Error(err)
			}
		}
		// One of them hangs now: it is left for the other.
		hung := strings.TrimPrefix(conn.Transport.Server(), "http://")
		a.set(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == hung {
				return hangs(req)
			}
			return nil, nil
		})
		if _, err := c.Nodes(t.Context()); err == nil {
			t.Error("a server that hangs answered")
		}
		if _, err := c.Nodes(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Safety rule 23: watches only wake. One that is cut, that has been too long ago
// ("410 Gone"), that is refused or that nobody answers is begun again, and the news
// of that time wakes.
func TestAWatchIsBegunAgain(t *testing.T) {
	gone := `{"type":"ERROR","object":` + failure(410, metav1.StatusReasonExpired) + "}\n"
	for how, spoil := range map[string]func(*badAPI){
		"it is cut":               func(a *badAPI) { a.cut("") },
		"the version is gone":     func(a *badAPI) { a.cut(gone) },
		"its JSON ends too early": func(a *badAPI) { a.cut(`{"type":"MODIFIED","object":{"ki`) },
		"it is refused for a while": func(a *badAPI) {
			a.set(only(watching, says(403, failure(403, metav1.StatusReasonForbidden))))
			a.cut("")
		},
		"the list is refused as too old": func(a *badAPI) { a.set(only(watching, says(410, failure(410, metav1.StatusReasonExpired)))); a.cut("") },
		"nobody answers for a while":     func(a *badAPI) { a.set(only(watching, hangs)); a.cut("") },
		"the server is too busy for a while": func(a *badAPI) {
			a.set(only(watching, says(429, failure(429, metav1.StatusReasonTooManyRequests), "Retry-After", "60")))
			a.cut("")
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				a := &badAPI{}
				wake := NewClient(badConnection(t, a), Options{}).Wake(ctx)
				synctest.Wait()
				before := a.watches()
				if before != 3 {
					t.Fatalf("%d watches", before)
				}
				spoil(a)
				time.Sleep(20 * time.Second)
				a.set(nil)
				time.Sleep(RequestTimeout + rewatchAfter + time.Second)
				synctest.Wait()
				if n := a.open(); n != 3 {
					t.Errorf("%d watches stand, want all three again", n)
				}
				a.tell(`{"type":"ADDED","object":` + someNode + "}\n")
				synctest.Wait()
				select {
				case <-wake:
				default:
					t.Error("a change woke nobody")
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// A server that never ends a watch, and says nothing any more, is given up.
func TestAWatchThatNeverEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := &badAPI{}
		NewClient(badConnection(t, a), Options{}).Wake(ctx)
		time.Sleep(watchSeconds*time.Second + RequestTimeout + rewatchAfter + time.Second)
		synctest.Wait()
		if n := a.watches(); n != 6 {
			t.Errorf("%d watches were begun, want three and three again", n)
		}
		cancel()
		synctest.Wait()
	})
}

// The host daemon lists anew whatever has become of its watch, and keeps what it knew
// while it cannot.
func TestAHostListsAnewAfterItsWatch(t *testing.T) {
	gone := `{"type":"ERROR","object":` + failure(410, metav1.StatusReasonExpired) + "}\n"
	for how, spoil := range map[string]func(*badAPI){
		"it is cut":                  func(a *badAPI) { a.cut("") },
		"the version is gone":        func(a *badAPI) { a.cut(gone) },
		"nobody answers for a while": func(a *badAPI) { a.set(hangs); a.cut("") },
		"the page is too old for a while": func(a *badAPI) {
			a.set(says(410, failure(410, metav1.StatusReasonExpired)))
			a.cut("")
		},
		"the list ends too early for a while": func(a *badAPI) { a.set(badAnswers["its JSON ends too early"].answer); a.cut("") },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				a := &badAPI{}
				conn := badConnection(t, a)
				h := newHostAPI(conn, conn, HostOptions{Node: "n1"})
				go h.Watch(ctx)
				synctest.Wait()
				lists := a.count("GET /api/v1/nodes")
				spoil(a)
				time.Sleep(20 * time.Second)
				if nodes, err := h.Nodes(ctx); err != nil || len(nodes) != 1 {
					t.Errorf("meanwhile: %v, %v", nodes, err)
				}
				a.set(nil)
				time.Sleep(RequestTimeout + rewatchAfter + time.Second)
				synctest.Wait()
				if n := a.open(); n != 1 || a.count("GET /api/v1/nodes") < lists+2 {
					t.Errorf("%d watches stand, %d lists and watches after %d", n, a.count("GET /api/v1/nodes"), lists)
				}
				if took := a.longest(); took > RequestTimeout {
					t.Errorf("a request took %s", took)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// Losing every watch for good still gives a pass a period (design, "Passes").
func TestWithoutAnyWatchThereIsAPassAPeriod(t *testing.T) {
	for how, answer := range map[string]func(*http.Request) (*http.Response, error){
		"they are refused":    says(403, failure(403, metav1.StatusReasonForbidden)),
		"nobody answers them": hangs,
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				client := NewClient(badConnection(t, &badAPI{answer: only(watching, answer)}), Options{})
				p := swap.DefaultPolicy()
				c := controller.New(client, controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove}, controller.Settings{Self: "me", Policy: p})
				var passes []time.Duration
				began := time.Now()
				done := make(chan struct{})
				go func() {
					c.Run(ctx, client, func(controller.Turn) { passes = append(passes, time.Since(began)) })
					close(done)
				}()
				time.Sleep(4*p.Period + time.Second)
				cancel()
				<-done
				if want := []time.Duration{0, p.Period, 2 * p.Period, 3 * p.Period, 4 * p.Period}; !slices.Equal(passes, want) {
					t.Errorf("passes at %v, want %v", passes, want)
				}
			})
		})
	}
}

func (a *badAPI) watches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.live)
}

// open are the watches that take an event: a bookmark, which wakes nobody.
func (a *badAPI) open() int { return a.tell(`{"type":"BOOKMARK","object":` + someNode + "}\n") }

func (a *badAPI) tell(event string) (n int) {
	a.mu.Lock()
	live := slices.Clone(a.live)
	a.mu.Unlock()
	for _, w := range live {
		if _, err := io.WriteString(w, event); err == nil {
			n++
		}
	}
	return n
}
