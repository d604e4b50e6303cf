package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
)

// Object is one manifest as plain maps.
type Object map[string]any

// ID names it: kind, namespace and name.
func (o Object) ID() string {
	meta, _ := o["metadata"].(map[string]any)
	return strings.TrimSpace(fmt.Sprint(o["kind"], " ", text(meta, "namespace"), "/", text(meta, "name")))
}

func (o Object) component() string {
	meta, _ := o["metadata"].(map[string]any)
	marks, _ := meta["labels"].(map[string]any)
	return text(marks, "app.kubernetes.io/component")
}

func (o Object) namespace() string {
	meta, _ := o["metadata"].(map[string]any)
	return text(meta, "namespace")
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// Manifests are what `regrade manifests` prints with these settings, without what is
// not in the chart: the Namespace, which Helm makes and whose removal would take the
// live ConfigMaps along, and ConfigMaps (safety rule 25).
func Manifests(settings map[string]string) ([]Object, error) {
	args := []string{"manifests"}
	for name, v := range settings {
		args = append(args, "--"+name+"="+v)
	}
	slices.Sort(args[1:])
	var out, errs bytes.Buffer
	e := env.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: func() time.Time { return time.Time{} }}
	if code := cli.Run(context.Background(), args, e, cli.Production()); code != 0 {
		return nil, fmt.Errorf("regrade %s: %s", strings.Join(args, " "), strings.TrimSpace(errs.String()))
	}
	all, err := Parse(out.String())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(o Object) bool { return o["kind"] == "Namespace" || o["kind"] == "ConfigMap" }), nil
}

// Parse reads a stream of documents.
func Parse(stream string) (out []Object, err error) {
	for doc := range strings.SplitSeq("\n"+stream, "\n---") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return nil, fmt.Errorf("manifests: %w in:\n%s", err, doc)
		}
		var o Object
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, fmt.Errorf("manifests: %w in:\n%s", err, doc)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// flags are the command's settings.
func flags() (out []*pflag.Flag, err error) {
	e := env.Env{Getenv: func(string) string { return "" }, Now: func() time.Time { return time.Time{} }}
	cmd, _, err := cli.New(e, cli.Production()).Find([]string{"manifests"})
	if err != nil {
		return nil, fmt.Errorf("find the command: %w", err)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out = append(out, f) })
	return out, nil
}
