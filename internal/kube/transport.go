package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Transport sends requests to the first of its API servers that works,
// remembers the Date of the last answer and counts requests.
//
// A server that could not be reached, that answered nothing in time, or that
// answered with an error of its own, is left for the next one that answers an authenticated /readyz: an etcd-only server
// answers TLS and /ping, and a removed one may answer from its cache (safety
// rule 23). With one server nothing is asked first; its connections are made anew, for
// behind one address there may be several: the Service's, of which a host that steps
// down is one for half a minute more (k3s-facts §13.4), and a connection stays with the
// server that it was given to, and a watch holds it. When all of them took too long
// to say so, the next one asked is given the whole time of a request: a slow API is an API.
// One that is slow is left for a quicker one (slow.go).
type Transport struct {
	servers []*url.URL

	mu      sync.Mutex
	current int
	proven  bool // the current server answered since it was last doubted
	patient bool // none answered /readyz in time when all were asked
	stale   bool // the only address gave a bad answer: its connections are to go
	pace    pace

	// hangUp ends the connections, those too that a watch holds; nil with several servers.
	hangUp func()

	date     atomic.Int64 // unix seconds, zero before the first answer
	requests atomic.Int64
}

func newTransport(servers []string) (*Transport, error) {
	t := &Transport{pace: pace{limit: slowAnswer, every: compareEvery}}
	for _, s := range servers {
		u, err := url.Parse(s)
		if err == nil && u.Scheme == "" {
			u, err = url.Parse("https://" + s)
		}
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("API server %q is no URL", s)
		}
		if u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("API server %q: want https://", s)
		}
		t.servers = append(t.servers, u)
	}
	if len(t.servers) == 0 {
		return nil, errors.New("no API server")
	}
	return t, nil
}

// Date is the API server's clock as its last answer gave it, zero before the first.
func (t *Transport) Date() time.Time {
	s := t.date.Load()
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

// Requests counts the requests sent, /readyz probes included.
func (t *Transport) Requests() int64 { return t.requests.Load() }

// Server is the API server that is used now.
func (t *Transport) Server() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers[t.current].String()
}

// Host is its host and port.
func (t *Transport) Host() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers[t.current].Host
}

func (t *Transport) wrap(next http.RoundTripper) http.RoundTripper {
	return &route{t: t, next: next}
}

type route struct {
	t    *Transport
	next http.RoundTripper
}

// RoundTrip sends the request once. A request that failed before it left this
// machine is sent to the next server that works; one that may have arrived is
// not repeated, for it may have been carried out.
func (r *route) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	for range r.t.servers {
		var i int
		before := time.Now()
		if i, err = r.pick(req); err != nil {
			break
		}
		probe := time.Since(before)
		if r.t.renew(req) {
			utilnet.CloseIdleConnectionsFor(r.next)
			if r.t.hangUp != nil {
				r.t.hangUp()
			}
		}
		sent := time.Now()
		var resp *http.Response
		resp, err = r.send(req, i)
		if err == nil {
			// What a server says that is only asked whether it is ready gives no time: its
			// host may have a clock of its own (safety rule 22).
			if d, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
				r.t.date.Store(d.Unix())
			}
			r.took(req, i, time.Since(sent))
			if resp.StatusCode >= http.StatusInternalServerError {
				r.t.doubt(i) // it has lost its etcd, perhaps; the next request asks first
			}
			return resp, nil
		}
		if req.Context().Err() != nil && probe > readyTimeout/2 {
			break // it has just said that it is ready, and that took the request's time
		}
		r.t.doubt(i)
		if !neverLeft(err) || req.Context().Err() != nil || !rewind(req) {
			break
		}
	}
	// The round tripper owns the body whatever happens to the request.
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}

func (r *route) send(req *http.Request, i int) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = r.t.servers[i].Scheme, r.t.servers[i].Host, ""
	r.t.requests.Add(1)
	resp, err := r.next.RoundTrip(out)
	if err != nil {
		if u := unknown(r.t.servers[i].Host, err); u != nil {
			u.only = len(r.t.servers) == 1
			return nil, u
		}
		return nil, err
	}
	if err := foreign(r.t.servers[i].Host, resp); err != nil {
		_ = resp.Body.Close()
		err.only = len(r.t.servers) == 1
		return nil, err
	}
	// The client would sleep and repeat by itself on this header. When to ask
	// again is the loop's to decide.
	resp.Header.Del("Retry-After")
	return resp, nil
}

// pick is the server to use: the current one while it is trusted, else the
// first from there on that says it is ready.
func (r *route) pick(req *http.Request) (int, error) {
	t := r.t
	t.mu.Lock()
	i, proven, limit := t.current, t.proven, readyTimeout
	if t.patient {
		limit = RequestTimeout
	}
	t.mu.Unlock()
	if proven || len(t.servers) == 1 {
		return i, nil
	}
	var errs []error
	for n := range t.servers {
		j := (i + n) % len(t.servers)
		err := r.ready(req, j, limit)
		if err == nil {
			t.mu.Lock()
			t.current, t.proven, t.patient = j, true, false
			t.mu.Unlock()
			return j, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", t.servers[j].Host, err))
		if req.Context().Err() != nil {
			break
		}
	}
	// The next request begins with the next server, so that a list of dead ones
	// in front does not use up every request's time.
	t.mu.Lock()
	t.current = (i + len(errs)) % len(t.servers)
	t.patient = slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) })
	t.mu.Unlock()
	if len(errs) == len(t.servers) && !slices.ContainsFunc(errs, func(err error) bool { return !lasting(err) }) {
		f, _ := errors.AsType[*foreignError](errs[0])
		f.only = true
	}
	return 0, fmt.Errorf("no API server is ready: %w", errors.Join(errs...))
}

// readyTimeout leaves room for a second server within one request's time.
const readyTimeout = 2 * time.Second

func (r *route) ready(req *http.Request, i int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(req.Context(), limit)
	defer cancel()
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, r.t.servers[i].JoinPath("readyz").String(), nil)
	if err != nil {
		return err
	}
	if a := req.Header.Get("Authorization"); a != "" {
		probe.Header.Set("Authorization", a)
	}
	resp, err := r.send(probe, i)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz says %s", resp.Status)
	}
	return nil
}

func (t *Transport) doubt(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = len(t.servers) == 1
	if t.current == i {
		t.proven = false
		t.current = (i + 1) % len(t.servers)
	}
}

// renew says whether a request is to go over a new connection. A watch that begins is
// not: passes ask one thing after the other, and nothing of theirs is to be cut by it.
func (t *Transport) renew(req *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stale || req.URL.Query().Get("watch") != "" {
		return false
	}
	t.stale = false
	return true
}

// neverLeft says whether a connection was never made.
func neverLeft(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// rewind gives a request its body back; false when it cannot.
func rewind(req *http.Request) bool {
	if req.Body == nil || req.Body == http.NoBody {
		return true
	}
	if req.GetBody == nil {
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	req.Body = body
	return true
}
