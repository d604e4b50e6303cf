package env

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/obs"
)

// Secret is a setting that nobody shall see: it comes from a variable, or from a file
// that a flag names, and never from an argument, which every user of the machine can
// read (safety rule 31).
type Secret struct {
	// Variable is its name, such as HEARTBEAT_GH_TOKEN; the one of the file has _FILE
	// behind it.
	Variable string

	file string
}

// Flag adds the flag of the file, name-file.
func (s *Secret) Flag(fs *pflag.FlagSet, name, usage string) {
	fs.StringVar(&s.file, name+"-file", "", "file with "+usage+"; or $"+s.Variable)
	Bind(fs, name+"-file", s.Variable+"_FILE")
}

// maxSecret is more than any token or address is long.
const maxSecret = 8 << 10

// Read is the secret, empty where there is none. An error does not show it.
func (s *Secret) Read(getenv func(string) string) (obs.Secret, error) {
	text := getenv(s.Variable)
	if s.file != "" {
		if text != "" {
			return "", Usage("%s and %s_FILE: want one of them", s.Variable, s.Variable)
		}
		raw, err := obs.ReadSecret(s.file, maxSecret)
		if err != nil {
			return "", Failed(fmt.Errorf("%s_FILE: %w", s.Variable, err))
		}
		if text = string(raw); strings.TrimSpace(text) == "" {
			return "", Usage("%s_FILE: the file is empty", s.Variable)
		}
	}
	text = strings.TrimSpace(text)
	if len(text) > maxSecret {
		return "", Usage("%s: more than %d bytes", s.Variable, maxSecret)
	}
	for _, c := range text {
		if c < ' ' || c == 0x7f {
			return "", Usage("%s has a control character", s.Variable)
		}
	}
	return obs.Secret(text), nil
}
