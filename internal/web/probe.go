package web

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// Names of what a probe's passes leave behind; those of a sample are in sample.go.
const (
	nameProbePasses   = "regrade_probe_pass_seconds"
	nameProbeFaults   = "regrade_probe_faults_total"
	nameProbeInfo     = "regrade_probe_build_info"
	nameProbeRequests = "regrade_probe_api_requests_total"
)

// Probe are a probe's metrics and health. They are what it measured and how it
// fares; what is fit is the controller's to say, and among its metrics.
type Probe struct {
	now  func() time.Time
	long time.Duration // a pass that takes longer is no pass

	passes   *prometheus.HistogramVec
	faults   *prometheus.CounterVec
	registry *prometheus.Registry

	// mu guards what the passes write and a scrape reads: a probe itself is for one
	// goroutine.
	mu     sync.Mutex
	last   *ProbePass // nil before the first one
	passed time.Time
	gained gained
	links  map[string]link
}

// ProbePass is what the metrics want to know of one. Its fields are those of the
// probe's own Turn, which says what each of them is: the one is converted to the
// other, since no process imports another.
type ProbePass struct {
	Took                 time.Duration
	Err                  error
	Records              bool
	Sample               *fitness.Sample
	Samples              int
	Faults               []fitness.Absence
	Members              []fleet.MemberID
	Fsync                *fitness.Fsync
	Overdue              bool
	Written              time.Time
	EntryBytes, MapBytes int
}

// NewProbe makes them for the host of a Node, whose name is a label of each.
// requests counts the API requests sent so far; nil leaves it out. Without a pass
// for longer than long the process is not live.
func NewProbe(version, node string, long time.Duration, requests func() int64, now func() time.Time) *Probe {
	p := &Probe{
		now: now, long: long, passed: now(), registry: prometheus.NewRegistry(), links: map[string]link{},
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: nameProbePasses, Help: "Time of a probe's pass, by result.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"result"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: nameProbeFaults, Help: "Readings that could not be taken and connects that failed, by code.",
		}, []string{"reading", "code"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: nameProbeInfo, Help: "Always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	of := prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, p.registry)
	of.MustRegister(p.passes, p.faults, info, sampleOf{p})
	if requests != nil {
		of.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: nameProbeRequests, Help: "Requests sent to API servers.",
		}, func() float64 { return float64(requests()) }))
	}
	return p
}

// ProbeMetrics are a probe's metrics by name, each with its labels.
func ProbeMetrics() map[string][]string {
	all := maps.Clone(probeDescribed)
	for name, labels := range map[string][]string{
		nameProbePasses: {"result"}, nameProbeFaults: {"reading", "code"}, nameProbeInfo: {"version"}, nameProbeRequests: {},
	} {
		all[name] = labels
	}
	for name, labels := range all {
		all[name] = append([]string{"node"}, labels...)
	}
	return all
}

// Passed takes in one pass.
func (p *Probe) Passed(pass ProbePass) {
	result := "ok"
	if pass.Err != nil {
		result = "error"
	}
	p.passes.WithLabelValues(result).Observe(pass.Took.Seconds())
	for _, f := range pass.Faults {
		p.faults.WithLabelValues(string(f.Reading), f.Code).Inc()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.passed = &pass, p.now()
	p.gained.add(&pass)
	p.connected(&pass)
}

// Pages are the probe's. They are 10 KB and asked for by one or two scrapers: to
// compress them costs 1.5 MiB of memory, with which a probe is past its 25 MiB.
func (p *Probe) Pages() Pages {
	return Pages{Metrics: p.registry, Live: p.live, Ready: p.ready, Plain: true}
}

// live: passes are made, whatever becomes of them. An API that does not answer
// is not mended by starting the probe again, which costs it its window's age.
func (p *Probe) live() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle := p.now().Sub(p.passed); idle > p.long {
		return fmt.Errorf("no pass for %s", idle.Round(time.Second))
	}
	return nil
}

// ready: the last pass saw the Nodes and wrote what was due: the entry, when it
// was, and the heartbeat. A host that records nothing has neither.
func (p *Probe) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.last == nil:
		return errors.New("no pass has seen the Nodes yet")
	case p.last.Err != nil:
		return fmt.Errorf("the last pass: %w", p.last.Err)
	}
	return nil
}
