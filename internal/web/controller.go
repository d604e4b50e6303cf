package web

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Names of what a pass leaves behind; those of the fleet are in fleet.go.
const (
	namePasses   = "regrade_pass_seconds"
	nameActions  = "regrade_actions_total"
	nameSwaps    = "regrade_swaps_total"
	nameSeconds  = "regrade_swap_seconds"
	nameInfo     = "regrade_build_info"
	nameRequests = "regrade_api_requests_total"
)

// Controller are the controller's metrics and health. What they say of the
// fleet is what the last published status says, so that a dashboard, `regrade
// status` and an alert never disagree.
type Controller struct {
	now  func() time.Time
	long time.Duration // a pass that takes longer is no pass

	passes   *prometheus.HistogramVec
	acted    *prometheus.CounterVec
	swaps    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	registry *prometheus.Registry

	mu       sync.Mutex
	status   *status.Status
	lastSwap fleet.SwapID
	known    bool // lastSwap is of this process's own sight
	passed   time.Time
	err      error
}

// NewController makes them. requests counts the API requests sent so far; nil
// leaves it out. Without a pass for longer than long the process is not live.
func NewController(version string, long time.Duration, requests func() int64, now func() time.Time) *Controller {
	c := &Controller{
		now: now, long: long, passed: now(), registry: prometheus.NewRegistry(),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namePasses, Help: "Time of a controller pass, by result.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"result"}),
		acted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: nameActions, Help: "Actions that passes carried out, by kind.",
		}, []string{"action"}),
		swaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: nameSwaps, Help: "Swaps that ended while this process watched, by outcome.",
		}, []string{"outcome", "manual"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: nameSeconds, Help: "Time from a swap's first state to its end, by outcome.",
			Buckets: []float64{10, 20, 30, 45, 60, 90, 120, 300, 600, 1800, 3600, 7200},
		}, []string{"outcome"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: nameInfo, Help: "Always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	c.registry.MustRegister(c.passes, c.acted, c.swaps, c.seconds, info, fleetOf{c})
	if requests != nil {
		c.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: nameRequests, Help: "Requests sent to API servers.",
		}, func() float64 { return float64(requests()) }))
	}
	return c
}

// Pass is what the metrics want to know of one.
type Pass struct {
	Took   time.Duration
	Acted  string // kind of the action, empty for none
	Err    error
	Status *status.Status // as composed; nil when nothing could be decided
}

// Passed takes in one pass.
func (c *Controller) Passed(p Pass) {
	result := "ok"
	if p.Err != nil {
		result = "error"
	}
	c.passes.WithLabelValues(result).Observe(p.Took.Seconds())
	if p.Acted != "" {
		c.acted.WithLabelValues(p.Acted).Inc()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed, c.err = c.now(), p.Err
	if p.Status == nil {
		return
	}
	c.status = p.Status
	l := p.Status.LastSwap
	if l == nil {
		c.known = true
		return
	}
	if c.known && l.ID != c.lastSwap {
		outcome := string(l.Outcome)
		c.swaps.WithLabelValues(outcome, fmt.Sprint(l.Manual)).Inc()
		if len(l.Steps) > 0 {
			c.seconds.WithLabelValues(outcome).Observe(l.EndedAt.Sub(l.Steps[0].At).Seconds())
		}
	}
	c.lastSwap, c.known = l.ID, true
}

// Pages are the controller's.
func (c *Controller) Pages() Pages { return Pages{Metrics: c.registry, Live: c.live, Ready: c.ready} }

// live: passes are made, whatever becomes of them. An API that does not answer
// is not mended by starting the controller again.
func (c *Controller) live() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if idle := c.now().Sub(c.passed); idle > c.long {
		return fmt.Errorf("no pass for %s", idle.Round(time.Second))
	}
	return nil
}

// ready: the last pass saw the fleet.
func (c *Controller) ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return fmt.Errorf("the last pass: %w", c.err)
	case c.status == nil:
		return fmt.Errorf("no pass has seen the fleet yet")
	}
	return nil
}
