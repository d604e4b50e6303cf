package docs_test

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	hostsettings "github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/web"
)

// The interface page against the code, in both directions.
func TestTheInterfacePageListsWhatTheCodeFixes(t *testing.T) {
	page, err := os.ReadFile("interface.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := heldCells(string(page))
	for source, names := range map[string][]string{
		"fleet":             constantsOf(t, "../internal/fleet"),
		"keys":              keysOf(fleet.DefaultKeys()),
		"codes":             reasonCodes(t),
		"settings":          settings(t),
		"env.example":       composeVariables(t),
		"fleet.yaml":        fields(reflect.TypeFor[inventory.Fleet](), nil),
		"host.yaml":         fields(reflect.TypeFor[hostsettings.Host](), nil),
		"docker document":   fields(reflect.TypeFor[setup.Docker](), nil),
		"json status":       fields(reflect.TypeFor[status.Status](), shared),
		"json report":       fields(reflect.TypeFor[status.Report](), shared),
		"json record":       fields(reflect.TypeFor[status.Record](), shared),
		"json request":      fields(reflect.TypeFor[status.Request](), nil),
		"json pause":        fields(reflect.TypeFor[status.Pause](), nil),
		"metrics":           slices.Collect(maps.Keys(web.Metrics())),
		"metrics probe":     slices.Collect(maps.Keys(web.ProbeMetrics())),
		"metrics recovery":  slices.Collect(maps.Keys(web.RecoveryMetrics())),
		"metrics heartbeat": slices.Collect(maps.Keys(web.HeartbeatMetrics())),
		"metrics alert":     slices.Collect(maps.Keys(web.AlertMetrics())),
		"json health":       fields(reflect.TypeFor[heartbeat.Document](), []reflect.Type{reflect.TypeFor[status.Swap]()}),
		"json message":      fields(reflect.TypeFor[alert.Message](), nil),
		"json alert state":  fields(reflect.TypeFor[alert.State](), []reflect.Type{reflect.TypeFor[alert.Message]()}),
		"kinds":             kinds(),
		"json verdict":      fields(reflect.TypeFor[fitness.Verdict](), shared[1:]),
		"json entry":        fields(reflect.TypeFor[fitness.Entry](), nil),
		"json measure":      fields(reflect.TypeFor[fitness.Measure](), nil),
		"json reason":       fields(reflect.TypeFor[status.Reason](), nil),
		"json fact":         fields(reflect.TypeFor[status.Fact](), nil),
		"json time":         fields(reflect.TypeFor[status.StepTime](), nil),
	} {
		t.Run(source, func(t *testing.T) {
			if len(names) == 0 {
				t.Fatal("the code names nothing: the check would hold of nothing")
			}
			for _, name := range names {
				if !listed[source][name] {
					t.Errorf("interface.md lacks %q", name)
				}
			}
			for name := range listed[source] {
				if !slices.Contains(names, name) {
					t.Errorf("interface.md lists %q, which the code does not have", name)
				}
			}
			delete(listed, source)
		})
	}
	for source := range listed {
		t.Errorf("interface.md holds a table against %q, which this test does not know", source)
	}
}

func kinds() (names []string) {
	for _, k := range alert.Kinds() {
		names = append(names, string(k))
	}
	return names
}

var (
	marker = regexp.MustCompile(`^<!-- held: (.+) -->$`)
	quoted = regexp.MustCompile("`([^`]+)`")
)

// heldCells are the quoted words in the first column of each marked section.
func heldCells(page string) map[string]map[string]bool {
	cells := map[string]map[string]bool{}
	source := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			source = ""
		}
		if m := marker.FindStringSubmatch(line); m != nil {
			source = m[1]
			if cells[source] == nil {
				cells[source] = map[string]bool{}
			}
		}
		if source == "" || !strings.HasPrefix(line, "|") {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range quoted.FindAllStringSubmatch(first, -1) {
			cells[source][m[1]] = true
		}
	}
	return cells
}

// constantsOf are the values of a package's exported constants.
func constantsOf(t *testing.T, dir string) []string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	p, err := conf.Check(dir, fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, name := range p.Scope().Names() {
		c, ok := p.Scope().Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		if c.Val().Kind() == constant.String {
			values = append(values, constant.StringVal(c.Val()))
		} else {
			values = append(values, c.Val().ExactString())
		}
	}
	return values
}

// keysOf are the values of all methods that name one key.
func keysOf(k fleet.Keys) []string {
	var values []string
	v := reflect.ValueOf(k)
	for i := range v.NumMethod() {
		m := v.Method(i)
		if m.Type().NumIn() != 0 || m.Type().NumOut() != 1 || m.Type().Out(0).Kind() != reflect.String || v.Type().Method(i).Name == "Prefix" {
			continue
		}
		values = append(values, m.Call(nil)[0].String())
	}
	return values
}

var variable = regexp.MustCompile(`"((?:FLEET_ROLE|NODE_RECOVERY|HEARTBEAT|FLEET_ALERT)_[A-Z0-9_]+[A-Z0-9])"`)

// settings are the environment variables that the product's sources name.
func settings(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir("../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range variable.FindAllSubmatch(src, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// composeVariables are what the .env of a Compose project sets, but for those that
// are flags of ours.
func composeVariables(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../deploy/compose/env.example")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(raw)) {
		if name, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(name, "FLEET_ROLE_") {
			names = append(names, name)
		}
	}
	return names
}

// reasonCodes are the values of all constants named Code… in the product.
func reasonCodes(t *testing.T) []string {
	t.Helper()
	var codes []string
	err := filepath.WalkDir("../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				s := spec.(*ast.ValueSpec)
				for i, name := range s.Names {
					if !strings.HasPrefix(name.Name, "Code") || name.Name == "Code" || i >= len(s.Values) {
						continue
					}
					if lit, ok := s.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						code, err := strconv.Unquote(lit.Value)
						if err != nil {
							return err
						}
						codes = append(codes, code)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// shared types have a table of their own.
var shared = []reflect.Type{
	reflect.TypeFor[fitness.Verdict](), reflect.TypeFor[fitness.Measure](),
	reflect.TypeFor[status.Pause](),
	reflect.TypeFor[status.Reason](), reflect.TypeFor[status.Fact](), reflect.TypeFor[status.StepTime](), reflect.TypeFor[status.Request](),
}

// fields are the JSON field names of a type and of what it holds, as paths:
// swap.id, hosts[].name. They do not go into the given types.
func fields(typ reflect.Type, stop []reflect.Type) []string {
	var all []string
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || name == "" {
				continue
			}
			path := prefix + name
			all = append(all, path)
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				if inner.Kind() == reflect.Slice {
					path += "[]"
				}
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && !slices.Contains(stop, inner) && strings.HasPrefix(inner.PkgPath(), "github.com/exadev/regrade/") {
				walk(inner, path+".")
			}
		}
	}
	walk(typ, "")
	return all
}
