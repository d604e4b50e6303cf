package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// entry is one line of ssh_config that applies to the host.
type entry struct {
	args []string
	at   string // file:line
}

// reading is ssh_config being read for one host, by the rules of ssh_config(5): the first
// value of a keyword counts, those of [manyTimes] add up. A line that applies to the host
// and that we do not know is refused, never guessed at.
type reading struct {
	o       Options
	written string // the host as it was written
	host    string // what Host is compared with: the same, in the second pass HostName
	entries map[string][]entry
	ignored []string // patterns of IgnoreUnknown

	final     bool // the second pass, which Match final asks for
	wantFinal bool
}

const maxIncludes = 16 // deep, as ssh has it

// place is where a file is read from.
type place struct {
	base  string // where relative names of an Include are
	own   bool   // the person's, not the system's
	depth int    // of Include
	// never: it is included where no line applies. It is read all the same, as ssh does: a
	// Match final in it asks for the second pass, in which that may be otherwise.
	never bool
}

// file reads one file.
func (r *reading) file(path string, p place) error {
	if p.depth > maxIncludes {
		return r.unsupported(path, "there are too many Include in each other")
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return r.unsupported(path, "it cannot be read: %v", err)
	}
	if p.own {
		if why := writableByOthers(path); why != "" {
			return r.unsupported(path, "%s", why)
		}
	}
	active := !p.never
	for i, line := range strings.Split(string(content), "\n") {
		at := fmt.Sprintf("%s:%d", path, i+1)
		keyword, args, err := words(strings.TrimSuffix(line, "\r"))
		switch {
		case err != nil:
			return r.unsupported(at, "%v", err)
		case keyword == "":
		case keyword == "host":
			active = !p.never && listMatches(args, r.host)
		case keyword == "match":
			if active, err = r.match(args, at, !p.never); err != nil {
				return err
			}
		case keyword == "include":
			if err := r.include(args, at, place{p.base, p.own, p.depth + 1, !active}); err != nil {
				return err
			}
		case !active:
		default:
			if err := r.take(keyword, args, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reading) include(patterns []string, at string, p place) error {
	for _, pattern := range patterns {
		pattern, err := expandHome(pattern, r.o.Home)
		if err != nil {
			return r.unsupported(at, "%v", err)
		}
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(p.base, pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return r.unsupported(at, "%q: %v", pattern, err)
		}
		for _, f := range files {
			if err := r.file(f, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// match says whether the lines after a Match apply: all criteria have to hold. One that we
// do not know is refused, unless one before it does not hold.
func (r *reading) match(args []string, at string, may bool) (bool, error) {
	if len(args) == 0 {
		return false, r.unsupported(at, "Match says nothing")
	}
	for i := 0; i < len(args); i++ {
		criterion, not := strings.CutPrefix(strings.ToLower(args[i]), "!")
		criterion, value, inline := strings.Cut(criterion, "=")
		if inline {
			value = args[i][len(args[i])-len(value):]
		}
		var holds bool
		switch criterion {
		case "all":
			holds = true
		case "final":
			r.wantFinal = true
			holds = r.final
		case "canonical": // no name is made canonical
			holds = r.final
		case "host", "originalhost", "user", "localuser":
			if !inline {
				if i++; i == len(args) {
					return false, r.unsupported(at, "Match %s says of what", criterion)
				}
				value = args[i]
			}
			is := map[string]string{"host": r.hostName(), "originalhost": r.written, "user": r.user(), "localuser": r.o.User}[criterion]
			if strings.HasSuffix(criterion, "host") { // names, unlike those after Host
				value, is = strings.ToLower(value), strings.ToLower(is)
			}
			holds = listMatches(strings.Split(value, ","), is)
		case "exec", "tagged", "localnetwork", "version", "sessiontype", "command":
			if may {
				return false, r.unsupported(at, "Match %s is not followed", criterion)
			}
			i++ // its value
		default:
			return false, r.unsupported(at, "Match %q is not known", criterion)
		}
		may = may && holds != not
	}
	return may, nil
}

// take keeps a line that applies.
func (r *reading) take(keyword string, args []string, at string) error {
	if keyword == "ignoreunknown" {
		if r.ignored == nil {
			r.ignored = strings.Split(strings.ToLower(strings.Join(args, ",")), ",")
		}
		return nil
	}
	if slices.Contains(passedOver, keyword) || !slices.Contains(followed, keyword) && listMatches(r.ignored, keyword) {
		return nil
	}
	if !slices.Contains(followed, keyword) {
		return r.unsupported(at, "%q is not known", keyword)
	}
	if len(args) == 0 {
		return r.unsupported(at, "%s has no value", keyword)
	}
	if !slices.Contains(severalArgs, keyword) && len(args) > 1 {
		return r.unsupported(at, "%s has more than one value", keyword)
	}
	switch {
	// Of the two ways to another host the first that is named counts.
	case keyword == "proxycommand" && r.entries["proxyjump"] != nil, keyword == "proxyjump" && r.entries["proxycommand"] != nil:
	case r.entries[keyword] == nil || slices.Contains(manyTimes, keyword):
		if !slices.ContainsFunc(r.entries[keyword], func(e entry) bool { return slices.Equal(e.args, args) }) {
			r.entries[keyword] = append(r.entries[keyword], entry{args, at})
		}
	}
	return nil
}

func (r *reading) unsupported(at, format string, args ...any) error {
	return &Problem{Code: ConfigUnsupported, Host: r.written,
		Sentence: fmt.Sprintf("%s: the SSH configuration is not followed: %s: %s", r.written, at, fmt.Sprintf(format, args...))}
}

// writableByOthers says why a file of the person's own is not believed: somebody else may
// have written it. ssh refuses the same.
func writableByOthers(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	if info.Mode().Perm()&0o022 != 0 {
		return "others may write it (chmod go-w)"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return "it belongs to another user"
	}
	return ""
}

// expandHome puts the home in place of a leading ~, and variables of the environment in
// place of ${NAME}. Another user's home is not looked up.
func expandHome(path, home string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home == "" {
			return "", fmt.Errorf("%q: there is no home", path)
		}
		path = home + path[1:]
	} else if strings.HasPrefix(path, "~") {
		return "", fmt.Errorf("%q: the home of another user is not looked up", path)
	}
	for {
		before, rest, ok := strings.Cut(path, "${")
		if !ok {
			return path, nil
		}
		name, after, ok := strings.Cut(rest, "}")
		value, set := os.LookupEnv(name)
		if !ok || !set {
			return "", fmt.Errorf("%q: the environment has no %q", path, name)
		}
		path = before + value + after
	}
}
