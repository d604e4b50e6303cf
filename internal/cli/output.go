package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/status"
)

// output is the -o flag.
type output struct{ format string }

func (o *output) flags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.format, "output", "o", "text", "text or json")
}

func (o *output) check() error {
	if o.format != "text" && o.format != "json" {
		return env.Usage("output %q: want text or json", o.format)
	}
	return nil
}

func (o *output) json() bool { return o.format == "json" }

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

func printReasons(w io.Writer, reasons []status.Reason) {
	for _, r := range reasons {
		_, _ = fmt.Fprintf(w, "  - %s (%s)\n", r.Sentence, r.Code)
	}
}

// words are the reasons in one line.
func words(reasons []status.Reason) string {
	s := make([]string, len(reasons))
	for i, r := range reasons {
		s[i] = r.Sentence
	}
	return strings.Join(s, "; ")
}
