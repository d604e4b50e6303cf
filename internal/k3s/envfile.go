package k3s

import (
	"slices"
	"strings"
)

// ParseEnv reads a unit's environment file by systemd's own rules (systemd.exec(5),
// EnvironmentFile=): a value begins at the first sign that is no blank, quotes hold blanks and
// line ends together, a backslash takes the meaning from the sign after it, outside of single
// quotes; # and ; begin a comment at the beginning of a line. What is none of KEY=value is
// skipped, as systemd skips it.
func ParseEnv(raw []byte) map[string]string {
	env := map[string]string{}
	text := string(raw)
	for text != "" {
		text = strings.TrimLeft(text, " \t\r\n")
		if text == "" {
			break
		}
		if text[0] == '#' || text[0] == ';' {
			_, text, _ = strings.Cut(text, "\n")
			continue
		}
		i := strings.IndexAny(text, "=\n")
		if i < 0 {
			break
		}
		key := strings.TrimRight(text[:i], " \t\r")
		if text[i] == '\n' {
			text = text[i+1:]
			continue
		}
		var v string
		v, text = envValue(text[i+1:])
		if envName(key) {
			env[key] = v
		}
	}
	return env
}

// envValue reads a value to the end of its line, and gives what comes after.
func envValue(s string) (value, rest string) {
	const (
		before = iota // of a value, or after a quote was closed
		plain
	)
	var b strings.Builder
	state, blanks := before, 0 // blanks at the end are none of a plain value
	for i := 0; i < len(s); i++ {
		c := s[i]
		blank := c == ' ' || c == '\t' || c == '\r'
		switch {
		case c == '\n':
			return b.String()[:b.Len()-blanks], s[i+1:]
		case c == '\\':
			state, blanks = plain, 0
			if i++; i < len(s) && s[i] != '\n' {
				b.WriteByte(s[i])
			}
		case state == before && blank:
		case state == before && (c == '\'' || c == '"'):
			i = quoted(&b, s, i+1, c)
			blanks = 0
		default:
			state = plain
			if blanks++; !blank {
				blanks = 0
			}
			b.WriteByte(c)
		}
	}
	return b.String()[:b.Len()-blanks], ""
}

// quoted reads from within a quote, and gives where it was closed.
func quoted(b *strings.Builder, s string, i int, quote byte) int {
	for ; i < len(s) && s[i] != quote; i++ {
		if s[i] != '\\' || quote == '\'' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case '"', '\\', '`', '$':
			b.WriteByte(s[i])
		case '\n':
		default:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return i
}

func envName(key string) bool {
	return key != "" && (key[0] < '0' || key[0] > '9') && !strings.ContainsFunc(key, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// EnvFile writes a file that ParseEnv and systemd read as just these variables.
func EnvFile(env map[string]string) []byte {
	var b strings.Builder
	var keys []string
	for key := range env {
		if envName(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`)
	for _, key := range keys {
		b.WriteString(key + `="` + escape.Replace(env[key]) + "\"\n")
	}
	return []byte(b.String())
}
