package env

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const annotation = "regrade_env"

// given is the annotation of a flag that its variable has set.
const given = "regrade_env_given"

// Given says whether a person has set a flag, on the command line or, after Read, by its
// variable: nothing that follows from other settings takes its place then.
func Given(fs *pflag.FlagSet, flag string) bool {
	f := fs.Lookup(flag)
	return f.Changed || f.Annotations[given] != nil
}

// Bind lets a flag be set by an environment variable and says so in its help.
// The flag must be there.
func Bind(fs *pflag.FlagSet, flag, variable string) {
	f := fs.Lookup(flag)
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[annotation] = []string{variable}
	f.Usage += " ($" + variable + ")"
}

// Read gives every bound flag that the command line left alone the value of its
// variable. A variable that is empty is as good as unset.
func Read(cmd *cobra.Command, getenv func(string) string) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[annotation]
		if first != nil || f.Changed || len(names) == 0 {
			return
		}
		v := getenv(names[0])
		if v == "" {
			return
		}
		if err := f.Value.Set(v); err != nil {
			first = Usage("%s=%q: %v", names[0], v, err)
			return
		}
		f.Annotations[given] = names
	})
	return first
}

// Variable is the variable that a flag is bound to, empty for none.
func Variable(f *pflag.Flag) string {
	if names := f.Annotations[annotation]; len(names) > 0 {
		return names[0]
	}
	return ""
}

// Seconds is a flag that takes a whole number of seconds, as the *_SECONDS
// variables do, or a duration like 5m.
type Seconds struct {
	Value *time.Duration
	// Min is the least that makes sense, Max the most; zero is 30 days.
	Min, Max time.Duration
}

// longest is more than any bound of ours can sensibly be.
const longest = 30 * 24 * time.Hour

// Set implements pflag.Value.
func (s Seconds) Set(text string) error {
	d, err := ParseSeconds(text)
	if err != nil {
		return err
	}
	if most := cmp.Or(s.Max, longest); d < s.Min || d > most {
		return fmt.Errorf("want %s to %s", s.Min, most)
	}
	*s.Value = d
	return nil
}

// ParseSeconds reads "300" or "5m". The result is a whole number of seconds
// between zero and 30 days.
func ParseSeconds(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	var d time.Duration
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) { // then n is the nearest that there is
		d = time.Duration(min(max(n, -1), int64(longest/time.Second)+1)) * time.Second
	} else if d, err = time.ParseDuration(text); err != nil {
		return 0, fmt.Errorf("want seconds like 300, or a duration like 5m")
	}
	switch {
	case d < 0:
		return 0, fmt.Errorf("want no less than zero")
	case d > longest:
		return 0, fmt.Errorf("want at most %s", longest)
	case d%time.Second != 0:
		return 0, fmt.Errorf("want whole seconds")
	}
	return d, nil
}

// String implements pflag.Value.
func (s Seconds) String() string {
	if s.Value == nil {
		return "0s"
	}
	return s.Value.String()
}

// Type implements pflag.Value.
func (Seconds) Type() string { return "seconds" }

// Bool is a flag that wants true or false spelt out: a dry run must not be
// left by a typing error.
type Bool struct{ Value *bool }

// Set implements pflag.Value.
func (b Bool) Set(text string) error {
	switch strings.TrimSpace(text) {
	case "true":
		*b.Value = true
	case "false":
		*b.Value = false
	default:
		return fmt.Errorf("want true or false")
	}
	return nil
}

// String implements pflag.Value.
func (b Bool) String() string { return strconv.FormatBool(b.Value != nil && *b.Value) }

// Type implements pflag.Value.
func (Bool) Type() string { return "bool" }

// Root defines --root, the folder that stands before every path on the host. A relative one
// would be taken from / and not from where the command was given: it is refused.
func Root(fs *pflag.FlagSet, to *string) {
	*to = "/"
	fs.Var((*root)(to), "root", "folder that stands before every path on the host")
}

type root string

func (r *root) String() string { return string(*r) }
func (r *root) Type() string   { return "string" }

func (r *root) Set(s string) error {
	if !filepath.IsAbs(s) {
		return fmt.Errorf("%q is not an absolute path", s)
	}
	*r = root(s)
	return nil
}
