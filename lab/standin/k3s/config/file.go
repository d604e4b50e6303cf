package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// setting is one key of the merged config with its values in order.
type setting struct {
	key    string
	values []string
	list   bool
}

// readFiles merges the main file and every *.yaml or *.yml of its .d folder, sorted by name. A later file replaces a
// key, lists included; a key that ends in + appends. Missing files are no error (k3s facts §1.2).
func readFiles(main string) ([]setting, error) {
	var files []string
	if _, err := os.Stat(main); err == nil {
		files = append(files, main)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read config %s: %w", main, err)
	}
	entries, err := os.ReadDir(main + ".d")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read drop-ins of %s: %w", main, err)
	}
	var drops []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
			drops = append(drops, filepath.Join(main+".d", e.Name()))
		}
	}
	sort.Strings(drops)
	files = append(files, drops...)

	var docs [][]byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read config %s: %w", f, err)
		}
		docs = append(docs, b)
	}
	merged, err := merge(docs)
	if err != nil {
		return nil, fmt.Errorf("config %s: %w", main, err)
	}
	return merged, nil
}

// merge folds documents in order.
func merge(docs [][]byte) ([]setting, error) {
	var order []string
	byKey := map[string]setting{}
	for _, doc := range docs {
		var root yaml.Node
		if err := yaml.Unmarshal(doc, &root); err != nil {
			return nil, err
		}
		if len(root.Content) == 0 {
			continue
		}
		top := root.Content[0]
		if top.Kind != yaml.MappingNode {
			return nil, errors.New("the top level is not a map of flag names")
		}
		for i := 0; i+1 < len(top.Content); i += 2 {
			key, node := top.Content[i].Value, top.Content[i+1]
			s := setting{key: key}
			switch node.Kind {
			case yaml.SequenceNode:
				s.list = true
				for _, item := range node.Content {
					s.values = append(s.values, scalar(item))
				}
			case yaml.ScalarNode:
				s.values = []string{scalar(node)}
			default:
				return nil, fmt.Errorf("key %s: only a value or a list of values is allowed", key)
			}
			if bare, plus := strings.CutSuffix(key, "+"); plus {
				s.key = bare
				s.list = true
				s.values = append(append([]string{}, byKey[bare].values...), s.values...)
			}
			if _, seen := byKey[s.key]; !seen {
				order = append(order, s.key)
			}
			byKey[s.key] = s
		}
	}
	out := make([]setting, 0, len(order))
	for _, k := range order {
		out = append(out, byKey[k])
	}
	return out, nil
}

func scalar(n *yaml.Node) string {
	if n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// arguments turns settings into command line arguments, lists as repeated flags.
func arguments(settings []setting) []string {
	var out []string
	for _, s := range settings {
		dash := "--"
		if len(s.key) == 1 {
			dash = "-"
		}
		for _, v := range s.values {
			out = append(out, dash+s.key+"="+v)
		}
	}
	return out
}
