package doctor

import (
	"fmt"
	"slices"

	"github.com/exadev/regrade/internal/status"
)

// Grade is how much a finding weighs.
type Grade string

// Grades. A warning is worth knowing and keeps nothing from working; it does not fail
// a command.
const (
	OK   Grade = "ok"
	Warn Grade = "warn"
	Fail Grade = "fail"
)

// Finding is what one check found.
type Finding struct {
	// Node is the host that it is about, empty where it is about this host or the fleet.
	Node  string `json:"node,omitempty"`
	Check string `json:"check"`
	Grade Grade  `json:"grade"`
	// Code is empty where nothing is wrong.
	Code     string `json:"code,omitempty"`
	Sentence string `json:"sentence"`
	// Cure is what a person does about it, empty where nothing is wrong.
	Cure string `json:"cure,omitempty"`
}

// Document is what `regrade doctor` and `regrade host doctor` print as JSON.
type Document struct {
	Protocol int `json:"protocol"`
	// Version is regrade's own, as the command that looked has it.
	Version string `json:"version"`
	// Node is the host that was looked at, empty for a fleet.
	Node     string    `json:"node,omitempty"`
	Findings []Finding `json:"findings"`
}

// New is a document of findings.
func New(version, node string, fs []Finding) Document {
	if fs == nil {
		fs = []Finding{}
	}
	return Document{Protocol: status.Protocol, Version: version, Node: node, Findings: fs}
}

// Worst is the heaviest grade among findings, OK for none.
func Worst(fs []Finding) Grade {
	worst := OK
	for _, f := range fs {
		if weight(f.Grade) > weight(worst) {
			worst = f.Grade
		}
	}
	return worst
}

// weight of a grade; one that nobody knows, of another version perhaps, weighs the most.
func weight(g Grade) int {
	if i := slices.Index([]Grade{OK, Warn, Fail}, g); i >= 0 {
		return i
	}
	return 3
}

// check collects what one check finds.
type check struct {
	name  string
	found []Finding
}

func (c *check) add(g Grade, node, code, format string, args ...any) {
	c.found = append(c.found, Finding{Node: node, Check: c.name, Grade: g, Code: code, Sentence: fmt.Sprintf(format, args...), Cure: Cure(code)})
}

func (c *check) warn(code, format string, args ...any) { c.add(Warn, "", code, format, args...) }
func (c *check) fail(code, format string, args ...any) { c.add(Fail, "", code, format, args...) }

// or is what was found, or that all is well.
func (c *check) or(format string, args ...any) []Finding {
	if len(c.found) == 0 {
		return []Finding{{Check: c.name, Grade: OK, Sentence: fmt.Sprintf(format, args...)}}
	}
	return c.found
}
