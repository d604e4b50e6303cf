package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/status"
)

func newStatus(e env.Env, d Deps) *cobra.Command {
	var a access
	var out output
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show voters and standbys, how fit they are, the swap under way, and what is next",
		Long: `Status prints what the controller published last. With -o json it prints
status.json as it stands; its schema is internal/status/schemas/status.json.
With --watch it prints again whenever something but the time has changed, on a
terminal in the same place; what keeps it from reading is printed once, and it
goes on. A status that no controller has renewed for two minutes is said to be old.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.Read(cmd, e.Getenv); err != nil {
				return err
			}
			if err := out.check(); err != nil {
				return err
			}
			cluster, err := a.connect(d)
			if err != nil {
				return failed(err)
			}
			return failed(showStatus(cmd.Context(), cluster, e, out, watch, d.Look))
		},
	}
	a.flags(cmd.Flags())
	out.flags(cmd.Flags())
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print again on a change, until interrupted")
	return cmd
}

// readStatus is the status as published, and as it stands.
func readStatus(ctx context.Context, cluster Cluster) (status.Status, string, error) {
	cm, err := cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
	if err != nil {
		return status.Status{}, "", answered(err, server(cluster))
	}
	raw := cm.Data[fleet.KeyStatus]
	if raw == "" {
		return status.Status{}, "", fmt.Errorf("no controller has published a status yet")
	}
	st, err := status.ParseStatus([]byte(raw))
	return st, raw, err
}

// clear is what a terminal is told before it shows the same again: home, and
// away with the rest.
const clear = "\x1b[H\x1b[2J\x1b[3J"

func showStatus(ctx context.Context, cluster Cluster, e env.Env, out output, watch bool, look time.Duration) error {
	last, failing, old := "", "", false
	for {
		st, raw, err := readStatus(ctx, cluster)
		if now := withoutTime(st); err == nil && now != last {
			last = now
			if watch && !out.json() && terminal(e.Out) {
				_, _ = io.WriteString(e.Out, clear)
			}
			if err := printStatus(e, st, raw, out); err != nil {
				return err
			}
		}
		if age := cluster.Date().Sub(st.At); err == nil {
			if now := age >= quietFor; now != old {
				if old = now; old {
					_, _ = fmt.Fprintf(e.Err, "regrade: this status is %s old: no controller has published since; is the Deployment %s running, and does it reach the API?\n",
						age.Round(time.Second), fleet.LeaseHolder)
				}
			}
		}
		if !watch {
			return err
		}
		if ctx.Err() == nil {
			failing = sayOnce(e.Err, failing, err)
		}
		if !sleep.For(ctx, look) {
			return nil // interrupted, which is how a watch ends
		}
	}
}

func withoutTime(st status.Status) string {
	st.At = time.Time{}
	raw, err := json.Marshal(st)
	if err != nil {
		return ""
	}
	return string(raw)
}

func printStatus(e env.Env, st status.Status, raw string, out output) error {
	if out.json() {
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(raw), "", "  "); err != nil {
			return fmt.Errorf("print status: %w", err)
		}
		b.WriteByte('\n')
		_, err := e.Out.Write(b.Bytes())
		return err
	}
	// One write, so that a redrawn screen does not flicker.
	var b bytes.Buffer
	screen(&b, painter(e), st)
	_, err := e.Out.Write(b.Bytes())
	return err
}

func droppedWords(d status.Dropped) string {
	if d.Out == "" {
		return "that could not be read"
	}
	return fmt.Sprintf("%s out, %s in, of %s", d.Out, d.In, stamp(d.Asked))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
