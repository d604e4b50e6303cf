package kube

import (
	"context"
	"net/http"
	"time"
)

// When a server is slow, and how often the servers are compared then. The limit is
// far above what an API server on a home network needs, and a few of them in a row
// are no busy moment.
const (
	slowAnswer   = 500 * time.Millisecond
	slowAnswers  = 3
	compareEvery = 20 * time.Second
)

// pace is how quickly the current server answers.
type pace struct {
	limit, every time.Duration
	slow         int // answers in a row that took longer than limit
	compared     time.Time
	comparing    bool
}

// took notes how long server i needed for an answer. After slowAnswers slow ones in
// a row all servers are asked whether they are ready, at once and beside the
// requests, and the first that says so is used from then on: behind a bad link an
// API server works, and a pass through it takes half a minute. A watch says nothing
// about the pace, its answer begins before anything has been read.
func (r *route) took(req *http.Request, i int, d time.Duration) {
	if len(r.t.servers) == 1 || req.URL.Query().Get("watch") != "" {
		return
	}
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case i != t.current:
	case d < t.pace.limit:
		t.pace.slow = 0
	default:
		t.pace.slow++
	}
	if t.pace.slow < slowAnswers || t.pace.comparing || !t.pace.compared.IsZero() && time.Since(t.pace.compared) < t.pace.every {
		return
	}
	t.pace.comparing = true
	go r.compare(req.Clone(context.WithoutCancel(req.Context())), i)
}

// compare gives the place of server i to the first server that answers /readyz, i
// itself among them.
func (r *route) compare(req *http.Request, i int) {
	t := r.t
	ctx, cancel := context.WithTimeout(req.Context(), RequestTimeout)
	defer cancel()
	first := make(chan int, len(t.servers))
	for j := range t.servers {
		go func() {
			if r.ready(req.WithContext(ctx), j, RequestTimeout) == nil {
				first <- j
			}
		}()
	}
	quickest := i
	select {
	case quickest = <-first:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.comparing, t.pace.compared, t.pace.slow = false, time.Now(), 0
	if t.current == i && t.proven {
		t.current = quickest
	}
}
