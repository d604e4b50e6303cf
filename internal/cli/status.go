package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

func newStatus(e env.Env, d Deps) *cobra.Command {
	var a access
	var out output
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the swap under way, what is next, and every host",
		Long: `Status prints what the controller published last. With -o json it prints
status.json as it stands; its schema is internal/status/schemas/status.json.
With --watch it prints again whenever something but the time has changed; what
keeps it from reading is printed once, and it goes on.`,
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

func showStatus(ctx context.Context, cluster Cluster, e env.Env, out output, watch bool, look time.Duration) error {
	last, failing := "", ""
	for {
		cm, err := cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
		if err == nil {
			raw := cm.Data[fleet.KeyStatus]
			if raw == "" {
				err = fmt.Errorf("no controller has published a status yet")
			} else {
				var st status.Status
				st, err = status.ParseStatus([]byte(raw))
				if now := withoutTime(st); err == nil && now != last {
					last = now
					if err := printStatus(e.Out, st, raw, out); err != nil {
						return err
					}
				}
			}
		}
		if !watch {
			return err
		}
		if ctx.Err() == nil {
			failing = sayOnce(e.Err, failing, err)
		}
		if !pause(ctx, look) {
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

func printStatus(w io.Writer, st status.Status, raw string, out output) error {
	if out.json() {
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(raw), "", "  "); err != nil {
			return fmt.Errorf("print status: %w", err)
		}
		b.WriteByte('\n')
		_, err := w.Write(b.Bytes())
		return err
	}
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	mode := ""
	if st.DryRun {
		mode = ", dry run: automatic swaps are reported only"
	}
	p("%s, target %d voters%s", stamp(st.At), st.Target, mode)
	if s := st.Swap; s != nil {
		p("swap  %s: %s out, %s in", s.ID, s.Out, s.In)
		line := fmt.Sprintf("      %s since %s", s.Step, stamp(s.StepSince))
		if !s.Deadline.IsZero() {
			line += ", bound " + stamp(s.Deadline)
		}
		p("%s", line)
		printReasons(w, s.Reasons)
	}
	if r := st.Request; r != nil {
		p("asked %s out, %s in, at %s", r.Out, r.In, stamp(r.At))
	}
	if st.Pause != nil {
		p("hold  %s", st.Pause.Words())
	}
	p("next  %s (%s)", st.Next.Sentence, st.Next.Code)
	if st.Swap == nil {
		printReasons(w, st.Next.Waits)
	}
	if l := st.LastSwap; l != nil {
		p("last  %s: %s out, %s in, ended %s", l.Outcome, l.Out, l.In, stamp(l.EndedAt))
		printReasons(w, l.Reasons)
	}
	if len(st.Pending) > 0 {
		p("owed  clean-up of %s, when it comes back", strings.Join(st.Pending, ", "))
	}
	if !st.EvenSince.IsZero() {
		p("even  number of voters since %s", stamp(st.EvenSince))
	}
	if st.At.Before(st.CooldownUntil) {
		p("cool  no automatic swap before %s", stamp(st.CooldownUntil))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "HOST\tROLE\tLEVEL\tREADY\tVOTE\tMEMBER\tELIGIBLE\tREPORT")
	for _, h := range st.Hosts {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Name, dash(string(h.Role)), dash(string(h.Level)),
			yes(h.Ready), vote(h), member(h), eligible(h), fresh(h))
	}
	return t.Flush()
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

func vote(h status.Host) string {
	switch {
	case h.Voter:
		return "voter"
	case h.Learner:
		return "learner"
	}
	return "-"
}

func member(h status.Host) string {
	if h.MemberID == 0 {
		return "-"
	}
	return h.MemberID.String()
}

func eligible(h status.Host) string {
	if h.Pinned {
		return yes(h.Eligible) + ", pinned"
	}
	return yes(h.Eligible)
}

func fresh(h status.Host) string {
	switch {
	case h.Fresh:
		return "fresh"
	case h.Role == "":
		return "none"
	}
	return "silent"
}
