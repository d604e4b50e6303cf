package importrule_test

import (
	"go/token"
	"strings"
	"testing"
)

// The break check of the rule, kept: each kind of breach is found.
func TestEachBreachIsFound(t *testing.T) {
	standard := set("os", "log/slog", "context", "math/rand", "sync", "net/http")
	for name, test := range map[string]struct {
		p    pkg
		want string // "" means allowed
	}{
		"a pure package reads a file":             {pkg{ImportPath: module + "/internal/swap", Imports: []string{"os"}}, "value packages"},
		"a pure package logs":                     {pkg{ImportPath: module + "/internal/lease", Imports: []string{"log/slog"}}, "value packages"},
		"a pure package takes a context":          {pkg{ImportPath: module + "/internal/quorum", Imports: []string{"context"}}, "value packages"},
		"a pure package throws dice":              {pkg{ImportPath: module + "/internal/decide", Imports: []string{"math/rand"}}, "value packages"},
		"a pure package below a pure one":         {pkg{ImportPath: module + "/internal/swap/golden", Imports: []string{"sync"}}, "value packages"},
		"a pure package has a dependency":         {pkg{ImportPath: module + "/internal/status", Imports: []string{"sigs.k8s.io/yaml"}}, "foreign"},
		"a pure package imports a port":           {pkg{ImportPath: module + "/internal/swap", Imports: []string{module + "/internal/observe"}}, "decisions are functions"},
		"a port imports an adapter":               {pkg{ImportPath: module + "/internal/observe", Imports: []string{module + "/internal/kube"}}, "declared by who uses it"},
		"an adapter imports an adapter":           {pkg{ImportPath: module + "/internal/kube", Imports: []string{module + "/internal/etcd"}}, "never import each other"},
		"an adapter imports a loop":               {pkg{ImportPath: module + "/internal/platform/systemd", Imports: []string{module + "/internal/hostd"}}, "knows no loop"},
		"a loop imports a loop":                   {pkg{ImportPath: module + "/internal/hostd", Imports: []string{module + "/internal/controller"}}, "never imports another"},
		"a loop imports a command":                {pkg{ImportPath: module + "/internal/controller", Imports: []string{module + "/internal/cli"}}, "knows nothing of it"},
		"a loop imports main":                     {pkg{ImportPath: module + "/internal/controller", Imports: []string{module + "/cmd/regrade"}}, "knows nothing of it"},
		"Kubernetes outside its package":          {pkg{ImportPath: module + "/internal/controller", Imports: []string{"k8s.io/api/core/v1"}}, "only in internal/kube"},
		"etcd outside its package":                {pkg{ImportPath: module + "/internal/hostd", Imports: []string{"go.etcd.io/etcd/client/v3"}}, "only in internal/etcd"},
		"D-Bus outside its package":               {pkg{ImportPath: module + "/internal/hostd", Imports: []string{"github.com/coreos/go-systemd/v22/dbus"}}, "D-Bus only"},
		"the product runs etcd":                   {pkg{ImportPath: module + "/internal/etcd", Imports: []string{"go.etcd.io/etcd/server/v3/embed"}}, "tests and the demo"},
		"a shipped package runs the demo etcd":    {pkg{ImportPath: module + "/internal/cli", Imports: []string{module + "/internal/etcd/embedded"}}, "tests and the demo"},
		"the product imports the lab":             {pkg{ImportPath: module + "/internal/hostd", Imports: []string{module + "/lab/host"}}, "test tool"},
		"a shipped package imports the simulator": {pkg{ImportPath: module + "/internal/cli", Imports: []string{module + "/internal/sim"}}, "for tests and the demo"},
		"a package nobody gave a ring":            {pkg{ImportPath: module + "/internal/surprise"}, "has no ring"},

		"pure imports pure":                {pkg{ImportPath: module + "/internal/swap", Imports: []string{module + "/internal/fleet", "time", "encoding/json"}}, ""},
		"an adapter imports a port":        {pkg{ImportPath: module + "/internal/kube", Imports: []string{module + "/internal/observe", "k8s.io/api/core/v1"}}, ""},
		"a generator beside a pure one":    {pkg{ImportPath: module + "/internal/swap/diagram", Name: "main", Imports: []string{"os", module + "/internal/swap"}}, ""},
		"the demo runs etcd":               {pkg{ImportPath: module + "/cmd/demo", Name: "main", Imports: []string{module + "/internal/etcd/embedded"}}, ""},
		"the demo uses the simulator":      {pkg{ImportPath: module + "/cmd/demo", Name: "main", Imports: []string{module + "/internal/sim"}}, ""},
		"a folder below a loop is its own": {pkg{ImportPath: module + "/internal/hostd", Imports: []string{module + "/internal/hostd/steps"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checkImports(test.p, standard), "\n")
			if test.want == "" && got != "" {
				t.Errorf("refused: %s", got)
			}
			if test.want != "" && !strings.Contains(got, test.want) {
				t.Errorf("got %q, want a breach that says %q", got, test.want)
			}
		})
	}
}

func TestTheClockIsFoundInAPurePackage(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		want   int
	}{
		"reads the clock":        {`package p; import "time"; func f() time.Time { return time.Now() }`, 1},
		"under another name":     {`package p; import tm "time"; func f() { tm.Sleep(tm.Second) }`, 1},
		"as a value":             {`package p; import "time"; var now = time.Now`, 1},
		"with a dot import":      {`package p; import . "time"; func f() Time { return Now() }`, 1},
		"waits":                  {`package p; import "time"; func f() { <-time.After(1); _ = time.NewTicker }`, 2},
		"prints":                 {`package p; import "fmt"; func f() { fmt.Println() }`, 1},
		"types and sums of time": {`package p; import "time"; func f(t time.Time) time.Time { return t.Add(time.Second) }`, 0},
		"formats":                {`package p; import "fmt"; func f() string { return fmt.Sprintf("%d", 1) }`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bad, err := checkClock(token.NewFileSet(), "p.go", test.source)
			if err != nil {
				t.Fatal(err)
			}
			if len(bad) != test.want {
				t.Errorf("got %d breaches %q, want %d", len(bad), bad, test.want)
			}
		})
	}
}
