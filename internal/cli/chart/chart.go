package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
)

// Values that cannot stand in a manifest by themselves, so that each place in which
// they are found is the setting's.
const (
	anyNamespace = "zz-namespace"
	anyPort      = 29465
)

var samples = map[string]string{
	"namespace":          anyNamespace,
	"image":              "zz-image:1",
	"label-prefix":       "zz-prefix.example/",
	"actuator-configmap": "zz-reports",
	"fsync-dir":          "/zz-fsync",
	"probe-metrics-port": strconv.Itoa(anyPort),
	// Those that are empty by default, and so leave something out.
	"servers":              "https://zz:6443",
	"heartbeat-dir":        "/zz-dir",
	"heartbeat-gist-id":    "0123456789abcdef0123",
	"heartbeat-scale-sets": "zz-runners/set",
	"heartbeat-checks":     "api,nodes,voters,controller,runners,scale-sets,runner-pods",
	"recovery-prune-hours": "72",
	// Every process.
	"deployment": "true", "probe": "true", "heartbeat": "true", "alert": "true", "recovery": "true", "levels": "true",
}

// change is a setting that takes something away, and the condition in a template under
// which that is there.
type change struct {
	settings  map[string]string
	condition string
}

// Files are the generated files of the chart by their path in it.
func Files() (map[string][]byte, error) {
	values, err := settings()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if files["values.yaml"], err = valuesFile(values); err != nil {
		return nil, err
	}
	if files["values.schema.json"], err = schemaFile(values); err != nil {
		return nil, err
	}
	objects, err := templates(values)
	if err != nil {
		return nil, err
	}
	for component, text := range objects {
		files["templates/"+component+".yaml"] = []byte(text)
	}
	return files, nil
}

// settings are the values by the flags' names.
func settings() (map[string]*value, error) {
	all, err := flags()
	if err != nil {
		return nil, err
	}
	out := map[string]*value{}
	for _, f := range all {
		if _, ok := leftOut[f.Name]; ok {
			continue
		}
		v := valueOf(f)
		if f.Value.Type() == "string" {
			_, err := Manifests(with(f.Name, ""))
			v.empty = err == nil
		}
		out[f.Name] = v
	}
	return out, nil
}

// Follow are the settings whose value is another one when only a certain other setting
// is: both by their flags' names, the second to the first. The chart has to know how.
func Follow() (map[string][]string, error) {
	values, err := settings()
	if err != nil {
		return nil, err
	}
	before, err := variables(values, samples)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for flag, v := range values {
		another := v.another()
		if another == "" {
			continue
		}
		after, err := variables(values, with(flag, another))
		if err != nil {
			continue // it is none by itself
		}
		for other, text := range after {
			if other != flag && before[other] != text {
				out[other] = append(out[other], flag)
				slices.Sort(out[other])
			}
		}
	}
	return out, nil
}

