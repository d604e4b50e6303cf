package importrule_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func TestImportsPointInwards(t *testing.T) {
	standard := map[string]bool{}
	var ours []pkg
	for _, p := range list(t) {
		standard[p.ImportPath] = p.Standard
		if _, ok := own(p.ImportPath); ok {
			ours = append(ours, p)
		}
	}
	if len(ours) == 0 {
		t.Fatal("go list shows no package of ours: the rule would hold of nothing")
	}
	for _, p := range ours {
		for _, breach := range checkImports(p, standard) {
			t.Error(breach)
		}
		rel, _ := own(p.ImportPath)
		if r, ok := ringOf(rel); !ok || r != pure || p.Name == "main" {
			continue
		}
		for _, name := range p.GoFiles {
			bad, err := checkClock(token.NewFileSet(), filepath.Join(p.Dir, name), nil)
			if err != nil {
				t.Error(err)
			}
			for _, breach := range bad {
				t.Error(breach)
			}
		}
	}
}

// list is what the product's packages are made of, dependencies included.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Dir,Standard,Imports,GoFiles,Doc", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}

// All modules: the product, the lab, the stand-in and the tools.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented := map[string]bool{} // by folder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || strings.TrimSpace(file.Doc.Text()) != ""
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if len(documented) == 0 {
		t.Fatal("no package found")
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment: one sentence says what a newcomer finds here", strings.TrimPrefix(dir, root+"/"))
		}
	}
}
