package inventory

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
)

// placed are the keys of host.yaml that have their place elsewhere in the file: one for
// the whole fleet, since daemons that differ in them do not see each other.
var placed = map[string]string{
	"node":               "it is the host's name",
	"namespace":          "write it under settings of the fleet",
	"label-prefix":       "write it under settings of the fleet",
	"actuator-configmap": "write it under settings of the fleet",
}

// hostSettings reads the further keys of host.yaml of one host.
func (r *reader) hostSettings(n *yaml.Node, at string) map[string]any {
	r.shape(n, at, reflect.TypeFor[settings.Host](), nil, func(key string) bool {
		why, is := placed[key]
		if is {
			r.say(lineOf(n, key), under(at, key), "%s", why)
		}
		return !is
	})
	if n.Kind != yaml.MappingNode {
		return nil
	}
	out, _ := value(n).(map[string]any)
	if len(out) == 0 {
		return nil
	}
	return out
}

var duration = reflect.TypeFor[settings.Duration]()

// shape holds a tree to the type that it will be read into, so that a mistake has its
// line. Whether the values make sense others say. Of an unknown key hint may say more; a
// known one is not read where takes says no.
func (r *reader) shape(n *yaml.Node, at string, t reflect.Type, hint func(key string) string, takes func(key string) bool) {
	if r.lines == nil {
		r.lines = map[string]int{}
	}
	r.lines[at] = n.Line
	if t.Kind() == reflect.Struct {
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			if key := keyOf(t.Field(i)); key != "" {
				fields[key] = t.Field(i).Type
			}
		}
		for _, e := range r.entries(n, at) {
			field, is := fields[e.key]
			switch {
			case !is:
				r.unknown(e, at, keysOf(t), hint)
			case takes == nil || takes(e.key):
				r.shape(e.node, under(at, e.key), field, nil, nil)
			}
		}
		return
	}
	if t == flagsType {
		r.flags(n, at)
		return
	}
	if t.Kind() == reflect.Slice {
		if n.Kind != yaml.SequenceNode {
			r.say(n.Line, at, "want a list")
			return
		}
		for i, c := range n.Content {
			r.shape(c, fmt.Sprintf("%s[%d]", at, i), t.Elem(), nil, nil)
		}
		return
	}
	if v, ok := r.text(n, at); ok && (!slices.Contains(wanted(t), n.ShortTag()) || !fits(n, t)) {
		r.say(n.Line, at, "%s, want %s", shown(v), words(t))
	}
}

var flagsType = reflect.TypeFor[k3s.Config]()

// flags are k3s's, as its configuration file has them: each one value or a list of them.
func (r *reader) flags(n *yaml.Node, at string) {
	for _, e := range r.entries(n, at) {
		path := under(at, e.key)
		r.lines[path] = e.line
		if e.node.Kind != yaml.SequenceNode {
			r.text(e.node, path)
			continue
		}
		for i, c := range e.node.Content {
			r.text(c, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// fits says whether a value of a right tag can be read.
func fits(n *yaml.Node, t reflect.Type) bool {
	var i int64
	switch {
	case t == duration:
		var d settings.Duration
		return d.UnmarshalJSON([]byte(strconv.Quote(n.Value))) == nil
	case t.Kind() == reflect.Int:
		return n.Decode(&i) == nil
	case t.Kind() == reflect.Uint64:
		return n.Decode(&i) == nil && i >= 0
	case t.Kind() == reflect.Float64:
		var f float64
		return n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return true
}

// wanted are the tags of values that a type is read from.
func wanted(t reflect.Type) []string {
	switch {
	case t == duration:
		return []string{tagText, tagWhole}
	case t.Kind() == reflect.Bool:
		return []string{tagTruth}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Uint64:
		return []string{tagWhole}
	case t.Kind() == reflect.Float64:
		return []string{tagWhole, tagFloat}
	}
	return []string{tagText}
}

func words(t reflect.Type) string {
	if t == duration {
		return "a duration like 15s"
	}
	switch wanted(t)[0] {
	case tagTruth:
		return "true or false"
	case tagWhole:
		return "a number"
	}
	return "text; put it into quotes"
}

// value is a tree as plain values. Whole numbers are int64 where they fit, others float64,
// so that a file that is printed and read again has the same.
func value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			out[n.Content[i].Value] = value(n.Content[i+1])
		}
		return out
	case yaml.SequenceNode:
		out := []any{}
		for _, c := range n.Content {
			out = append(out, value(c))
		}
		return out
	}
	switch n.ShortTag() {
	case tagTruth:
		return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	case tagWhole, tagFloat:
		var i int64
		if n.ShortTag() == tagWhole && n.Decode(&i) == nil {
			return i
		}
		var f float64
		if n.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return n.Value // refused by its shape
		}
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f)
		}
		return f
	}
	return n.Value
}

// lineOf is the line of a key of a mapping, the mapping's own where it is not there.
func lineOf(n *yaml.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i].Line
		}
	}
	return n.Line
}
