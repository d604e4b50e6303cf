package adopt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/status"
)

// Found is one k3s unit as systemd and the disk have it.
type Found struct {
	// Unit is its name, k3s.service or k3s-agent.service for those of the install script.
	Unit string
	// Commands are its start commands, each with the program first.
	Commands [][]string
	// Env is the unit's environment, its files merged in systemd's order.
	Env map[string]string
	// Files are k3s's configuration file and its drop-ins, in the order in which k3s
	// merges them.
	Files []k3s.Config
}

// Reason codes of refusals.
const (
	CodeStartCommand = "StartCommand"
	CodeUnitName     = "UnitName"
	CodeVariable     = "VariableInCommand"
	CodeFlag         = "FlagUnknown"
	CodeFlagRole     = "FlagOfOtherRole"
	CodeFlagValue    = "FlagWithoutValue"
	CodeUnsupported  = "FlagUnsupported"
	CodeNoVoter      = "NoVoterConfig"
	CodeNoToken      = "NoToken"
	CodeNoJoin       = "NoServerToJoin"
	CodeFlagsChange  = "FlagsWouldChange"
)

// units of the install script (k3s-facts §1.4).
var units = map[fleet.Role]string{fleet.RoleServer: "k3s.service", fleet.RoleAgent: "k3s-agent.service"}

// Command is what a unit runs: the role and the words after it.
func (f Found) Command() (fleet.Role, []string, []status.Problem) {
	if len(f.Commands) != 1 {
		return "", nil, problem(CodeStartCommand, "%s has %d start commands, want one", f.Unit, len(f.Commands))
	}
	argv := f.Commands[0]
	if len(argv) < 2 {
		return "", nil, problem(CodeStartCommand, "%s starts %q, which is neither a server nor an agent", f.Unit, strings.Join(argv, " "))
	}
	role := fleet.Role(argv[1])
	if role != fleet.RoleServer && role != fleet.RoleAgent {
		return "", nil, problem(CodeStartCommand, "%s starts k3s as %q, want server or agent right after the program", f.Unit, argv[1])
	}
	if f.Unit != units[role] {
		return "", nil, problem(CodeUnitName, "k3s %s runs in the unit %s, want %s: a k3s installed under another name is not adopted", role, f.Unit, units[role])
	}
	for _, word := range argv[2:] {
		if strings.Contains(word, "$") {
			return "", nil, problem(CodeVariable, "%s has a variable in its command: %q; write its value instead", f.Unit, hideValue(word))
		}
	}
	return role, argv[2:], nil
}

// Effective is what k3s runs with, by flag, and where it is told: files first, then the
// command line, which wins for a single value and adds to a list; a variable counts
// where neither has the flag (k3s-facts §1.2).
func (f Found) Effective() (fleet.Role, k3s.Config, []status.Problem) {
	role, words, problems := f.Command()
	if len(problems) > 0 {
		return role, nil, problems
	}
	typed, problems := parse(role, words)
	var files k3s.Config
	for _, c := range f.Files {
		files = files.Merge(c)
	}
	out := k3s.Config{}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		fl, known := k3s.FlagOf(role, key)
		if !known {
			problems = append(problems, unknown(role, key, "its configuration file sets")...)
			continue
		}
		out[key] = take(fl, files[key])
	}
	for key, values := range typed {
		fl, _ := k3s.FlagOf(role, key)
		if fl.Kind == k3s.FlagList {
			out[key] = append(slices.Clone(out[key]), values...)
			continue
		}
		out[key] = values[len(values)-1:]
	}
	for _, key := range k3s.FlagNames(role) {
		fl, _ := k3s.FlagOf(role, key)
		if v := f.Env[fl.Env]; fl.Env != "" && v != "" && len(out[key]) == 0 {
			out[key] = []string{v}
		}
	}
	return role, out, problems
}

// take is what k3s makes of the values of a file: the last of a single one.
func take(f k3s.Flag, values []string) []string {
	if f.Kind == k3s.FlagList || len(values) == 0 {
		return slices.Clone(values)
	}
	return slices.Clone(values[len(values)-1:])
}

// parse reads the words of a command line.
func parse(role fleet.Role, words []string) (k3s.Config, []status.Problem) {
	c := k3s.Config{}
	var problems []status.Problem
	for i := 0; i < len(words); i++ {
		name, dashed := strings.CutPrefix(words[i], "-")
		name = strings.TrimPrefix(name, "-")
		if !dashed || name == "" {
			problems = append(problems, problem(CodeFlag, "its command has %q where a flag belongs", hideValue(words[i]))...)
			continue
		}
		key, val, inline := strings.Cut(name, "=")
		key = k3s.LongFlag(key)
		fl, known := k3s.FlagOf(role, key)
		switch {
		case !known:
			problems = append(problems, unknown(role, key, "its command has")...)
			// Whether the next word is its value nobody can tell.
			return c, problems
		case inline:
		case fl.Kind == k3s.FlagTruth:
			val = "true"
		case i+1 < len(words):
			i++
			val = words[i]
		default:
			return c, append(problems, problem(CodeFlagValue, "its command ends with --%s, which wants a value", key)...)
		}
		c[key] = append(c[key], val)
	}
	return c, problems
}

func unknown(role fleet.Role, key, where string) []status.Problem {
	if k3s.OfServer(key) || k3s.OfAgent(key) {
		return problem(CodeFlagRole, "%s %s, which k3s %s does not know", where, key, role)
	}
	return problem(CodeFlag, "%s %s, a flag that regrade does not know; it is not guessed at", where, key)
}

func problem(code, format string, args ...any) []status.Problem {
	return []status.Problem{{Code: code, Sentence: fmt.Sprintf(format, args...)}}
}

// hideValue keeps what may be a secret out of a sentence.
func hideValue(word string) string {
	if name, _, ok := strings.Cut(word, "="); ok {
		return name + "=***"
	}
	if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "$") {
		return word
	}
	return "***"
}
