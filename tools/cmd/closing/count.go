package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json, go doc cmd/go
// buildjson for the build actions).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type count struct {
	passed, skipped int
	failed          []string // names of scenarios
	broken          []string // packages that failed without a failing scenario: no build, a panic, a timeout
	running         map[string]bool
}

// take counts one line and returns what of it is for people.
func (c *count) take(line []byte) string {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return string(line) // not ours: show it as it is
	}
	scenario := e.Test != "" && !strings.Contains(e.Test, "/")
	name := e.Package + "." + e.Test
	switch e.Action {
	case "output", "build-output":
		return e.Output
	case "run":
		if scenario {
			if c.running == nil {
				c.running = map[string]bool{}
			}
			c.running[name] = true
		}
	case "pass", "fail", "skip":
		switch {
		case scenario:
			delete(c.running, name)
			switch e.Action {
			case "pass":
				c.passed++
			case "fail":
				c.failed = append(c.failed, e.Test)
			default:
				c.skipped++
			}
		case e.Test == "" && e.Action == "fail":
			c.packageFailed(e.Package)
		}
	}
	return ""
}

// packageFailed: scenarios that began and never ended died with their package.
func (c *count) packageFailed(pkg string) {
	for name := range c.running {
		if test, ok := strings.CutPrefix(name, pkg+"."); ok {
			c.failed = append(c.failed, test)
			delete(c.running, name)
		}
	}
	c.broken = append(c.broken, pkg)
}

func (c *count) good() bool {
	return len(c.failed) == 0 && len(c.broken) == 0 && c.passed > 0
}

func (c *count) closing() string {
	var b strings.Builder
	failed := slices.Clone(c.failed)
	for name := range c.running {
		failed = append(failed, name) // the stream ended first
	}
	slices.Sort(failed)
	for _, name := range failed {
		fmt.Fprintf(&b, "failed: %s\n", name)
	}
	if len(failed) == 0 {
		for _, pkg := range c.broken {
			fmt.Fprintf(&b, "failed: %s did not run\n", pkg)
		}
	}
	if c.skipped > 0 {
		fmt.Fprintf(&b, "skipped: %d\n", c.skipped)
	}
	n := len(failed)
	if n == 0 {
		n = len(c.broken)
	}
	fmt.Fprintf(&b, "%d passed, %d failed\n", c.passed, n)
	return b.String()
}
