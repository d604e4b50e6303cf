package alertcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/bounded"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
)

// Checked is what `regrade alert --check -o json` prints.
type Checked struct {
	// At is the document's time, absent where there is none that can be read.
	At       time.Time       `json:"at,omitzero"`
	Messages []alert.Message `json:"messages"`
	// Pending are conditions that have not lasted for a window yet.
	Pending []alert.Condition `json:"pending"`
}

// checkOnce looks once.
func (c *command) checkOnce(ctx context.Context, source watch.Source, store watch.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 2*watch.Timeout)
	defer cancel()
	look := alert.Look{}
	raw, date, err := watch.Read(ctx, &bounded.Calls{}, source)
	if err == nil {
		var d heartbeat.Document
		if d, err = heartbeat.Parse(raw); err == nil {
			look.Document, look.Date = &d, date
		}
	}
	if err != nil {
		look.Problem = err.Error()
	}
	kept, err := state(ctx, store)
	if err != nil {
		_, _ = fmt.Fprintf(c.e.Err, "the state cannot be read, so that this goes by the document alone: %v\n", err)
	}
	due, early := alert.Check(look, kept, c.settings.After)
	out := Checked{Messages: []alert.Message{}, Pending: early}
	if look.Document != nil {
		out.At = look.Document.At
	}
	if out.Pending == nil {
		out.Pending = []alert.Condition{}
	}
	for _, k := range due {
		out.Messages = append(out.Messages, alert.Would(k, out.At))
	}
	if c.output == "json" {
		enc := json.NewEncoder(c.e.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(out); err != nil {
			return env.Failed(fmt.Errorf("print JSON: %w", err))
		}
	} else {
		c.print(out)
	}
	if len(due) > 0 {
		return &env.Exit{Code: fleet.ExitFailed}
	}
	return nil
}

func (c *command) print(out Checked) {
	for _, m := range out.Messages {
		_, _ = fmt.Fprintf(c.e.Out, "%s %s: %s\n", m.Severity, m.Kind, m.Sentence)
	}
	for _, p := range out.Pending {
		_, _ = fmt.Fprintf(c.e.Out, "not yet %s: %s\n", p.Kind, alert.Would(p, out.At).Sentence)
	}
	if len(out.Messages)+len(out.Pending) == 0 {
		_, _ = fmt.Fprintf(c.e.Out, "nothing is wrong, as of %s\n", out.At.UTC().Format("2006-01-02 15:04:05Z"))
	}
}