// variables are the settings' values in the manifests, by their flags' names.
func variables(values map[string]*value, settings map[string]string) (map[string]string, error) {
	objects, err := Manifests(settings)
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for flag, v := range values {
		byName[env.Variable(v.flag)] = flag
	}
	out := map[string]string{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if flag := byName[text(v, "name")]; flag != "" && v["value"] != nil {
				out[flag] = fmt.Sprint(v["value"])
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	for _, o := range objects {
		walk(map[string]any(o))
	}
	return out, nil
}

// with is everything on, but for one setting.
func with(name, v string) map[string]string {
	out := maps.Clone(samples)
	out[name] = v
	if out["heartbeat-scale-sets"] == "" { // none may be named then, and the check needs some
		out["heartbeat-checks"] = "api,nodes,voters,controller,runners,runner-pods"
	}
	return out
}

func changes(values map[string]*value) []change {
	out := []change{{with("probe-metrics-port", "0"), "ne (int .Values.probe.metricsPort) 0"}}
	for flag := range switches {
		out = append(out, change{with(flag, "false"), values[flag].ref()})
	}
	// What makes the rights other ones.
	out = append(out,
		change{with("recovery-prune-hours", "0"), "ne (int .Values.recovery.pruneHours) 0"},
		change{with("recovery-evidence", "false"), ".Values.recovery.evidence"},
		change{with("heartbeat-checks", "api,nodes,voters,controller,runners,scale-sets"), `include "regrade.asks" (list . "runner-pods")`},
	)
	for flag, v := range values {
		if v.empty && flag != "image" {
			out = append(out, change{with(flag, ""), v.ref()})
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.condition, b.condition) })
	return out
}

// templates are the objects of each component as one text.
func templates(values map[string]*value) (map[string]string, error) {
	all, order, err := nodes(values, samples)
	if err != nil {
		return nil, err
	}
	for _, c := range changes(values) {
		less, _, err := nodes(values, c.settings)
		if err != nil {
			return nil, err
		}
		for id, n := range all {
			off, ok := less[id]
			if !ok {
				n.guards = append(n.guards, c.condition)
				continue
			}
			if err := n.guard(off, c.condition); err != nil {
				return nil, fmt.Errorf("chart: %s: %w", id, err)
			}
		}
		for id := range less {
			if all[id] == nil {
				return nil, fmt.Errorf("chart: %s is there only without %q", id, c.condition)
			}
		}
	}
	texts := map[string]*strings.Builder{}
	for _, o := range order {
		component := o.component()
		b := texts[component]
		if b == nil {
			b = &strings.Builder{}
			b.WriteString("{{- /* Made by `make generate` from `regrade manifests`. */}}\n")
			texts[component] = b
		}
		n := all[o.ID()]
		open(b, n.guards)
		b.WriteString("---\n")
		if err := n.write(b, 0); err != nil {
			return nil, fmt.Errorf("chart: %s: %w", o.ID(), err)
		}
		shut(b, n.guards)
	}
	out := map[string]string{}
	for component, b := range texts {
		out[component] = b.String()
	}
	return out, nil
}

// nodes are the objects with the settings' values as expressions. Those of the
// heartbeat outside our namespaces follow a list of names, which no single setting
// shows: templates/heartbeat-runners.yaml is written by hand.
func nodes(values map[string]*value, settings map[string]string) (map[string]*node, []Object, error) {
	objects, err := Manifests(settings)
	if err != nil {
		return nil, nil, err
	}
	objects = slices.DeleteFunc(objects, func(o Object) bool {
		return o.component() == "heartbeat" && o.namespace() != "" && o.namespace() != anyNamespace
	})
	out := map[string]*node{}
	for _, o := range objects {
		n, err := tree(map[string]any(o), o, func(in map[string]any, key string, v any) (string, error) {
			return scalar(values, settings, in, key, v)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("chart: %s: %w", o.ID(), err)
		}
		out[o.ID()] = n
	}
	return out, objects, nil
}

// scalar is a scalar's YAML: the expression of the setting that it is of.
func scalar(values map[string]*value, settings map[string]string, in map[string]any, key string, v any) (string, error) {
	if name, ok := in["name"].(string); ok && key == "value" {
		for _, s := range values {
			if env.Variable(s.flag) == name {
				return quoted(s.expr), nil
			}
		}
	}
	switch v := v.(type) {
	case string:
		return stringOf(values, settings, v), nil
	case float64:
		if v == anyPort {
			return "{{ int " + values["probe-metrics-port"].ref() + " }}", nil
		}
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("%s: a %T", key, v)
}

// stringOf is a string with the settings' samples in it as expressions.
func stringOf(values map[string]*value, settings map[string]string, s string) string {
	exprs := map[string]string{anyNamespace: ".Release.Namespace"}
	for _, flag := range []string{"image", "label-prefix", "actuator-configmap", "fsync-dir", "probe-metrics-port"} {
		if sample := settings[flag]; sample != "" && sample != "0" {
			exprs[sample] = values[flag].expr
		}
	}
	for sample, expr := range exprs {
		before, after, found := strings.Cut(s, sample)
		if !found {
			continue
		}
		if before == "" && after == "" {
			return quoted(expr)
		}
		parts := []string{"(" + expr + ")"}
		if before != "" {
			parts = append([]string{strconv.Quote(before)}, parts...)
		}
		if after != "" {
			parts = append(parts, strconv.Quote(after))
		}
		return "{{ print " + strings.Join(parts, " ") + " | quote }}"
	}
	if plain.MatchString(s) {
		var read any
		if err := yaml.Unmarshal([]byte(s), &read); err == nil && read == any(s) {
			return s
		}
	}
	return strconv.Quote(s)
}

func quoted(expr string) string {
	if strings.Contains(expr, "|") {
		expr = "(" + expr + ")"
	}
	return "{{ " + expr + " | quote }}"
}

// plain are strings that need no quotes, unless YAML reads another thing than a string.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9./-]*$`)

// valuesFile is values.yaml.
func valuesFile(values map[string]*value) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Made by `make generate` from the settings of `regrade manifests`.\n")
	group := ""
	for _, v := range slices.SortedFunc(maps.Values(values), byPath) {
		fallback, err := v.fallback()
		if err != nil {
			return nil, fmt.Errorf("chart: --%s: %w", v.flag.Name, err)
		}
		pad := ""
		if len(v.path) == 2 {
			pad = "  "
			if v.path[0] != group {
				group = v.path[0]
				fmt.Fprintf(&b, "%s:\n", group)
			}
		}
		fmt.Fprintf(&b, "%s# %s\n%s%s: %s\n", pad, v.usage(), pad, v.path[len(v.path)-1], fallback)
	}
	return b.Bytes(), nil
}

// schemaFile is values.schema.json: Helm refuses a value that is not in it, or of
// another form.
func schemaFile(values map[string]*value) ([]byte, error) {
	object := func() map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	}
	root := object()
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	in := func(o map[string]any) map[string]any { return o["properties"].(map[string]any) }
	in(root)["global"] = map[string]any{"type": "object"} // Helm's own, of a chart above this one
	for _, v := range values {
		at := root
		if len(v.path) == 2 {
			if in(root)[v.path[0]] == nil {
				in(root)[v.path[0]] = object()
			}
			at = in(root)[v.path[0]].(map[string]any)
		}
		s := v.schema()
		if v.flag.Name == "label-prefix" {
			s["pattern"] = `^([a-z0-9][a-z0-9.-]*/)$`
			s["default"] = fleet.DefaultPrefix
		}
		in(at)[v.path[len(v.path)-1]] = s
	}
	raw, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("chart: schema: %w", err)
	}
	return append(raw, '\n'), nil
}
