package importrule_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	Imports    []string
	GoFiles    []string
	Doc        string
}

// own is the path inside the module, false for a foreign package.
func own(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// checkImports holds one package of ours against the rules and gives each
// breach as a sentence.
func checkImports(p pkg, standard map[string]bool) []string {
	rel, ok := own(p.ImportPath)
	if !ok {
		return nil
	}
	ours, ok := ringOf(rel)
	if !ok {
		return []string{fmt.Sprintf("%s has no ring: add it to rings in rules_test.go", rel)}
	}
	if p.Name == "main" {
		ours = mainRing // a generator may stand beside the package it reads
	}
	var bad []string
	say := func(imported, reason string) {
		bad = append(bad, fmt.Sprintf("%s (%s) imports %s: %s", rel, ours, imported, reason))
	}
	for _, imported := range p.Imports {
		if target, ok := own(imported); ok {
			theirs, known := ringOf(target)
			switch {
			case !known:
				// said once, at the package itself
			case demo(target) != "" && !below(rel, "cmd/demo") && demo(rel) == "":
				say(target, demo(target))
			case theirs > ours:
				say(target, outward[ours])
			case theirs == ours && sameRing[ours] != "" && !family(rel, target):
				say(target, sameRing[ours])
			}
		} else if ours == pure && !valuePackages[imported] {
			if standard[imported] {
				say(imported, "a pure package takes only value packages of the standard library (valuePackages in rules_test.go)")
			} else {
				say(imported, "a pure package has no foreign dependency")
			}
		}
		if f, ok := foreignOf(imported); ok && !slices.ContainsFunc(f.only, func(d string) bool { return below(rel, d) }) {
			say(imported, f.reason)
		}
	}
	return bad
}

// demo is why a package is not for the product, empty for one that is.
func demo(rel string) string {
	for dir, reason := range demoOnly {
		if below(rel, dir) {
			return reason
		}
	}
	return ""
}

// family: a package and those in folders below it are one room.
func family(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return len(x) > 1 && len(y) > 1 && x[0] == "internal" && x[1] == y[1] &&
		(below(a, b) || below(b, a))
}

// checkClock finds uses of the clock and the terminal in a file of a pure package.
func checkClock(fset *token.FileSet, name string, source any) ([]string, error) {
	file, err := parser.ParseFile(fset, name, source, 0)
	if err != nil {
		return nil, err
	}
	names := map[string]map[string]bool{}
	var bad []string
	for _, imp := range file.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		var forbidden map[string]bool
		switch path {
		case "time":
			forbidden = clockNames
		case "fmt":
			forbidden = printNames
		default:
			continue
		}
		local := path
		if imp.Name != nil {
			local = imp.Name.Name
		}
		if local == "." {
			bad = append(bad, fmt.Sprintf("%s: dot import of %s hides uses of it", fset.Position(imp.Pos()), path))
		}
		names[local] = forbidden
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || !names[x.Name][sel.Sel.Name] {
			return true
		}
		reason := "now is an argument of a pure function"
		if printNames[sel.Sel.Name] {
			reason = "a pure package returns what it has to say"
		}
		bad = append(bad, fmt.Sprintf("%s: %s.%s: %s", fset.Position(sel.Pos()), x.Name, sel.Sel.Name, reason))
		return true
	})
	return bad, nil
}
