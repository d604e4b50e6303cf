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
	return printable(b.String())
}

// printable leaves no sign in it that a terminal would obey: hosts and the API wrote parts of it.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && (c < ' ' || c >= 0x7f && c < 0xa0) {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
}

func count(fs []Finding, g Grade) (n int) {
	for _, f := range fs {
		if f.Grade == g {
			n++
		}
	}
	return n
}
