package chart

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
)

// value is one setting of `regrade manifests` as a value of the chart.
type value struct {
	flag *pflag.Flag
	// path is where it stands in the values: {"heartbeat", "interval"}.
	path []string
	// expr gives it in a template, as text.
	expr string
	// empty: the command takes it empty, and then leaves out what it is for.
	empty bool
}

// leftOut are the settings that are no values of the chart, each with the reason.
var leftOut = map[string]string{
	"help":                "",
	"kubeconfig":          "of whoever runs the command",
	"context":             "of whoever runs the command",
	"configmaps":          "ConfigMaps that are live are never in a chart: its upgrade could replace them, its removal would delete them (safety rule 25)",
	"namespace":           "Helm's own: the namespace of the release",
	"heartbeat-configmap": "always so in the cluster",
	"alert-configmap":     "always so in the cluster",
	"alert-state":         "always so in the cluster",
	"alert-command":       "the image has no other program",
	"alert-file":          "the pod has no such file",
}

// switches are the settings that add a process or rights, by what they are called
// in the values.
var switches = map[string][]string{
	"deployment": {"controller", "enabled"},
	"probe":      {"probe", "enabled"},
	"heartbeat":  {"heartbeat", "enabled"},
	"alert":      {"alert", "enabled"},
	"recovery":   {"recovery", "enabled"},
	"levels":     {"levels", "enabled"},
}

// special are the settings whose value the chart finds in another way when it is not set.
var special = map[string]string{
	"image": `.Values.image | default (printf "ghcr.io/exadev/regrade:%s" .Chart.AppVersion)`,
	// As the controller takes them: longer periods need more.
	"take-over": `.Values.takeOver | default (max 30 (mul 2 (int .Values.period)))`,
	"cooldown":  `.Values.cooldown | default (add (int .Values.learnerStall) (mul (int .Values.window) (int .Values.period)))`,
}

// unset says what that is.
var unset = map[string]string{
	"image":     "; empty for that of the chart's version",
	"take-over": "; 0 for 30 and no less than two periods",
	"cooldown":  "; 0 for what the learner's time and a window come to",
}

// valueOf says where a setting stands.
func valueOf(f *pflag.Flag) *value {
	v := &value{flag: f, path: switches[f.Name]}
	if v.path == nil {
		name := f.Name
		for _, group := range []string{"heartbeat", "alert", "recovery", "probe"} {
			if rest, ok := strings.CutPrefix(f.Name, group+"-"); ok {
				v.path, name = []string{group}, rest
			}
		}
		v.path = append(v.path, camel(name))
	}
	v.expr = fmt.Sprintf(`include "regrade.value" %s`, v.ref())
	if e, ok := special[f.Name]; ok {
		v.expr = e
	}
	return v
}

func (v *value) ref() string { return ".Values." + strings.Join(v.path, ".") }

func camel(flag string) string {
	parts := strings.Split(flag, "-")
	for i := range parts[1:] {
		parts[i+1] = strings.ToUpper(parts[i+1][:1]) + parts[i+1][1:]
	}
	return strings.Join(parts, "")
}

// usage is the flag's help without its variable.
func (v *value) usage() string {
	u, _, _ := strings.Cut(v.flag.Usage, " ($")
	u = strings.Replace(strings.TrimPrefix(u, "print "), ", rights and ConfigMap", " and rights", 1)
	if v.flag.Value.Type() == "seconds" {
		u += "; in seconds"
	}
	return u + unset[v.flag.Name]
}

// fallback is the default as it stands in the file.
func (v *value) fallback() (string, error) {
	switch kind := v.flag.Value.Type(); {
	case special[v.flag.Name] != "" && kind == "string":
		return `""`, nil
	case special[v.flag.Name] != "":
		return "0", nil
	}
	switch v.flag.Value.Type() {
	case "seconds":
		d, err := env.ParseSeconds(v.flag.DefValue)
		return strconv.FormatInt(int64(d/time.Second), 10), err
	case "bool", "int", "float":
		return v.flag.DefValue, nil
	}
	return strconv.Quote(v.flag.DefValue), nil
}

// another is a value of a number that is not the default; empty for what is no number.
func (v *value) another() string {
	switch f := v.flag.Value.(type) {
	case env.Seconds:
		return (*f.Value + max(*f.Value, time.Minute)).String()
	case env.Int:
		return strconv.Itoa(*f.Value + max(*f.Value, 1))
	}
	return ""
}

// schema is its JSON Schema.
func (v *value) schema() map[string]any {
	s := map[string]any{"description": v.usage()}
	kind := "string"
	switch f := v.flag.Value.(type) {
	case env.Seconds:
		kind = "integer"
		s["minimum"], s["maximum"] = int64(f.Min/time.Second), int64(30*24*time.Hour/time.Second)
		if f.Max > 0 {
			s["maximum"] = int64(f.Max / time.Second)
		}
	case env.Int:
		kind = "integer"
		s["minimum"], s["maximum"] = f.Min, f.Max
	default:
		switch v.flag.Value.Type() {
		case "bool":
			kind = "boolean"
		case "float":
			kind = "number"
		default:
			if !v.empty && special[v.flag.Name] == "" {
				s["minLength"] = 1
			}
		}
	}
	s["type"] = kind
	if _, ok := special[v.flag.Name]; ok && kind == "integer" {
		s["minimum"] = 0
	}
	return s
}

// byPath sorts values as the file has them: those of no process first.
func byPath(a, b *value) int {
	if d := len(a.path) - len(b.path); d != 0 {
		return d
	}
	if a.path[0] != b.path[0] {
		return strings.Compare(a.path[0], b.path[0])
	}
	// What switches a process on stands before what it is set to.
	if last := len(a.path) - 1; (a.path[last] == "enabled") != (b.path[last] == "enabled") {
		if a.path[last] == "enabled" {
			return -1
		}
		return 1
	}
	return slices.Compare(a.path, b.path)
}
