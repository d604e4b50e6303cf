package hostcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/status"
)

// CodeLevelsOff is said where host.yaml leaves the level half off.
const CodeLevelsOff = "LevelsOff"

// NewLevel makes `regrade level` with its commands, on the host that they are about.
func NewLevel(e env.Env, d Deps) *cobra.Command {
	h := &host{e: e, d: d}
	cmd := &cobra.Command{
		Use:   "level",
		Short: "Show how much of a server this host runs, or change it",
		Long: `A server runs at one of three levels and votes at each: full; control-plane,
cordoned and drained; etcd-only, without API server, scheduler, controller manager
and agent. Run it on the host. Without a command it shows.

Exit statuses: 0 done, 1 failed, 2 refused with nothing changed, 3 not yet.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return h.showLevel(cmd.Context(), "text") },
	}
	env.Root(cmd.PersistentFlags(), &h.root)
	cmd.AddCommand(h.levelShow(), h.levelSet())
	return cmd
}

func outputFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "output", "o", "text", "text, or json by internal/status/schemas/level.json")
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return env.Usage("--output %q: want text or json", output)
	}
	return nil
}

func (h *host) levelShow() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Say at which level this host is, and what speaks against each step; changes nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return h.showLevel(cmd.Context(), output)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func (h *host) levelSet() *cobra.Command {
	var output string
	var dry bool
	cmd := &cobra.Command{
		Use:   "set full|control-plane|etcd-only",
		Short: "Bring this host to a level, one step after the other",
		Long: `Each step has the gates that pressure has: no swap, the Lease free, every other
voter Ready and of one mind, two other API servers. The cooldown is not asked. Where
a gate is shut nothing is changed, status 2. --dry-run says what speaks against the
next step, 0 for nothing and 2 otherwise.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return env.Usage("want full, control-plane or etcd-only")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			to, err := fleet.ParseLevel(args[0])
			if err != nil || args[0] == "" {
				return env.Usage("level %q: want full, control-plane or etcd-only", args[0])
			}
			if dry {
				return h.tryLevel(cmd.Context(), to, output)
			}
			return h.setLevel(cmd.Context(), to, output)
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what speaks against the next step, and change nothing")
	return cmd
}

// lookAtLevel observes without touching anything.
func (h *host) lookAtLevel(ctx context.Context) (hostd.Facts, error) {
	p, err := h.parts()
	if err != nil {
		return hostd.Facts{}, err
	}
	p.begin(ctx)
	p.daemon.Host = bystander{Host: p.daemon.Host, answers: h.d.PeerPort}
	p.daemon.Command = &hostd.Command{LookAtLevels: true}
	p.daemon.Silent = true
	f, _, err := hostd.New(p.daemon).Look(ctx)
	if err != nil {
		return hostd.Facts{}, env.Failed(err)
	}
	return f, nil
}

func (h *host) showLevel(ctx context.Context, output string) error {
	f, err := h.lookAtLevel(ctx)
	if err != nil {
		return err
	}
	return h.printLevel(levelOf(f, fleet.LevelFull, fleet.LevelEtcdOnly), output)
}

func (h *host) tryLevel(ctx context.Context, to fleet.Level, output string) error {
	f, err := h.lookAtLevel(ctx)
	if err != nil {
		return err
	}
	doc := levelOf(f, to)
	if err := h.printLevel(doc, output); err != nil {
		return err
	}
	switch {
	case !doc.Enabled:
		return off()
	case doc.Problem != "":
		return refused(level.CodeUnread, doc.Problem)
	case len(doc.Steps) > 0 && !doc.Steps[0].Open:
		return refused(doc.Steps[0].Reasons[0].Code, doc.Steps[0].Reasons[0].Sentence)
	}
	return nil
}

func off() error {
	return refused(CodeLevelsOff, fleet.FileHostConfig+" leaves levels off")
}

// levelOf says of a host what it is at, and what speaks against the next step toward
// each of the levels.
func levelOf(f hostd.Facts, toward ...fleet.Level) status.Level {
	doc := status.Level{Protocol: status.Protocol, Node: f.Node, Level: f.Host.Level, Runs: f.Host.Server.Level, Enabled: f.Levels != nil}
	if f.View != nil && f.View.Self != nil {
		doc.Label = f.View.Self.Labels[f.Policy.Keys.Level()]
	}
	l := f.Levels
	if l == nil {
		return doc
	}
	doc.Memory = memoryOf(l)
	if j := l.Journal; j.Phase != "" {
		doc.Last = &status.Regrade{From: j.From, To: j.To, Phase: j.Phase, By: j.By, Code: j.Code, Message: j.Message, Began: j.Began, Ended: j.Ended}
	}
	doc.Problem = l.SurveyProblem
	if doc.Problem == "" {
		doc.Problem = l.JournalProblem
	}
	if f.View == nil {
		doc.Problem = f.ViewProblem
	}
	for _, goal := range toward {
		to := level.Toward(f.Host.Level, goal)
		s, ok := f.Situation(to)
		if to == f.Host.Level || !ok {
			continue
		}
		step := status.LevelStep{To: to, Open: true}
		for _, g := range level.Gates(s) {
			step.Open = false
			step.Reasons = append(step.Reasons, status.Reason{Code: g.Code, Sentence: g.Sentence})
		}
		doc.Steps = append(doc.Steps, step)
	}
	return doc
}

func memoryOf(l *hostd.Levels) *status.LevelMemory {
	r := l.Reading
	m := &status.LevelMemory{AvailableBytes: r.AvailableBytes, TotalBytes: r.TotalBytes}
	if p := r.Pressure; p != nil {
		m.SomeAvg10, m.SomeAvg60, m.FullAvg10, m.FullAvg60 = &p.SomeAvg10, &p.SomeAvg60, &p.FullAvg10, &p.FullAvg60
	}
	over, why := level.Over(r, l.Policy.Over)
	m.Short, m.Plenty = over, !over && level.Calm(r, l.Policy.CalmLimits())
	for _, x := range append(why, level.Missing(r, l.Policy.Over)...) {
		m.Reasons = append(m.Reasons, status.Reason{Code: x.Code, Sentence: x.Sentence})
	}
	return m
}

func (h *host) printLevel(doc status.Level, output string) error {
	if output == "json" {
		raw, err := json.MarshalIndent(doc, "", "  ")
		if err != nil {
			return env.Failed(err)
		}
		_, _ = fmt.Fprintln(h.e.Out, string(raw))
		return nil
	}
	printLevelText(h.e.Out, doc)
	return nil
}

func printLevelText(w io.Writer, doc status.Level) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("node", "%s", doc.Node)
	line("level", "%s; the server runs at %s, its Node says %s", doc.Level, or(string(doc.Runs), "nothing that was noted"), or(doc.Label, "full"))
	if !doc.Enabled {
		line("steps", "levels are off in %s", fleet.FileHostConfig)
		return
	}
	if m := doc.Memory; m != nil {
		text := map[bool]string{true: "short", false: "neither short nor plenty"}[m.Short]
		if m.Plenty {
			text = "plenty"
		}
		line("memory", "%s: %d of %d MiB available", text, m.AvailableBytes>>20, m.TotalBytes>>20)
		if m.SomeAvg60 != nil {
			line("pressure", "of the last minute some task waited %.2f %%, every task %.2f %%", *m.SomeAvg60, *m.FullAvg60)
		}
		for _, r := range m.Reasons {
			line("", "%s: %s", r.Code, r.Sentence)
		}
	}
	if j := doc.Last; j != nil {
		line("last step", "%s to %s by %s: %s %s", j.From, j.To, j.By, j.Phase, strings.TrimSpace(j.Code+" "+j.Message))
	}
	for _, s := range doc.Steps {
		if s.Open {
			line("to "+string(s.To), "nothing speaks against it")
		}
		for i, r := range s.Reasons {
			name := ""
			if i == 0 {
				name = "to " + string(s.To)
			}
			line(name, "%s: %s", r.Code, r.Sentence)
		}
	}
	if doc.Problem != "" {
		line("problem", "%s", doc.Problem)
	}
}

