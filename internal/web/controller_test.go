package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func someStatus() *status.Status {
	return &status.Status{
		At: at, Target: 3, DryRun: true, CooldownUntil: at.Add(time.Minute), EvenSince: at, Pending: []string{"n9"},
		Pause: &status.Pause{At: at},
		Swap:  &status.Swap{ID: "id-1", Out: "n1", In: "n4", Step: "promote", StepSince: at, Deadline: at.Add(time.Minute)},
		Next: status.Next{Waits: []status.Reason{
			{Code: "NotReady", Node: "n2"}, {Code: "NotReady", Node: "n2"}, {Code: "EtcdAlarm"},
		}},
		LastSwap: &status.LastSwap{ID: "id-0", Outcome: fleet.OutcomeCompleted, EndedAt: at},
		Verdicts: []fitness.Verdict{{Node: "n1", Votes: true, Fitness: fitness.Unfit, Margin: 1.2, BadLinks: 2, Samples: 100, Measures: []fitness.Measure{
			{Kind: fitness.ConnectP99, Peer: "n2", Lower: 0.6, Upper: 0.6, Limit: 0.5}, {Kind: fitness.WALFsyncP99, Lower: 8.192, Open: true, Limit: 0.01},
		}}},
		Automatic: &status.Automatic{Out: "n1", In: "n4", Reasons: []status.Reason{{Code: "Cooldown"}, {Code: "Cooldown"}}},
		Hosts:     []status.Host{{Name: "n1", Ready: true, Voter: true, Fresh: true, Eligible: true}, {Name: "n4"}},
	}
}

// Issue 4: metrics of gates, swap step, duration, pass time and API requests.
func TestMetricsSayWhatTheStatusSays(t *testing.T) {
	c := NewController("v1", time.Minute, func() int64 { return 7 }, (&clock{at}).Now)
	c.Passed(Pass{Took: 20 * time.Millisecond, Acted: "take-lease", Status: someStatus()})
	want := `
# HELP regrade_gate_shut 1 for each gate or wait that holds what is next.
# TYPE regrade_gate_shut gauge
regrade_gate_shut{code="EtcdAlarm",node=""} 1
regrade_gate_shut{code="NotReady",node="n2"} 1
# HELP regrade_swap_step 1 for the state that the swap under way is in.
# TYPE regrade_swap_step gauge
regrade_swap_step{id="id-1",in="n4",out="n1",step="promote"} 1
# HELP regrade_host_verdict 1 for the verdict that holds, 0 for the two others.
# TYPE regrade_host_verdict gauge
regrade_host_verdict{node="n1",verdict="fit"} 0
regrade_host_verdict{node="n1",verdict="unfit"} 1
regrade_host_verdict{node="n1",verdict="unknown"} 0
# HELP regrade_reading_upper The same, its upper edge; absent where a histogram has none.
# TYPE regrade_reading_upper gauge
regrade_reading_upper{kind="connect_p99_seconds",node="n1",peer="n2"} 0.6
# HELP regrade_voters Voters that the member lists name.
# TYPE regrade_voters gauge
regrade_voters 1
# HELP regrade_api_requests_total Requests sent to API servers.
# TYPE regrade_api_requests_total counter
regrade_api_requests_total 7
# HELP regrade_actions_total Actions that passes carried out, by kind.
# TYPE regrade_actions_total counter
regrade_actions_total{action="take-lease"} 1
`
	if err := testutil.GatherAndCompare(c.registry, strings.NewReader(want), "regrade_gate_shut", "regrade_host_verdict", "regrade_reading_upper", "regrade_swap_step", "regrade_voters", "regrade_api_requests_total", "regrade_actions_total"); err != nil {
		t.Error(err)
	}
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	// Each metric that is named is there, and none else.
	all := Metrics()
	for _, f := range families {
		want, known := all[f.GetName()]
		if !known {
			t.Errorf("%s is not among Metrics", f.GetName())
		}
		delete(all, f.GetName())
		for _, l := range f.GetMetric()[0].GetLabel() {
			if !slices.Contains(want, l.GetName()) {
				t.Errorf("%s has the label %s, which Metrics does not say", f.GetName(), l.GetName())
			}
		}
	}
	delete(all, "regrade_swaps_total") // no swap has ended yet
	delete(all, "regrade_swap_seconds")
	for name := range all {
		t.Errorf("%s is named and was not seen", name)
	}
}

// A swap that ended before this process began is not counted.
func TestAnEndedSwapIsCountedOnce(t *testing.T) {
	c := NewController("v1", time.Minute, nil, (&clock{at}).Now)
	ended := func(id fleet.SwapID) *status.Status {
		s := someStatus()
		s.LastSwap = &status.LastSwap{ID: id, Outcome: fleet.OutcomeRolledBack, EndedAt: at.Add(45 * time.Second), Steps: []status.StepTime{{Step: "begin", At: at}}}
		return s
	}
	for _, id := range []fleet.SwapID{"old", "old", "new", "new"} {
		c.Passed(Pass{Status: ended(id)})
	}
	if n := testutil.ToFloat64(c.swaps.WithLabelValues("rolled-back", "false")); n != 1 {
		t.Errorf("%v swaps are counted, want 1", n)
	}
	var m dto.Metric
	h, err := c.seconds.GetMetricWithLabelValues("rolled-back")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.(interface{ Write(*dto.Metric) error }).Write(&m); err != nil || m.GetHistogram().GetSampleSum() != 45 {
		t.Errorf("sum %v, %v: want 45 s", m.GetHistogram().GetSampleSum(), err)
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, strings.TrimSpace(r.Body.String())
}

func TestHealthIsOfThePasses(t *testing.T) {
	now := &clock{at}
	c := NewController("v1", time.Minute, nil, now.Now)
	h := c.Pages().Handler()
	if code, body := get(t, h, "/readyz"); code != 503 || body != "no pass has seen the fleet yet" {
		t.Errorf("before the first pass: %d %q", code, body)
	}
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Errorf("before the first pass: %d, it has just started", code)
	}
	c.Passed(Pass{Status: someStatus()})
	if code, body := get(t, h, "/readyz"); code != 200 || body != "ok" {
		t.Errorf("after a pass: %d %q", code, body)
	}
	now.now = at.Add(30 * time.Second)
	c.Passed(Pass{Err: errors.New("observe nodes: refused")})
	if code, body := get(t, h, "/readyz"); code != 503 || !strings.Contains(body, "refused") {
		t.Errorf("after a pass that saw nothing: %d %q", code, body)
	}
	now.now = at.Add(80 * time.Second)
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Errorf("passes without the API: %d, a restart would mend nothing", code)
	}
	now.now = at.Add(2 * time.Minute)
	if code, body := get(t, h, "/healthz"); code != 503 || body != "no pass for 1m30s" {
		t.Errorf("without passes: %d %q", code, body)
	}
	if code, _ := get(t, h, "/other"); code != 404 {
		t.Errorf("another path: %d", code)
	}
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if r.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.Code)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(l.Addr().String()); err == nil {
		t.Error("an address in use is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := NewController("v1", time.Minute, nil, time.Now)
	go func() { ended <- Serve(ctx, l, c.Pages()) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(body), `regrade_build_info{version="v1"} 1`) {
		t.Errorf("%v, %s", err, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
