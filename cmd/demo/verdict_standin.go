package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/swap"
)

// STAND-IN. This is not regrade's judgement of fitness, which has windows of
// many sensors (design §3); it is one rule, so that the demo has something to
// decide on: a voter whose mean round trip from the others is above a tenth of
// etcd's election timeout is unfit, and a standby may come in at a twentieth.

// roundTrips measures the way to every host's peer port, through its link.
type roundTrips struct {
	hosts map[string]string // host -> URL
	size  int

	mu      sync.Mutex
	samples map[string][]time.Duration
}

func newRoundTrips(hosts map[string]string, size int) *roundTrips {
	return &roundTrips{hosts: hosts, size: size, samples: map[string][]time.Duration{}}
}

// run measures until ctx ends.
func (r *roundTrips) run(ctx context.Context, every time.Duration) {
	var wg sync.WaitGroup
	for host, url := range r.hosts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConns: 1, MaxConnsPerHost: 1}}
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				took, err := trip(ctx, c, url)
				r.add(host, took, err)
				select {
				case <-ctx.Done():
				case <-time.After(every):
				}
			}
		}()
	}
	wg.Wait()
}

func trip(ctx context.Context, c *http.Client, url string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return time.Since(began), err
}

// add keeps the last samples. A host that does not answer has none: silence is
// not slowness (safety rule 24).
func (r *roundTrips) add(host string, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.samples, host)
		return
	}
	s := append(r.samples[host], took)
	r.samples[host] = s[max(0, len(s)-r.size):]
}

// median of a full window, false while it fills. The mean of few samples
// follows a single hiccup of a busy machine; the median does not.
func (r *roundTrips) median(host string) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples[host]) < r.size {
		return 0, false
	}
	s := slices.Sorted(slices.Values(r.samples[host]))
	return s[len(s)/2], true
}

// standIn is the rule.
type standIn struct {
	trips    *roundTrips
	election time.Duration

	mu  sync.Mutex
	why string
}

// pair is the swap that the rule asks for: the slowest unfit voter for the
// quickest fit standby.
func (s *standIn) pair(o swap.Observation, p swap.Policy) *swap.Pair {
	limit, entry := s.election/10, s.election/20
	var out, in string
	var worst, best time.Duration
	unfit := 0
	for _, h := range o.Hosts {
		took, known := s.trips.median(h.Name)
		if !known || h.Report == nil {
			continue
		}
		switch {
		case h.Report.Etcd != nil && h.Report.Etcd.Linearizable && took > limit:
			unfit++
			if took > worst {
				out, worst = h.Name, took
			}
		case h.Report.Etcd == nil && took <= entry && h.Node.Labels[p.Keys.Eligible()] == "true" && (in == "" || took < best):
			in, best = h.Name, took
		}
	}
	if out == "" || in == "" || unfit > 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = fmt.Sprintf("%s is unfit: round trip %s, the limit is %s (a tenth of the election timeout of %s); %s is fit with %s, at most %s are asked of a newcomer",
		out, short(worst), short(limit), short(s.election), in, short(best), short(entry))
	return &swap.Pair{Out: out, In: in}
}

// reason is why the last pair was asked for.
func (s *standIn) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

func short(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
