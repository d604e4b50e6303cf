package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// pages are the Markdown files of the root and of docs.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"../*.md", "*.md", "adr/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[f] = string(b)
		}
	}
	if len(all) == 0 {
		t.Fatal("no page found")
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			}
		}
	}
}

var treePath = regexp.MustCompile("`((?:internal|lab|cmd|deploy|docs|tools)/[A-Za-z0-9_./-]*)`")

// A page that sends its reader to a folder that is gone is worse than none.
func TestPathsInPagesExist(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range treePath.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("%s names %s: %v", page, m[1], err)
			}
		}
	}
}

// Every decision record is one page with the same four parts, and is listed.
func TestDecisionRecordsHaveTheirParts(t *testing.T) {
	index, err := os.ReadFile("adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range pages(t) {
		if filepath.Dir(page) != "adr" || filepath.Base(page) == "README.md" {
			continue
		}
		for _, part := range []string{"# ", "## Question", "## Decision", "## Why", "## Price"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %q", page, part)
			}
		}
		if !strings.Contains(string(index), "("+filepath.Base(page)+")") {
			t.Errorf("%s is not listed in adr/README.md", page)
		}
	}
}
