package cli

import (
	"io"
	"os"
	"strings"

	"github.com/exadev/regrade/internal/cli/env"
)

// paint puts colours and shapes on what people read. Away from a terminal there
// are no colours, and where the locale is not UTF-8 no shapes but ASCII.
type paint struct {
	colours, unicode bool
}

func painter(e env.Env) paint {
	locale := ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale = e.Getenv(name); locale != "" {
			break
		}
	}
	locale = strings.ToLower(locale)
	return paint{
		colours: terminal(e.Out) && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb",
		unicode: strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8"),
	}
}

// terminal says whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

type colour string

const (
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	bold   colour = "\x1b[1m"
	plain  colour = "\x1b[0m"
)

func (p paint) in(c colour, s string) string {
	if !p.colours || s == "" {
		return s
	}
	return string(c) + s + string(plain)
}

// column is one column of a table; its cells may be coloured, which a
// tabwriter would count as text.
type column struct {
	head  string
	right bool
}

// table prints rows under their heads, two blanks between columns. A row's
// cells are painted after they are padded.
func (p paint) table(w io.Writer, indent string, columns []column, rows [][]cell) {
	width := make([]int, len(columns))
	for i, c := range columns {
		width[i] = runes(c.head)
		for _, r := range rows {
			width[i] = max(width[i], runes(r[i].text))
		}
	}
	line := func(cells []cell) {
		var b strings.Builder
		b.WriteString(indent)
		for i, c := range cells {
			pad := strings.Repeat(" ", width[i]-runes(c.text))
			text := c.text
			if c.colour != "" {
				text = p.in(c.colour, text)
			}
			switch {
			case columns[i].right:
				b.WriteString(pad + text)
			case i == len(cells)-1:
				b.WriteString(text)
			default:
				b.WriteString(text + pad)
			}
			if i < len(cells)-1 {
				b.WriteString("  ")
			}
		}
		_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n")
	}
	heads := make([]cell, len(columns))
	for i, c := range columns {
		heads[i] = cell{text: c.head}
	}
	line(heads)
	for _, r := range rows {
		line(r)
	}
}

type cell struct {
	text   string
	colour colour
}

func runes(s string) int { return len([]rune(s)) }

// blocks are eight heights of a bar.
var blocks = map[bool][]rune{true: []rune("▁▂▃▄▅▆▇█"), false: []rune("_.-=+*%#")}

// spark draws values from 0 to top in at most width places; where there are
// more values than places, each place is the highest of its own. NaN is a gap.
func (p paint) spark(values []float64, top float64, width int) string {
	if len(values) == 0 || width <= 0 || !(top > 0) {
		return ""
	}
	shapes := blocks[p.unicode]
	places := min(width, len(values))
	out := make([]rune, places)
	for i := range places {
		from, to := i*len(values)/places, (i+1)*len(values)/places
		highest, known := 0.0, false
		for _, v := range values[from:to] {
			if v == v {
				highest, known = max(highest, v), true
			}
		}
		if !known {
			out[i] = ' '
			continue
		}
		at := int(highest / top * float64(len(shapes)))
		out[i] = shapes[min(max(at, 0), len(shapes)-1)]
	}
	return string(out)
}
