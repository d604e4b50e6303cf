package main

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/swap"
)

// probes are the demo's in place of `regrade probe`: they measure the way to
// every host's peer port, through its link, and keep the windows that the real
// verdict is made from. A sample holds the middle one of the last ways, since a
// busy machine that runs five etcds delays one of them now and then by more than
// the fault does. Disk and memory are the machine's own and are not judged.
type probes struct {
	urls map[string]string // host -> URL
	size int

	mu      sync.Mutex
	trips   map[string][]time.Duration
	windows map[string]*fitness.Window
}

func newProbes(urls map[string]string, size int, period time.Duration) *probes {
	p := &probes{urls: urls, size: size, trips: map[string][]time.Duration{}, windows: map[string]*fitness.Window{}}
	for host := range urls {
		p.windows[host] = &fitness.Window{Node: host, BootID: "demo", Period: period, Size: size}
	}
	return p
}

// run measures until ctx ends.
func (p *probes) run(ctx context.Context, every time.Duration) {
	var wg sync.WaitGroup
	for host, url := range p.urls {
		wg.Go(func() {
			c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConns: 1, MaxConnsPerHost: 1}}
			defer c.CloseIdleConnections()
			for each(ctx, every) {
				took, err := trip(ctx, c, url)
				p.add(host, took, err)
			}
		})
	}
	wg.Go(func() {
		for each(ctx, every) {
			p.sample(time.Now())
		}
	})
	wg.Wait()
}

// each waits for the next time, false when there is none.
func each(ctx context.Context, every time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(every):
		return true
	}
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

// add keeps the last ways. A host that does not answer has none: silence is not
// slowness (safety rule 24).
func (p *probes) add(host string, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		delete(p.trips, host)
		return
	}
	s := append(p.trips[host], took)
	p.trips[host] = s[max(0, len(s)-p.size):]
}

// sample takes one sample on every host that is up.
func (p *probes) sample(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ways []fitness.Connect
	for host := range p.urls {
		c := fitness.Connect{To: host, Failed: true}
		if took, ok := p.middle(host); ok {
			c = fitness.Connect{To: host, Took: took}
		}
		ways = append(ways, c)
	}
	for host, w := range p.windows {
		if _, up := p.middle(host); up {
			w.Append(fitness.Sample{At: at, Connect: slices.DeleteFunc(slices.Clone(ways), func(c fitness.Connect) bool { return c.To == host })})
		}
	}
}

func (p *probes) middle(host string) (time.Duration, bool) {
	if len(p.trips[host]) < p.size {
		return 0, false
	}
	s := slices.Sorted(slices.Values(p.trips[host]))
	return s[len(s)/2], true
}

// way is what it takes to reach a host now.
func (p *probes) way(host string) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.middle(host)
}

// full says whether every host's window is.
func (p *probes) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.windows {
		if !w.Full() {
			return false
		}
	}
	return true
}

// hosts are what the verdicts are made from. A window is as old as its last sample.
func (p *probes) hosts(now time.Time) []fitness.Host {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hosts []fitness.Host
	for host, w := range p.windows {
		kept := *w
		kept.Samples = slices.Clone(w.Samples)
		f := fitness.Host{Node: host, Window: &kept, Seen: true}
		if last := w.Last(); last != nil {
			f.Age = now.Sub(last.At)
		}
		hosts = append(hosts, f)
	}
	return hosts
}

// judge is regrade's own verdict and decision on the demo's windows.
type judge struct {
	probes *probes
	rules  decide.Rules

	mu   sync.Mutex
	last decide.Judgement
}

func newJudge(p *probes, t timing) *judge {
	fit := fitness.DefaultPolicy()
	fit.ElectionTimeout, fit.Size, fit.Period = t.election, t.window, t.period()
	fit.WALFsync, fit.BackendCommit, fit.Memory, fit.QuotaBytes, fit.WiFi = 0, 0, level.Limits{}, 0, fitness.WiFiIgnore
	return &judge{probes: p, rules: decide.Rules{Fitness: fit, Decide: decide.DefaultPolicy()}}
}

func (j *judge) judge(o swap.Observation, _ []fitness.Host, p swap.Policy) decide.Judgement {
	rules := j.rules
	rules.Decide.Target = p.Target
	got := rules.Judge(o, j.probes.hosts(time.Now()), p)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = got
	return got
}

// now is the last judgement.
func (j *judge) now() decide.Judgement {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

func short(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
