package web

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/heartbeat"
)

// whole wants each metric that is named, and none else, and no lint.
func whole(t *testing.T, r *prometheus.Registry, all map[string][]string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	for _, f := range families {
		if _, known := all[f.GetName()]; !known {
			t.Errorf("%s is not named", f.GetName())
		}
		delete(all, f.GetName())
	}
	for name := range all {
		t.Errorf("%s is named and was not seen", name)
	}
}

func TestTheHeartbeatShowsWhatItPublished(t *testing.T) {
	c := &clock{at}
	h := NewHeartbeat("v1", time.Minute, func() int64 { return 7 }, c.Now)
	if h.ready() == nil {
		t.Error("ready before the first tick")
	}
	d := &heartbeat.Document{At: at, Checks: []heartbeat.Check{{Name: "api", OK: true}, {Name: "voters"}}}
	h.Ticked(time.Second, d, map[string]error{"file": nil, "gist": errors.New("gist: api.github.com answers 500")})
	want := `
# HELP regrade_heartbeat_check_ok 1 for a check that holds.
# TYPE regrade_heartbeat_check_ok gauge
regrade_heartbeat_check_ok{check="api"} 1
regrade_heartbeat_check_ok{check="voters"} 0
# HELP regrade_heartbeat_healthy 1 while the fleet is vouched for.
# TYPE regrade_heartbeat_healthy gauge
regrade_heartbeat_healthy 0
# HELP regrade_heartbeat_publish_failures_total Documents that could not be published, by publisher.
# TYPE regrade_heartbeat_publish_failures_total counter
regrade_heartbeat_publish_failures_total{publisher="gist"} 1
# HELP regrade_heartbeat_publisher_ok 1 while the last document was published there.
# TYPE regrade_heartbeat_publisher_ok gauge
regrade_heartbeat_publisher_ok{publisher="file"} 1
regrade_heartbeat_publisher_ok{publisher="gist"} 0
`
	if err := testutil.GatherAndCompare(h.registry, strings.NewReader(want), "regrade_heartbeat_check_ok", "regrade_heartbeat_healthy", "regrade_heartbeat_publish_failures_total", "regrade_heartbeat_publisher_ok"); err != nil {
		t.Error(err)
	}
	whole(t, h.registry, HeartbeatMetrics())
	if err := h.ready(); err == nil || !strings.Contains(err.Error(), "answers 500") {
		t.Error(err)
	}
	h.Ticked(time.Second, d, map[string]error{"file": nil})
	if err := errors.Join(h.ready(), h.live()); err != nil {
		t.Error(err)
	}
	c.now = at.Add(2 * time.Minute)
	if h.live() == nil {
		t.Error("lives without a tick")
	}
}

func TestTheAlertProcessShowsWhatItTold(t *testing.T) {
	a := NewAlert("v1", time.Minute, func() int64 { return 7 }, (&clock{at}).Now)
	s := alert.State{Still: 60, Lost: 1, Active: []alert.Condition{{Kind: alert.ServerNotReady, Subject: "n2"}}, Outbox: []alert.Letter{{}, {}}}
	a.Looked(time.Second, s, "", nil, []Delivery{{"ntfy", nil}, {"webhook", errors.New("x")}, {"slack", fmt.Errorf("x: %w", alert.ErrRefused)}})
	want := `
# HELP regrade_alert_active 1 for each condition that was told and is not over.
# TYPE regrade_alert_active gauge
regrade_alert_active{kind="server_not_ready",subject="n2"} 1
# HELP regrade_alert_deliveries_total Messages that were sent, by what came of it: taken, failed, refused.
# TYPE regrade_alert_deliveries_total counter
regrade_alert_deliveries_total{receiver="ntfy",result="taken"} 1
regrade_alert_deliveries_total{receiver="slack",result="refused"} 1
regrade_alert_deliveries_total{receiver="webhook",result="failed"} 1
# HELP regrade_alert_waiting_messages Messages that some receiver has not taken.
# TYPE regrade_alert_waiting_messages gauge
regrade_alert_waiting_messages 2
`
	if err := testutil.GatherAndCompare(a.registry, strings.NewReader(want), "regrade_alert_active", "regrade_alert_deliveries_total", "regrade_alert_waiting_messages"); err != nil {
		t.Error(err)
	}
	whole(t, a.registry, AlertMetrics())
	if a.ready() == nil {
		t.Error("ready with a receiver that is down")
	}
	a.Looked(time.Second, alert.State{}, "", nil, nil)
	if err := a.ready(); err != nil {
		t.Error(err)
	}
}
