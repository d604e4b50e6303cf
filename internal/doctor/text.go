package doctor

import (
	"fmt"
	"strings"
)

// Words are a document for people: what is wrong first, each with its cure below it,
// then what is well.
func (d Document) Words() string {
	var b strings.Builder
	for _, g := range []Grade{Fail, Warn, OK} {
		for _, f := range d.Findings {
			if f.Grade != g {
				continue
			}
			code := ""
			if f.Code != "" {
				code = " (" + f.Code + ")"
			}
			node := ""
			if f.Node != "" {
				node = f.Node + ": "
			}
			fmt.Fprintf(&b, "%-4s  %-10s %s%s%s\n", f.Grade, f.Check, node, f.Sentence, code)
			if f.Cure != "" {
				fmt.Fprintf(&b, "%16s > %s\n", "", f.Cure)
			}
		}
	}
	fails, warns := count(d.Findings, Fail), count(d.Findings, Warn)
	switch {
	case fails == 0 && warns == 0:
		b.WriteString("nothing is wrong\n")
	default:
		fmt.Fprintf(&b, "%s, %s\n", plural(fails, "failure"), plural(warns, "warning"))
	}
	return b.String()
}

func count(fs []Finding, g Grade) (n int) {
	for _, f := range fs {
		if f.Grade == g {
			n++
		}
	}
	return n
}