// setLevel takes one step after the other until the host is at the level. Killed in
// between, the host's daemon ends the step that is noted.
func (h *host) setLevel(ctx context.Context, to fleet.Level, output string) error {
	p, err := h.holding(ctx, hostd.Command{Level: to})
	if err != nil {
		return err
	}
	defer func() { _ = p.lock.Unlock() }()
	if p.daemon.Levels == nil {
		return off()
	}
	d := hostd.New(p.daemon)
	bound := 2 * (time.Duration(p.settings.OperationTimeout) + time.Minute)
	end := h.e.Now().Add(bound)
	began := false // this command has taken a step
	for {
		wake, err := d.Pass(ctx)
		if ctx.Err() != nil {
			return env.Failed(ctx.Err())
		}
		f, dec := d.Facts(), d.Decision()
		if n := dec.Effect.LevelJournal; n != nil && n.Running() {
			began = true
		}
		j := hostd.LevelJournal{}
		if f.Levels != nil {
			j = f.Levels.Journal
		}
		switch {
		case err != nil || dec.Acts() || j.Running():
		case began && j.By == hostd.ByHand && j.Phase == fleet.PhaseFailed:
			return env.Failed(fmt.Errorf("%s to %s failed: %s: %s", j.From, j.To, j.Code, j.Message))
		case f.Host.Level == to:
			return h.printLevel(levelOf(f), output)
		case dec.Level.Code != "":
			return refused(dec.Level.Code, fmt.Sprintf("%s (the host is at %s)", dec.Level.Sentence, f.Host.Level))
		case f.View == nil:
			return refused(hostd.CodeNoAPI, f.ViewProblem)
		default:
			return refused(hostd.CodeNotServer, "this host is no server, or on its way out: it has no level")
		}
		if h.e.Now().After(end) {
			return &env.Exit{Code: fleet.ExitNotYet, Err: fmt.Errorf("not yet after %s: %s", bound, levelWait(dec, err))}
		}
		if wake.Again {
			continue
		}
		if err := h.d.Wait(ctx, wake.After); err != nil {
			return env.Failed(err)
		}
	}
}

func levelWait(d hostd.Decision, err error) string {
	switch {
	case d.Level.Code != "":
		return d.Level.Code + ": " + d.Level.Sentence
	case err != nil:
		return err.Error()
	}
	return "the step is under way"
}
