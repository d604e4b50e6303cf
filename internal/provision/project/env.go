package project

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/platform/container"
)

// Env is a Compose project's .env: its variables, and its lines, which are kept as they
// are where nothing is changed.
type Env struct {
	lines []string
	at    map[string]int
	vars  map[string]string
	// odd are variables whose values cannot be told without Compose, with the reason.
	odd map[string]string
}

var (
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// plain values need no quotes, in any Compose.
	plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=~-]*$`)
)

// ParseEnv reads one. What it does not understand it names, and never guesses.
func ParseEnv(raw []byte) Env {
	e := Env{at: map[string]int{}, vars: map[string]string{}, odd: map[string]string{}}
	e.lines = strings.Split(strings.TrimSuffix(string(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))), "\n"), "\n")
	for i, line := range e.lines {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "export ")), "=")
		key = strings.TrimSpace(key)
		if !ok || !envName.MatchString(key) {
			e.odd[fmt.Sprintf("line %d", i+1)] = "is no NAME=value"
			continue
		}
		e.at[key] = i
		delete(e.odd, key)
		v, why := valueOf(strings.TrimSpace(value))
		if why != "" {
			e.odd[key] = why
		}
		e.vars[key] = v
	}
	return e
}

// valueOf reads a value, or says why it cannot be told.
func valueOf(s string) (value, why string) {
	switch {
	case s == "":
		return "", ""
	case s[0] == '\'' || s[0] == '"':
		inner, rest, ok := strings.Cut(s[1:], s[:1])
		rest = strings.TrimSpace(rest)
		switch {
		case !ok || rest != "" && rest[0] != '#':
			return "", "has quotes that are not closed, or more behind them"
		case strings.Contains(inner, `\`), s[0] == '"' && strings.Contains(inner, "$"):
			return "", "has an escape or another variable in it"
		}
		return inner, ""
	}
	if i := strings.IndexAny(s, "#"); i == 0 {
		return "", ""
	} else if i > 0 && (s[i-1] == ' ' || s[i-1] == '\t') {
		s = strings.TrimSpace(s[:i])
	}
	if strings.ContainsAny(s, `$\'"`) {
		return "", "has a quote, an escape or another variable in it"
	}
	return s, ""
}

// Get is a variable, empty where it is not set.
func (e Env) Get(key string) string { return e.vars[key] }

// secrets are the values that no error may show: the tokens, and those of variables that are not
// regrade's, of which nobody knows what they are. A short one would be taken out of everything.
func (e Env) secrets() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(e.vars)) {
		token := key == container.EnvToken || key == container.EnvAgentToken
		if v := e.vars[key]; token && v != "" || !slices.Contains(variables, key) && len(v) >= 8 {
			out = append(out, v)
		}
	}
	return out
}

// Odd are sentences without values about what could not be read.
func (e Env) Odd() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(e.odd)) {
		out = append(out, key+" "+e.odd[key])
	}
	return out
}

// With are the lines with variables set, each where it stands now, else at the end. A value
// that no form of quoting carries through every Compose is an error, which does not quote it.
func (e Env) With(set map[string]string) ([]byte, error) {
	lines := slices.Clone(e.lines)
	for _, key := range order(set) {
		value := set[key]
		if old, there := e.vars[key]; there && old == value && e.odd[key] == "" {
			continue
		}
		quoted := value
		switch {
		case plain.MatchString(value):
		case strings.ContainsAny(value, "'\\\n\r"):
			return nil, fmt.Errorf("%s: a quote, a backslash or a line break in its value", key)
		default:
			quoted = "'" + value + "'"
		}
		if i, there := e.at[key]; there {
			lines[i] = key + "=" + quoted
			continue
		}
		if value != "" {
			lines = append(lines, key+"="+quoted)
		}
	}
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

// order is that of the shipped .env, as far as it has them.
func order(set map[string]string) []string {
	out := slices.Sorted(maps.Keys(set))
	slices.SortStableFunc(out, func(a, b string) int { return slices.Index(variables, a) - slices.Index(variables, b) })
	return out
}
