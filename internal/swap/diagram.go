package swap

import (
	"fmt"
	"strings"
)

// Diagram is docs/swap-states.md: the transition table as a Mermaid state
// diagram and as a table. It is made from Table alone; make check fails when
// the file is stale.
func Diagram() string {
	var b strings.Builder
	b.WriteString("# States of a swap\n\nMade from the transition table in `internal/swap` by `make generate`. Do not edit.\n\n```mermaid\nstateDiagram-v2\n  [*] --> idle\n")
	drawn := map[string]bool{}
	for _, r := range Table() {
		if r.To == "" || r.To == r.From {
			continue
		}
		line := fmt.Sprintf("  %s --> %s: %s\n", mermaid(r.From), mermaid(r.To), r.Code)
		if !drawn[line] {
			drawn[line] = true
			b.WriteString(line)
		}
	}
	b.WriteString("```\n\nIn each state the first row whose condition holds is taken. A row without an action waits.\n")
	var from State
	for _, r := range Table() {
		if r.From != from {
			from = r.From
			fmt.Fprintf(&b, "\n## %s\n\n| when | action | next state | code |\n|---|---|---|---|\n", from)
		}
		when, do, to := r.If, string(r.Do), r.To
		if when == "" {
			when = "otherwise"
		}
		if do == "" {
			do = "–"
		}
		if to == "" {
			to = r.From
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", when, do, to, r.Code)
	}
	return b.String()
}

// mermaid names may not hold dashes.
func mermaid(s State) string { return strings.ReplaceAll(string(s), "-", "_") }
