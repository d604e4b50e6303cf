package web

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/recover"
)

// Names of what recovery's passes leave behind.
const (
	nameRecoveryPasses   = "regrade_recovery_pass_seconds"
	nameRecoveryWrites   = "regrade_recovery_writes_total"
	nameRecoveryInfo     = "regrade_recovery_build_info"
	nameRecoveryRequests = "regrade_recovery_api_requests_total"
)

var (
	recoveryDescribed = catalogue{}

	descRecoveryAt     = recoveryDescribed.desc("regrade_recovery_timestamp_seconds", "API server's Date of the last pass that saw the Nodes.")
	descRecoveryNodes  = recoveryDescribed.desc("regrade_recovery_nodes", "Nodes that the last pass saw.")
	descRecoverySilent = recoveryDescribed.desc("regrade_recovery_silent_seconds", "For how long a node is seen to be silent.", "node")
	descRecoveryOut    = recoveryDescribed.desc("regrade_recovery_out_of_service", "1 for each Node that carries our taint.", "node")
	descRecoveryWhy    = recoveryDescribed.desc("regrade_recovery_node", "1 for each reason of what is done, or not, about a Node that is not Ready or marked.", "node", "action", "code")
)

// RecoveryMetrics are recovery's metrics by name, each with its labels.
func RecoveryMetrics() map[string][]string {
	all := maps.Clone(recoveryDescribed)
	for name, labels := range map[string][]string{
		nameRecoveryPasses: {"result"}, nameRecoveryWrites: {"action", "result"}, nameRecoveryInfo: {"version"}, nameRecoveryRequests: {},
	} {
		all[name] = labels
	}
	return all
}

// Recovery are the metrics and the health of `regrade recovery`.
type Recovery struct {
	now  func() time.Time
	long time.Duration // a pass that takes longer is no pass

	passes   *prometheus.HistogramVec
	writes   *prometheus.CounterVec
	registry *prometheus.Registry

	mu     sync.Mutex
	last   *RecoveryPass // the last that saw the Nodes
	passed time.Time
	err    error
}

// RecoveryPass is what the metrics want to know of one.
type RecoveryPass struct {
	Took     time.Duration
	Date     time.Time
	Decision *recover.Decision // nil when the Nodes were not seen
	Writes   []RecoveryWrite
	Err      error
}

// RecoveryWrite is one change of a Node that was tried.
type RecoveryWrite struct {
	Action recover.Action
	Result string // ok, conflict, error, dry-run
}

// NewRecovery makes them. requests counts the API requests sent so far; nil leaves it
// out. Without a pass for longer than long the process is not live.
func NewRecovery(version string, long time.Duration, requests func() int64, now func() time.Time) *Recovery {
	r := &Recovery{
		now: now, long: long, passed: now(), registry: prometheus.NewRegistry(),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: nameRecoveryPasses, Help: "Time of a recovery pass, by result.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: nameRecoveryWrites, Help: "Changes of Nodes that were tried, by action and result.",
		}, []string{"action", "result"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: nameRecoveryInfo, Help: "Always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	r.registry.MustRegister(r.passes, r.writes, info, nodesOf{r})
	if requests != nil {
		r.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: nameRecoveryRequests, Help: "Requests sent to API servers.",
		}, func() float64 { return float64(requests()) }))
	}
	return r
}

// Passed takes in one pass.
func (r *Recovery) Passed(p RecoveryPass) {
	result := "ok"
	if p.Err != nil {
		result = "error"
	}
	for _, w := range p.Writes {
		r.writes.WithLabelValues(string(w.Action), w.Result).Inc()
		if w.Result == "conflict" || w.Result == "error" {
			result = "error"
		}
	}
	r.passes.WithLabelValues(result).Observe(p.Took.Seconds())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed, r.err = r.now(), p.Err
	if p.Decision != nil {
		r.last = &p
	}
}

// Pages are recovery's.
func (r *Recovery) Pages() Pages {
	return Pages{Metrics: r.registry, Live: r.live, Ready: r.ready, Plain: true}
}

// live: passes are made, whatever becomes of them.
func (r *Recovery) live() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if idle := r.now().Sub(r.passed); idle > r.long {
		return fmt.Errorf("no pass for %s", idle.Round(time.Second))
	}
	return nil
}

// ready: the last pass read what it needed.
func (r *Recovery) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		return fmt.Errorf("the last pass: %w", r.err)
	case r.last == nil:
		return errors.New("no pass has seen the Nodes yet")
	}
	return nil
}

// nodesOf collects what the last pass decided.
type nodesOf struct{ r *Recovery }

// Describe implements prometheus.Collector. It is unchecked: a Node that needs
// nothing has no series.
func (nodesOf) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (n nodesOf) Collect(ch chan<- prometheus.Metric) {
	n.r.mu.Lock()
	p := n.r.last
	n.r.mu.Unlock()
	if p == nil {
		return
	}
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(descRecoveryAt, float64(p.Date.Unix()))
	set(descRecoveryNodes, float64(p.Decision.Nodes))
	for i := range p.Decision.Verdicts {
		v := &p.Decision.Verdicts[i]
		if v.Ready == recover.ReadyUnknown {
			set(descRecoverySilent, v.Silent.Seconds(), v.Node)
		}
		if v.OutOfService {
			set(descRecoveryOut, 1, v.Node)
		}
		seen := map[string]bool{}
		for _, reason := range v.Reasons {
			if !seen[reason.Code] {
				seen[reason.Code] = true
				set(descRecoveryWhy, 1, v.Node, string(v.Action), reason.Code)
			}
		}
	}
}
