package web

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/status"
)

func recoveryPass() RecoveryPass {
	why := func(code string) []status.Reason { return []status.Reason{{Code: code}} }
	return RecoveryPass{
		Took: 20 * time.Millisecond, Date: at,
		Decision: &recover.Decision{Nodes: 9, Verdicts: []recover.Verdict{
			{Node: "n2", Ready: recover.ReadyUnknown, Silent: 130 * time.Second, Action: recover.ActTaint, Reasons: why(recover.CodeSilentLong)},
			{Node: "n3", Ready: recover.ReadyUnknown, Silent: time.Hour, OutOfService: true, Reasons: append(why(recover.CodeOutOfService), append(why(recover.CodeServerLabel), why(recover.CodeServerLabel)...)...)},
			{Node: "n4", Ready: recover.ReadyFalse, Reasons: why(recover.CodeKubeletSpeaks)},
		}},
		Writes: []RecoveryWrite{{recover.ActTaint, "ok"}, {recover.ActClear, "conflict"}},
	}
}

// Issue 6: the metrics say of every node that is not Ready what is done about it, or
// why not.
func TestRecoverysMetricsSayWhy(t *testing.T) {
	now := &clock{at}
	r := NewRecovery("v1", time.Minute, func() int64 { return 7 }, now.Now)
	r.Passed(recoveryPass())
	const want = `
# HELP regrade_recovery_node 1 for each reason of what is done, or not, about a Node that is not Ready or marked.
# TYPE regrade_recovery_node gauge
regrade_recovery_node{action="",code="KubeletSpeaks",node="n4"} 1
regrade_recovery_node{action="",code="OutOfService",node="n3"} 1
regrade_recovery_node{action="",code="ServerLabel",node="n3"} 1
regrade_recovery_node{action="taint",code="SilentLong",node="n2"} 1
# HELP regrade_recovery_nodes Nodes that the last pass saw.
# TYPE regrade_recovery_nodes gauge
regrade_recovery_nodes 9
# HELP regrade_recovery_out_of_service 1 for each Node that carries our taint.
# TYPE regrade_recovery_out_of_service gauge
regrade_recovery_out_of_service{node="n3"} 1
# HELP regrade_recovery_silent_seconds For how long a node is seen to be silent.
# TYPE regrade_recovery_silent_seconds gauge
regrade_recovery_silent_seconds{node="n2"} 130
regrade_recovery_silent_seconds{node="n3"} 3600
# HELP regrade_recovery_writes_total Changes of Nodes that were tried, by action and result.
# TYPE regrade_recovery_writes_total counter
regrade_recovery_writes_total{action="clear",result="conflict"} 1
regrade_recovery_writes_total{action="taint",result="ok"} 1
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "regrade_recovery_node", "regrade_recovery_nodes", "regrade_recovery_out_of_service", "regrade_recovery_silent_seconds", "regrade_recovery_writes_total"); err != nil {
		t.Error(err)
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	if want := slices.Sorted(maps.Keys(RecoveryMetrics())); !slices.Equal(names, want) {
		t.Errorf("%q, the catalogue has %q", names, want)
	}
}

func TestRecoverysHealth(t *testing.T) {
	now := &clock{at}
	r := NewRecovery("v1", time.Minute, nil, now.Now)
	if r.live() != nil || r.ready() == nil {
		t.Error("before the first pass it lives and is not ready")
	}
	r.Passed(recoveryPass())
	if err := r.ready(); err != nil {
		t.Error(err)
	}
	// Writes that were refused are the next pass's; a pass that could not read is not.
	r.Passed(RecoveryPass{Err: errors.New("503")})
	if r.live() != nil || r.ready() == nil {
		t.Error("a pass that could not read leaves it alive and not ready")
	}
	now.now = at.Add(2 * time.Minute)
	if r.live() == nil {
		t.Error("without a pass it does not live")
	}
}
