package controller_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// What is ignored is named, once.
func TestEntriesThatAreIgnoredAreNamedOnce(t *testing.T) {
	c := clustertest.New(clustertest.State{Nodes: map[string]observe.Node{"n1": {}}, Maps: map[string]observe.ConfigMap{
		fleet.ConfigMapProbe: {Exists: true, Data: map[string]string{"n1": "{}", "nobody": "{}"}},
	}})
	var log bytes.Buffer
	r := rules(wait)
	r.Judge = func(swap.Observation, []fitness.Host, swap.Policy) decide.Judgement { return decide.Judgement{} }
	boss := controller.New(c, r, controller.Settings{Self: "me", Policy: swap.DefaultPolicy(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	named := func() int {
		return strings.Count(log.String(), "entries in the ConfigMap of the probes that are ignored")
	}
	boss.Pass(t.Context())
	boss.Pass(t.Context())
	if named() != 1 || !strings.Contains(log.String(), `first="[n1 nobody]"`) {
		t.Errorf("%d times: %s", named(), log.String())
	}
	c.Edit(func(s *clustertest.State) { s.Maps[fleet.ConfigMapProbe].Data["another"] = "{}" })
	boss.Pass(t.Context())
	if named() != 2 || !strings.Contains(log.String(), `first=[another]`) {
		t.Errorf("%d times: %s", named(), log.String())
	}
}
