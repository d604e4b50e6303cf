package recoverycmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/recovery"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/status"
)

// Report is what `regrade recovery status -o json` prints.
type Report struct {
	At    time.Time `json:"at"`
	Nodes int       `json:"nodes"`
	// NotReady are the Nodes that are not Ready, or marked.
	NotReady []Line `json:"not_ready"`
}

// Line is one Node of it.
type Line struct {
	Node          string          `json:"node"`
	Ready         recover.Ready   `json:"ready"`
	SilentSeconds int64           `json:"silent_seconds,omitempty"`
	OutOfService  bool            `json:"out_of_service,omitempty"`
	Action        recover.Action  `json:"action,omitempty"`
	Reasons       []status.Reason `json:"reasons"`
}

func (c *command) status() *cobra.Command {
	var format string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say of every node that is not Ready what recovery would do, and why",
		Long: `Status looks, prints of every Node that is not Ready, or carries the mark, what
recovery would do with it and why, and changes nothing. It takes how long a node is
silent from the API server's clock and the time in the Node's condition; the loop
goes by what it saw itself, so that one that began later acts later.

While a decision hangs on what the probes say it looks for a while: a probe counts
once it was seen to go on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, access, err := c.read(cmd)
			if err != nil {
				return err
			}
			if format != "text" && format != "json" {
				return env.Usage("output %q: want text or json", format)
			}
			cluster, err := c.d.Connect(access, c.cluster.Namespace, p.Marks())
			if err != nil {
				return env.Failed(err)
			}
			r := recovery.New(cluster, recovery.Settings{Policy: p, Poll: c.s.poll, ByDate: true})
			t, err := c.settled(cmd.Context(), r, wait)
			if err != nil {
				return env.Failed(err)
			}
			if format == "json" {
				return printJSON(c.e.Out, report(t))
			}
			return printText(c.e.Out, report(t))
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	wait = 40 * time.Second
	cmd.Flags().Var(env.Seconds{Value: &wait}, "wait", "how long to look for what the probes say")
	return cmd
}

// settled looks until no decision waits for a probe any more, or wait is over.
func (c *command) settled(ctx context.Context, r *recovery.Recovery, wait time.Duration) (recovery.Turn, error) {
	end := time.Now().Add(wait)
	for {
		t := r.Pass(ctx)
		if t.Decision == nil {
			return t, t.Err
		}
		if !waits(t.Decision) || !time.Now().Before(end) {
			return t, nil
		}
		if !sleep.For(ctx, c.d.Look) {
			return t, nil
		}
	}
}

func waits(d *recover.Decision) bool {
	for i := range d.Verdicts {
		for _, r := range d.Verdicts[i].Reasons {
			if r.Code == recover.CodeTooFewWitness || r.Code == recover.CodeSignsTooShort {
				return true
			}
		}
	}
	return false
}

func report(t recovery.Turn) Report {
	r := Report{At: t.Date, Nodes: t.Decision.Nodes, NotReady: []Line{}}
	for i := range t.Decision.Verdicts {
		v := &t.Decision.Verdicts[i]
		r.NotReady = append(r.NotReady, Line{
			Node: v.Node, Ready: v.Ready, SilentSeconds: int64(v.Silent / time.Second), OutOfService: v.OutOfService, Action: v.Action, Reasons: v.Reasons,
		})
	}
	return r
}

func printJSON(w io.Writer, r Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return env.Failed(fmt.Errorf("print JSON: %w", err))
	}
	return nil
}

func printText(w io.Writer, r Report) error {
	if len(r.NotReady) == 0 {
		_, err := fmt.Fprintf(w, "all %d nodes are Ready and unmarked\n", r.Nodes)
		return err
	}
	_, _ = fmt.Fprintf(w, "%d of %d nodes\n", len(r.NotReady), r.Nodes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NODE\tREADY\tWHAT\tWHY")
	for _, l := range r.NotReady {
		what := "left alone"
		if l.Action != recover.ActNone {
			what = string(l.Action)
		}
		words := make([]string, len(l.Reasons))
		for i, reason := range l.Reasons {
			words[i] = fmt.Sprintf("%s (%s)", reason.Sentence, reason.Code)
		}
		ready := string(l.Ready)
		if ready == "" {
			ready = "-"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Node, ready, what, strings.Join(words, "; "))
	}
	return t.Flush()
}
