package clustertest_test

import (
	"testing"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

var (
	_ controller.Cluster = (*clustertest.Cluster)(nil)
	_ controller.Waker   = (*clustertest.Cluster)(nil)
)

func TestConformance(t *testing.T) {
	clustertest.Conformance(t, func(*testing.T) clustertest.Subject {
		return clustertest.New(clustertest.State{Nodes: map[string]observe.Node{"n1": {Node: swap.Node{
			Labels: map[string]string{"keep": "1"}, Annotations: map[string]string{"keep": "1"},
			Taints: []swap.Taint{{Key: "foreign", Effect: "NoExecute"}},
		}}}})
	})
}
