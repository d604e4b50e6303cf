package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	filePath = regexp.MustCompile("`((?:internal|lab|cmd|deploy|docs)/[^`]*)`")
	caseName = regexp.MustCompile(`"([^"]+)"`)
)

// Each safety rule has a row; the files it names exist, and so do the tests
// (`TestX`) and the cases ("a sentence").
func TestEachSafetyRuleNamesItsProof(t *testing.T) {
	page, err := os.ReadFile("invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testSources(t)
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil {
			continue
		}
		rows++
		if n != rows {
			t.Errorf("row %d is of rule %d", rows, n)
		}
		for _, m := range filePath.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("rule %d names %s: %v", n, m[1], err)
			}
		}
		proofs := testName.FindAllStringSubmatch(cells[3], -1)
		for _, m := range proofs {
			if !strings.Contains(tests, "func "+m[1]+"(") {
				t.Errorf("rule %d names %s, which does not exist", n, m[1])
			}
		}
		for _, m := range caseName.FindAllStringSubmatch(cells[3], -1) {
			if !strings.Contains(tests, `"`+m[1]+`"`) {
				t.Errorf("rule %d names the case %q, which does not exist", n, m[1])
			}
		}
		if len(proofs) == 0 && !strings.Contains(cells[3], "not built yet") {
			t.Errorf("rule %d names no test", n)
		}
		if strings.TrimSpace(cells[4]) == "" {
			t.Errorf("rule %d says nothing of a break check", n)
		}
	}
	if rows != 31 {
		t.Errorf("the page has %d rules, the design 31", rows)
	}
}

// testSources is the text of all test files of the product and the lab.
func testSources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"../internal", "../lab", "../cmd"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			b.Write(src)
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return b.String()
}
