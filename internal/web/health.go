package web

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/heartbeat"
)

// turns are what a process that does one thing again and again shows of it.
type turns struct {
	now  func() time.Time
	long time.Duration // a turn that takes longer is no turn

	took     *prometheus.HistogramVec
	registry *prometheus.Registry

	mu   sync.Mutex
	last time.Time
	err  error
	any  bool
}

// newTurns makes them, each name with the prefix.
func newTurns(prefix, version string, long time.Duration, requests func() int64, now func() time.Time) *turns {
	t := &turns{
		now: now, long: long, last: now(), registry: prometheus.NewRegistry(),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "turn_seconds", Help: "Time of a turn, by result.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"result"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "build_info", Help: "Always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	t.registry.MustRegister(t.took, info)
	if requests != nil {
		t.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: prefix + "api_requests_total", Help: "Requests sent to API servers.",
		}, func() float64 { return float64(requests()) }))
	}
	return t
}

// turnMetrics are those by name, each with its labels.
func turnMetrics(prefix string) map[string][]string {
	return map[string][]string{prefix + "turn_seconds": {"result"}, prefix + "build_info": {"version"}, prefix + "api_requests_total": {}}
}

// passed takes in one turn. mu is held.
func (t *turns) passed(took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	t.took.WithLabelValues(result).Observe(took.Seconds())
	t.last, t.err, t.any = t.now(), err, true
}

// live: turns are made, whatever becomes of them.
func (t *turns) live() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if idle := t.now().Sub(t.last); idle > t.long {
		return fmt.Errorf("no turn for %s", idle.Round(time.Second))
	}
	return nil
}

// ready: the last turn did all it should.
func (t *turns) ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return fmt.Errorf("the last turn: %w", t.err)
	case !t.any:
		return errors.New("no turn has been made yet")
	}
	return nil
}

// Pages are the process's.
func (t *turns) Pages() Pages { return Pages{Metrics: t.registry, Live: t.live, Ready: t.ready} }

const (
	heartbeatPrefix = "regrade_heartbeat_"
	alertPrefix     = "regrade_alert_"
)

var (
	heartbeatDescribed = catalogue{}
	alertDescribed     = catalogue{}

	descHealthy   = heartbeatDescribed.desc(heartbeatPrefix+"healthy", "1 while the fleet is vouched for.")
	descCheck     = heartbeatDescribed.desc(heartbeatPrefix+"check_ok", "1 for a check that holds.", "check")
	descDocument  = heartbeatDescribed.desc(heartbeatPrefix+"document_timestamp_seconds", "Time of the document made last, by the API server's Date.")
	descPublished = heartbeatDescribed.desc(heartbeatPrefix+"publisher_ok", "1 while the last document was published there.", "publisher")

	descTold    = alertDescribed.desc(alertPrefix+"active", "1 for each condition that was told and is not over.", "kind", "subject")
	descWaiting = alertDescribed.desc(alertPrefix+"waiting_messages", "Messages that some receiver has not taken.")
	descLost    = alertDescribed.desc(alertPrefix+"lost_messages", "Messages that a receiver was never told: too many waited, or it refused them and took others.")
	descStill   = alertDescribed.desc(alertPrefix+"document_still_seconds", "For how long no new document has been seen.")
	descKept    = alertDescribed.desc(alertPrefix+"state_kept", "1 while the state is kept.")
)

const (
	nameFailures   = heartbeatPrefix + "publish_failures_total"
	nameDeliveries = alertPrefix + "deliveries_total"
)

// HeartbeatMetrics are the heartbeat process's metrics by name, each with its labels.
func HeartbeatMetrics() map[string][]string {
	all := maps.Clone(heartbeatDescribed)
	maps.Copy(all, turnMetrics(heartbeatPrefix))
	all[nameFailures] = []string{"publisher"}
	return all
}

// AlertMetrics are the alert process's.
func AlertMetrics() map[string][]string {
	all := maps.Clone(alertDescribed)
	maps.Copy(all, turnMetrics(alertPrefix))
	all[nameDeliveries] = []string{"receiver", "result"}
	return all
}

// Heartbeat are the heartbeat process's metrics and health.
type Heartbeat struct {
	*turns
	failures  *prometheus.CounterVec
	doc       *heartbeat.Document
	published map[string]error
}

// NewHeartbeat makes them.
func NewHeartbeat(version string, long time.Duration, requests func() int64, now func() time.Time) *Heartbeat {
	h := &Heartbeat{
		turns:    newTurns(heartbeatPrefix, version, long, requests, now),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: nameFailures, Help: "Documents that could not be published, by publisher."}, []string{"publisher"}),
	}
	h.registry.MustRegister(h.failures, collector(h.collect))
	return h
}

// Ticked takes in one tick: what was made, and what came of each publisher.
func (h *Heartbeat) Ticked(took time.Duration, d *heartbeat.Document, published map[string]error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for name, err := range published {
		if err != nil {
			h.failures.WithLabelValues(name).Inc()
			errs = append(errs, fmt.Errorf("publish to %s: %w", name, err))
		}
	}
	h.doc, h.published = d, published
	h.passed(took, errors.Join(errs...))
}

func (h *Heartbeat) collect(set gauge) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.doc == nil {
		return
	}
	set(descHealthy, one(h.doc.Healthy))
	set(descDocument, float64(h.doc.At.Unix()))
	for _, c := range h.doc.Checks {
		set(descCheck, one(c.OK), c.Name)
	}
	for name, err := range h.published {
		set(descPublished, one(err == nil), name)
	}
}

// Alert are the alert process's metrics and health.
type Alert struct {
	*turns
	deliveries *prometheus.CounterVec
	state      *alert.State
	kept       bool
}

// NewAlert makes them.
func NewAlert(version string, long time.Duration, requests func() int64, now func() time.Time) *Alert {
	a := &Alert{
		turns:      newTurns(alertPrefix, version, long, requests, now),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: nameDeliveries, Help: "Messages that were sent, by what came of it: taken, failed, refused."}, []string{"receiver", "result"}),
	}
	a.registry.MustRegister(a.deliveries, collector(a.collect))
	return a
}

// Delivery is one message that was sent.
type Delivery struct {
	Receiver string
	Err      error
}

// Looked takes in one look. problem is why there is no document, empty when there is.
func (a *Alert) Looked(took time.Duration, s alert.State, problem string, kept error, sent []Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := []error{kept}
	if problem != "" {
		errs = append(errs, errors.New(problem))
	}
	for _, d := range sent {
		result := "taken"
		switch {
		case errors.Is(d.Err, alert.ErrRefused):
			result = "refused"
		case d.Err != nil:
			result = "failed"
		}
		a.deliveries.WithLabelValues(d.Receiver, result).Inc()
		errs = append(errs, d.Err)
	}
	a.state, a.kept = &s, kept == nil
	a.passed(took, errors.Join(errs...))
}

func (a *Alert) collect(set gauge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == nil {
		return
	}
	set(descWaiting, float64(len(a.state.Outbox)))
	set(descLost, float64(a.state.Lost))
	set(descStill, float64(a.state.Still))
	set(descKept, one(a.kept))
	for _, c := range a.state.Active {
		set(descTold, 1, string(c.Kind), c.Subject)
	}
}

// collector is unchecked: what is not known has no series.
type collector func(set gauge)

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c(func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	})
}
