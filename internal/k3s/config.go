package k3s

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/obs"
)

// Config is k3s's configuration as it takes it: the keys of the file and its
// drop-ins, merged. Each value is a list; a scalar is a list of one. Booleans
// are "true" or "false".
type Config map[string][]string

// maxConfig bounds one configuration file.
const maxConfig = 1 << 20

// ParseConfig reads one configuration file or drop-in.
func ParseConfig(raw []byte) (Config, error) {
	if len(raw) > maxConfig {
		return nil, fmt.Errorf("k3s configuration: %d bytes are more than %d", len(raw), maxConfig)
	}
	var m map[string]any
	// A number as it is written: a token of digits alone is no 1.2e+07.
	if err := yaml.Unmarshal(raw, &m, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		return nil, fmt.Errorf("k3s configuration: %w", err)
	}
	c := Config{}
	for key, v := range m {
		switch v := v.(type) {
		case []any:
			c[key] = []string{}
			for _, e := range v {
				s, err := scalar(key, e)
				if err != nil {
					return nil, err
				}
				c[key] = append(c[key], s)
			}
		default:
			s, err := scalar(key, v)
			if err != nil {
				return nil, err
			}
			c[key] = []string{s}
		}
	}
	return c, nil
}

func scalar(key string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool, json.Number:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("k3s configuration: key %q holds neither a value nor a list of values", key)
}

// Merge puts a later file over c: a key replaces, a key that ends in "+"
// appends (k3s-facts §1.2).
func (c Config) Merge(later Config) Config {
	out := maps.Clone(c)
	if out == nil {
		out = Config{}
	}
	for _, key := range slices.Sorted(maps.Keys(later)) {
		if base, ok := strings.CutSuffix(key, "+"); ok {
			out[base] = append(slices.Clone(out[base]), later[key]...)
			continue
		}
		out[key] = later[key]
	}
	return out
}

// Get is the last value of a key, empty when there is none.
func (c Config) Get(key string) string {
	if v := c[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// ReadConfig reads path, which is absolute below the root, and the drop-ins in
// path.d, sorted by name, other suffixes than yaml and yml ignored. Neither
// existing is an empty configuration.
func (d Disk) ReadConfig(path string) (Config, error) {
	all, err := d.ReadConfigs(path)
	if err != nil {
		return nil, err
	}
	c := Config{}
	for _, one := range all {
		c = c.Merge(one)
	}
	return c, nil
}

// ReadConfigs reads the same files, one by one in the order in which they are merged.
func (d Disk) ReadConfigs(path string) ([]Config, error) {
	files := []string{path}
	entries, err := os.ReadDir(d.at(path + ".d"))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("k3s configuration: %w", err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
			files = append(files, filepath.Join(path+".d", e.Name()))
		}
	}
	var all []Config
	for _, f := range files {
		raw, err := os.ReadFile(d.at(f))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("k3s configuration: %w", err)
		}
		one, err := ParseConfig(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Join is what a role's configuration says of joining: the URL, and the token,
// from file, environment file or token file, in k3s's order.
type Join struct {
	URL   string
	Token Secret
}

// maxToken is more than any token is long.
const maxToken = 8 << 10

// ReadJoin reads it for the configuration and the environment file of a unit.
func (d Disk) ReadJoin(configPath, envPath string) (Join, error) {
	env := map[string]string{}
	if raw, err := os.ReadFile(d.at(envPath)); err == nil {
		env = ParseEnv(raw)
	} else if !os.IsNotExist(err) {
		return Join{}, fmt.Errorf("k3s environment: %w", err)
	}
	return d.ReadJoinWith(configPath, env)
}

// ReadJoinWith reads it for the configuration and an environment that is known,
// such as a container's.
func (d Disk) ReadJoinWith(configPath string, env map[string]string) (Join, error) {
	c, err := d.ReadConfig(configPath)
	if err != nil {
		return Join{}, err
	}
	j := Join{URL: firstOf(c.Get("server"), env["K3S_URL"]), Token: Secret(firstOf(c.Get("token"), env["K3S_TOKEN"]))}
	// A token file wins over a token (k3s-facts §1.1).
	if f := firstOf(c.Get("token-file"), env["K3S_TOKEN_FILE"]); f != "" {
		raw, err := obs.ReadSecret(d.at(f), maxToken)
		if err != nil {
			return Join{}, fmt.Errorf("k3s token file: %w", err)
		}
		if len(raw) > maxToken {
			return Join{}, fmt.Errorf("k3s token file: more than %d bytes", maxToken)
		}
		j.Token = Secret(strings.TrimSpace(string(raw)))
	}
	return j, nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
