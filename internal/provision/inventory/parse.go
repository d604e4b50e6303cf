package inventory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/swap"
)

const (
	maxFile  = 1 << 20
	maxHosts = 1000
	// spare is by how many servers more than the target a cluster may have where the file
	// does not say: the one that a swap adds, and one that a person does.
	spare = 2
	// KeyMaxServers is the setting that has a place of its own in the file.
	KeyMaxServers = "max-servers"
	keyTarget     = "target"
)

// Parse reads fleet.yaml strictly. Flags are the settings that `regrade manifests` takes,
// by name. Everything that is wrong with the file is said at once, each with its line.
func Parse(raw []byte, flags []string) (Fleet, error) {
	root, err := document(raw)
	if err != nil {
		return Fleet{}, err
	}
	var r reader
	f := r.fleet(root, flags)
	r.together(f)
	if err := r.err(); err != nil {
		return Fleet{}, err
	}
	return f, nil
}

func (r *reader) fleet(root *yaml.Node, flags []string) (f Fleet) {
	flags = slices.DeleteFunc(slices.Clone(flags), func(flag string) bool { return flag == KeyMaxServers })
	keys := r.known(root, "", keysOf(reflect.TypeFor[Fleet]()), func(key string) string {
		if slices.Contains(flags, key) {
			return "write it under settings"
		}
		return ""
	})
	if n := keys["settings"]; n != nil {
		f.Settings = r.settings(n, flags)
	}
	r.prefix = f.prefix()
	f.MaxServers = r.whole(keys[KeyMaxServers], KeyMaxServers, f.Target()+spare, 1, 1000)
	n := keys["hosts"]
	switch {
	case n == nil:
		r.say(0, "", "hosts is missing: want a list with at least one host")
	case n.Kind != yaml.SequenceNode || len(n.Content) == 0:
		r.say(n.Line, "hosts", "want a list with at least one host")
	case len(n.Content) > maxHosts:
		r.say(n.Line, "hosts", "%d are more than %d", len(n.Content), maxHosts)
	default:
		for i, c := range n.Content {
			f.Hosts = append(f.Hosts, r.host(c, hostPath(i)))
		}
	}
	return f
}

func hostPath(i int) string { return fmt.Sprintf("hosts[%d]", i) }

// settings are the flags of `regrade manifests` that the file sets. What a value may be
// is the flag's own to say.
func (r *reader) settings(n *yaml.Node, flags []string) (out []Setting) {
	const at = "settings"
	for _, e := range r.entries(n, at) {
		if !slices.Contains(flags, e.key) {
			r.unknown(e, at, flags, func(key string) string {
				if key == KeyMaxServers || key == "hosts" {
					return "write it at the top of the file, beside settings"
				}
				return ""
			})
			continue
		}
		if v, ok := r.text(e.node, under(at, e.key)); ok {
			out = append(out, Setting{Name: e.key, Value: v, Line: e.line})
		}
	}
	return out
}

// Setting is the value of a flag of `regrade manifests`, and whether the file has it.
func (f Fleet) Setting(name string) (Setting, bool) {
	for _, s := range f.Settings {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}

// Target is the number of voters that the file asks for. One that is no number is the
// flag's to refuse, and the default here.
func (f Fleet) Target() int {
	var r reader
	if s, ok := f.Setting(keyTarget); ok {
		return r.whole(&yaml.Node{Kind: yaml.ScalarNode, Tag: tagText, Value: strings.TrimSpace(s.Value)}, "", swap.DefaultPolicy().Target, 1, 1000)
	}
	return swap.DefaultPolicy().Target
}

// prefix is that of regrade's labels. One that is none is refused with the settings.
func (f Fleet) prefix() string {
	if s, ok := f.Setting("label-prefix"); ok {
		return s.Value
	}
	return fleet.DefaultPrefix
}

// keysOf are the keys of a type's document.
func keysOf(t reflect.Type) (out []string) {
	for i := range t.NumField() {
		if key := keyOf(t.Field(i)); key != "" {
			out = append(out, key)
		}
	}
	return out
}

// keyOf is a field's key, empty where it has none.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.TrimPrefix(key, "-")
}
