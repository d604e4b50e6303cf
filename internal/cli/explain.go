package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Explanation is what explain -o json prints.
type Explanation struct {
	Verdict fitness.Verdict `json:"verdict"`
	// Host is the host as the controller sees it, null for none.
	Host *status.Host `json:"host"`
	// Series are the readings of the window that was judged, by measure.
	Series []Series `json:"series,omitempty"`
}

// Series are the values of one measure, oldest first; null where a sample has none.
type Series struct {
	Kind   fitness.Kind `json:"kind"`
	Peer   string       `json:"peer,omitempty"`
	Values []*float64   `json:"values"`
}

func newExplain(e env.Env, d Deps) *cobra.Command {
	var a access
	var out output
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Show why a host is fit, unfit or unknown: every reading with its limit",
		Long: `Explain prints the verdict on one host as the controller published it: every
reason, every value that was judged beside its limit, and how the value went over
the window, as a bar of which each place is the highest of its own time. A bar that
is full is at the limit or beyond it.

Of a bad link it says which end is the cause and which the victim, and why.`,
		Example: "  regrade explain nas-2",
		Args:    exactly("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			return failed(explain(cmd.Context(), cluster, e, out, args[0]))
		},
	}
	a.flags(cmd.Flags())
	out.flags(cmd.Flags())
	return cmd
}

func explain(ctx context.Context, cluster Cluster, e env.Env, out output, node string) error {
	st, _, err := readStatus(ctx, cluster)
	if err != nil {
		return err
	}
	x := Explanation{}
	if i := slices.IndexFunc(st.Hosts, func(h status.Host) bool { return h.Name == node }); i >= 0 {
		x.Host = &st.Hosts[i]
	}
	i := slices.IndexFunc(st.Verdicts, func(v fitness.Verdict) bool { return v.Node == node })
	switch {
	case i >= 0:
		x.Verdict = st.Verdicts[i]
	case x.Host == nil:
		return env.Usage("the status names no host %s%s", node, known(st))
	case len(st.Verdicts) == 0:
		return fmt.Errorf("there is no verdict on any host: no probe has written yet (is the DaemonSet %s running?)", fleet.ServiceAccountProbe)
	default:
		return fmt.Errorf("there is no verdict on %s: it neither votes nor is it eligible", node)
	}
	var w *fitness.Window
	if cm, err := cluster.ConfigMap(ctx, fleet.ConfigMapProbe); err == nil {
		if got, err := fitness.Decode(node, []byte(cm.Data[node])); err == nil {
			w = &got
		}
	}
	if out.json() {
		if w != nil {
			for _, m := range x.Verdict.Measures {
				x.Series = append(x.Series, Series{Kind: m.Kind, Peer: m.Peer, Values: nullable(series(w, m))})
			}
		}
		return printJSON(e.Out, x)
	}
	printExplanation(e.Out, painter(e), st, x, w)
	return nil
}

// known lists the hosts a person may have meant.
func known(st status.Status) string {
	names := make([]string, 0, len(st.Hosts))
	for _, h := range st.Hosts {
		names = append(names, h.Name)
	}
	if len(names) == 0 || len(names) > 20 {
		return ""
	}
	return "; it names " + strings.Join(names, ", ")
}

func nullable(values []float64) []*float64 {
	out := make([]*float64, len(values))
	for i, v := range values {
		if v == v {
			out[i] = &v
		}
	}
	return out
}

const sparkWidth = 30

func printExplanation(w io.Writer, p paint, st status.Status, x Explanation, window *fitness.Window) {
	v := &x.Verdict
	kind := "standby"
	if v.Votes {
		kind = "voter"
	}
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("%s  %s, %s%s", p.in(bold, v.Node), kind, p.in(verdictColour(v.Fitness), string(v.Fitness)), partWords(v))
	if h := x.Host; h != nil {
		line("  %s", strings.Join(hostWords(*h), ", "))
	}
	if v.Samples > 0 {
		line("  link %s; %d samples from %s to %s by its clock", dash(string(v.Link)), v.Samples, stamp(v.From), stamp(v.To))
	}
	if len(v.Reasons) > 0 {
		line("")
		for _, r := range v.Reasons {
			mark, c := "-", colour("")
			switch r.Weight {
			case fitness.Ground, fitness.Bar:
				mark, c = "!", red
			case fitness.Gap:
				mark, c = "?", yellow
			}
			line("  %s %s (%s)", p.in(c, mark), r.Sentence, r.Code)
		}
	}
	if len(v.Measures) > 0 {
		line("")
		rows := make([][]cell, 0, len(v.Measures))
		for _, m := range v.Measures {
			bar := ""
			if window != nil {
				bar = p.spark(series(window, m), m.Limit, sparkWidth)
			}
			rows = append(rows, []cell{
				{text: measureName(m)}, {text: measureValue(m)}, {text: measureLimit(m)},
				{text: fmt.Sprintf("%.0f %%", 100*m.Margin), colour: marginColour(m.Margin)}, {text: bar},
			})
		}
		p.table(w, "  ", []column{{head: "READING"}, {head: "VALUE", right: true}, {head: "LIMIT", right: true}, {head: "OF LIMIT", right: true}, {head: "WINDOW, OLDEST FIRST"}}, rows)
	}
	if a := st.Automatic; a != nil && (a.Out == v.Node || a.In == v.Node) {
		line("\n  %s", a.Sentence)
		printReasons(w, a.Reasons)
	}
}

func partWords(v *fitness.Verdict) string {
	if v.BadLinks == 0 {
		return ""
	}
	s := fmt.Sprintf(", on %d bad links", v.BadLinks)
	if v.BadLinks == 1 {
		s = ", on one bad link"
	}
	if v.Part != "" {
		s += ", " + string(v.Part)
	}
	switch {
	case v.Seen == 1:
		s += " (one standby finds it bad to reach, too)"
	case v.Seen > 1:
		s += fmt.Sprintf(" (%d standbys find it bad to reach, too)", v.Seen)
	}
	return s
}

func hostWords(h status.Host) []string {
	words := []string{"role " + dash(string(h.Role))}
	if h.Level != "" {
		words = append(words, "level "+string(h.Level))
	}
	ready := "not Ready"
	if h.Ready {
		ready = "Ready"
	}
	words = append(words, ready)
	if h.MemberID != 0 {
		words = append(words, "member "+h.MemberID.String())
	}
	switch {
	case h.Pinned:
		words = append(words, "pinned")
	case !h.Eligible:
		words = append(words, "not eligible")
	}
	if len(h.Members) > 0 {
		ids := make([]string, len(h.Members))
		for i, m := range h.Members {
			ids[i] = m.String()
		}
		words = append(words, "its etcd lists "+strings.Join(ids, " "))
	}
	return words
}
