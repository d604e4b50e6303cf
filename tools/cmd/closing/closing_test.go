package main

import (
	"strings"
	"testing"
)

func TestTheClosingLineCountsScenarios(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		last string
		ok   bool
	}{
		"subtests and output are not counted": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/sub"}
{"Action":"output","Package":"p","Test":"TestA","Output":"hello\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`, "1 passed, 0 failed", true},
		"a failed scenario is counted once, not again with its package": {
			`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`, "1 passed, 1 failed", false},
		"a scenario that died in a panic or a timeout has failed": {
			`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`, "1 passed, 1 failed", false},
		"a package that does not build has failed": {
			`{"ImportPath":"p","Action":"build-output","Output":"x.go:1: no\n"}
{"Action":"fail","Package":"p"}
`, "0 passed, 1 failed", false},
		"a stream that breaks off fails what was running": {
			`{"Action":"run","Package":"p","Test":"TestA"}
`, "0 passed, 1 failed", false},
		"no scenario at all is no success": {
			`{"Action":"skip","Package":"p"}
`, "0 passed, 0 failed", false},
		"lines that are not JSON are shown": {
			`go: downloading
{"Action":"pass","Package":"p","Test":"TestA"}`, "1 passed, 0 failed", true},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			ok, err := run(strings.NewReader(test.in), &out)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if got := lines[len(lines)-1]; got != test.last || ok != test.ok {
				t.Errorf("got %q, %v; want %q, %v; all:\n%s", got, ok, test.last, test.ok, out.String())
			}
		})
	}
}

func TestTheOutputOfScenariosIsPassedOn(t *testing.T) {
	var out strings.Builder
	in := `{"Action":"output","Package":"p","Test":"TestA","Output":"    step 1: 3.2 s\n"}` + "\n"
	if _, err := run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "    step 1: 3.2 s\n") {
		t.Errorf("got %q", out.String())
	}
}
