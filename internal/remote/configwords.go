package remote

import (
	"errors"
	"strings"
)

// words takes a line of ssh_config apart: the keyword in small letters, and its arguments
// with their quotes taken off. No keyword means an empty line or a comment.
func words(line string) (keyword string, args []string, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", nil, nil
	}
	i := strings.IndexAny(line, " \t=\"")
	if i < 0 {
		i = len(line)
	}
	keyword, rest := strings.ToLower(line[:i]), strings.TrimLeft(line[i:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	args, err = arguments(rest)
	return keyword, args, err
}

// arguments splits at blanks, as ssh does: both kinds of quotes hold blanks together, a
// backslash takes the meaning from a quote, a blank or itself, # begins a comment.
func arguments(s string) ([]string, error) {
	var args []string
	for i := 0; i < len(s); {
		switch {
		case s[i] == ' ' || s[i] == '\t':
			i++
			continue
		case s[i] == '#':
			return args, nil
		}
		var b strings.Builder
		var open byte
		for ; i < len(s); i++ {
			c := s[i]
			if c == '\\' && i+1 < len(s) && (strings.IndexByte(`\'"`, s[i+1]) >= 0 || open == 0 && s[i+1] == ' ') {
				i++
				b.WriteByte(s[i])
				continue
			}
			if open == 0 && (c == ' ' || c == '\t') {
				break
			}
			switch {
			case open == 0 && (c == '"' || c == '\''):
				open = c
			case open != 0 && c == open:
				open = 0
			default:
				b.WriteByte(c)
			}
		}
		if open != 0 {
			return nil, errors.New("a quote is not closed")
		}
		args = append(args, b.String())
	}
	return args, nil
}

// matches says whether a pattern of ssh_config, with * and ?, is of the whole name.
func matches(pattern, name string) bool {
	for pattern != "" {
		switch {
		case pattern[0] == '*':
			for i := 0; i <= len(name); i++ {
				if matches(pattern[1:], name[i:]) {
					return true
				}
			}
			return false
		case name == "" || pattern[0] != '?' && pattern[0] != name[0]:
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return name == ""
}

// listMatches says whether one of the patterns matches and none that begins with ! does.
func listMatches(patterns []string, name string) bool {
	found := false
	for _, p := range patterns {
		if not, ok := strings.CutPrefix(p, "!"); ok {
			if matches(not, name) {
				return false
			}
		} else if matches(p, name) {
			found = true
		}
	}
	return found
}
