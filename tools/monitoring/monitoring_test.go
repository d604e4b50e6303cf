package monitoring

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/web"
)

const folder = "../../deploy/monitoring/"

// rules is the shape of a rule file; an unknown key is an error, as in promtool.
type rules struct {
	Groups []struct {
		Name     string `json:"name"`
		Interval string `json:"interval,omitempty"`
		Rules    []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for,omitempty"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestTheAlertsAreRules(t *testing.T) {
	raw, err := os.ReadFile(folder + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.UnmarshalStrict(raw, &r); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			t.Run(rule.Alert, func(t *testing.T) {
				if rule.Alert == "" || names[rule.Alert] || !model.LabelName(rule.Alert).IsValid() {
					t.Error("the name is empty, taken or no name")
				}
				names[rule.Alert] = true
				if rule.For != "" {
					if d, err := model.ParseDuration(rule.For); err != nil || time.Duration(d) <= 0 {
						t.Errorf("for %q: %v", rule.For, err)
					}
				}
				if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
					t.Errorf("severity %q", rule.Labels["severity"])
				}
				if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
					t.Error("nobody is told what it means")
				}
				known(t, rule.Expr)
			})
		}
	}
	if len(names) < 8 {
		t.Errorf("%d alerts", len(names))
	}
}

func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	raw, err := os.ReadFile(folder + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string `json:"title"`
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
			GridPos struct{ X, Y, W, H int } `json:"gridPos"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || len(d.Panels) < 10 {
		t.Fatalf("%q has %d panels", d.Title, len(d.Panels))
	}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		t.Run(p.Title, func(t *testing.T) {
			if len(p.Targets) == 0 {
				t.Error("it asks for nothing")
			}
			for _, q := range p.Targets {
				known(t, q.Expr)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other, is := taken[[2]int{x, y}]; is || x >= 24 {
						t.Fatalf("lies on %q, or beyond the grid", other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		})
	}
}

// known parses an expression and wants every metric in it to be the product's,
// with no label that the metric does not have.
func known(t *testing.T, expr string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(expr, "$job", ".*"))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	metrics := web.Metrics()
	for _, of := range []map[string][]string{web.ProbeMetrics(), web.HeartbeatMetrics(), web.AlertMetrics(), web.RecoveryMetrics()} {
		maps.Copy(metrics, of)
	}
	seen := 0
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		seen++
		name := v.Name
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, end); cut && metrics[base] != nil {
				name = base
			}
		}
		have, ok := metrics[name]
		if !ok {
			t.Errorf("%s: there is no metric %s", expr, v.Name)
			return nil
		}
		for _, m := range v.LabelMatchers {
			if m.Name == labels.MetricName || m.Name == "job" || m.Name == "namespace" {
				continue // what a scrape adds
			}
			if !slices.Contains(have, m.Name) {
				t.Errorf("%s: %s has no label %s", expr, name, m.Name)
			}
		}
		return nil
	})
	if seen == 0 {
		t.Errorf("%s asks for no metric", expr)
	}
}
