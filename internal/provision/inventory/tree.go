package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The tags of plain values.
const (
	tagText  = "!!str"
	tagTruth = "!!bool"
	tagWhole = "!!int"
	tagFloat = "!!float"
	tagNone  = "!!null"
)

// mistake is one thing that is wrong with the file, and where. A line of zero is the
// whole file.
type mistake struct {
	line     int
	sentence string
}

// reader walks the file's tree and collects what is wrong with it.
type reader struct {
	mistakes []mistake
	more     int // beyond maxSaid
	// prefix is that of regrade's own labels.
	prefix string
	// lines are of the settings of hosts, by path.
	lines map[string]int
}

// maxSaid bounds what is said of one file: nobody reads more at once.
const maxSaid = 50

// say notes a mistake at a line. The path is empty for the file itself.
func (r *reader) say(line int, path, format string, args ...any) {
	if len(r.mistakes) == maxSaid {
		r.more++
		return
	}
	sentence := fmt.Sprintf(format, args...)
	if path != "" {
		sentence = path + ": " + sentence
	}
	r.mistakes = append(r.mistakes, mistake{line, sentence})
}

// err is all of them in the order of the file, nil for none.
func (r *reader) err() error {
	slices.SortStableFunc(r.mistakes, func(a, b mistake) int { return a.line - b.line })
	var all []error
	for _, m := range r.mistakes {
		if m.line > 0 {
			m.sentence = fmt.Sprintf("line %d: %s", m.line, m.sentence)
		}
		all = append(all, errors.New(m.sentence))
	}
	if r.more > 0 {
		all = append(all, fmt.Errorf("and %d more", r.more))
	}
	return errors.Join(all...)
}

// document is the root of the one document that the file is. Anchors and aliases are
// refused, so that a short file cannot stand for a long one.
func document(raw []byte) (*yaml.Node, error) {
	if len(raw) > maxFile {
		return nil, fmt.Errorf("%d bytes are more than %d", len(raw), maxFile)
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return nil, errors.New("the file is empty")
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second document begins; want one", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	var r reader
	r.plain(doc.Content[0])
	return doc.Content[0], r.err()
}

// plain refuses what needs more than the tree itself to be understood.
func (r *reader) plain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		r.say(n.Line, "", "*%s is an alias; write out what it stands for", n.Value)
		return
	case n.Anchor != "":
		r.say(n.Line, "", "&%s is an anchor; there are no aliases in this file", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		r.say(n.Line, "", "%s is a tag; write the value alone", n.Tag)
	}
	for _, c := range n.Content {
		r.plain(c)
	}
}

// entry is a key of a mapping and its value.
type entry struct {
	key  string
	line int
	node *yaml.Node
}

// entries are those of a mapping. A key that is there twice counts once and is said.
func (r *reader) entries(n *yaml.Node, path string) (out []entry) {
	if n.Kind != yaml.MappingNode {
		r.say(n.Line, path, "want keys and values, like key: value")
		return nil
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			r.say(k.Line, path, "a key is a list or a mapping; want a word")
			continue
		}
		if first, twice := seen[k.Value]; twice {
			r.say(k.Line, "", "%s is there twice, first in line %d", under(path, k.Value), first)
			continue
		}
		seen[k.Value] = k.Line
		out = append(out, entry{k.Value, k.Line, v})
	}
	return out
}

// known are the entries of a mapping by key. An unknown key is said, with what hint says
// of it or else the known key that is most like it.
func (r *reader) known(n *yaml.Node, path string, keys []string, hint func(key string) string) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	for _, e := range r.entries(n, path) {
		if slices.Contains(keys, e.key) {
			out[e.key] = e.node
			continue
		}
		r.unknown(e, path, keys, hint)
	}
	return out
}

func (r *reader) unknown(e entry, path string, keys []string, hint func(key string) string) {
	more := ""
	if hint != nil {
		more = hint(e.key)
	}
	if more == "" && len(r.mistakes) < maxSaid {
		if like := closest(e.key, keys); like != "" {
			more = "did you mean " + like + "?"
		}
	}
	if more != "" {
		more = "; " + more
	}
	r.say(e.line, "", "%s is unknown%s", under(path, shown(e.key)), more)
}

// text is a plain value as it is written: a number or a truth is text, too.
func (r *reader) text(n *yaml.Node, path string) (string, bool) {
	switch {
	case n == nil:
		return "", false
	case n.Kind != yaml.ScalarNode:
		r.say(n.Line, path, "want one value, not a list or a mapping")
		return "", false
	case n.ShortTag() == tagNone:
		r.say(n.Line, path, "has no value")
		return "", false
	}
	return n.Value, true
}

func (r *reader) truth(n *yaml.Node, path string, or bool) bool {
	v, ok := r.text(n, path)
	switch {
	case !ok:
		return or
	case v != "true" && v != "false":
		r.say(n.Line, path, "%s, want true or false", shown(v))
	}
	return v == "true"
}

func (r *reader) whole(n *yaml.Node, path string, or, least, most int) int {
	v, ok := r.text(n, path)
	if !ok {
		return or
	}
	i, err := strconv.Atoi(v)
	if err != nil || i < least || i > most {
		r.say(n.Line, path, "%s, want a whole number of %d to %d", shown(v), least, most)
		return or
	}
	return i
}

// under is the path of a key below another.
func under(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// shown is a value in a sentence: short, and on one line.
func shown(v string) string {
	const most = 60
	if len(v) > most {
		v = strings.ToValidUTF8(v[:most], "") + "…"
	}
	q := strconv.Quote(v)
	if q == `"`+v+`"` && v != "" && !strings.ContainsAny(v, " :;,") {
		return v
	}
	return q
}
