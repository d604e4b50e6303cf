package recoverycmd

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/recover"
)

// Settings are the rules of recovery. `regrade manifests` takes the same flags for the
// Deployment.
type Settings struct {
	after, poll time.Duration
	annotation  string
	prune       int
	percent     int
	Evidence    bool
	DryRun      bool
}

// Prunes says whether Nodes are deleted, which needs a right of its own.
func (s *Settings) Prunes() bool { return s.prune > 0 }

// Bounds of what makes sense. A threshold shorter than the kubelet's own period of ten
// seconds would be no threshold.
const (
	minAfter = 10 * time.Second
	maxAfter = 24 * time.Hour
	maxPoll  = time.Hour
	maxPrune = 10 * 365 * 24
)

// Flags adds them. Each name begins with what it belongs to where a command has others
// beside it.
func (s *Settings) Flags(fs *pflag.FlagSet, prefix string) {
	s.after, s.poll, s.Evidence, s.percent = recover.DefaultAfter, recover.DefaultPoll, true, recover.DefaultMaxPercent
	add := func(name, variable string, define func(name string)) {
		define(prefix + name)
		env.Bind(fs, prefix+name, variable)
	}
	add("after", "NODE_RECOVERY_AFTER_SECONDS", func(n string) {
		fs.Var(env.Seconds{Value: &s.after, Min: minAfter, Max: maxAfter}, n, "how long a node's kubelet must be silent (Ready Unknown) before the node is taken for dead")
	})
	add("poll", "NODE_RECOVERY_POLL_SECONDS", func(n string) {
		fs.Var(env.Seconds{Value: &s.poll, Min: time.Second, Max: maxPoll}, n, "time between two passes")
	})
	add("annotation", "NODE_RECOVERY_ANNOTATION", func(n string) {
		fs.StringVar(&s.annotation, n, fleet.AnnotationOutOfService, "annotation that marks a Node as tainted by this program; further ones, comma-separated, and the default one are those of earlier settings: they are cleared and not written")
	})
	add("evidence", "NODE_RECOVERY_EVIDENCE", func(n string) {
		fs.Var(env.Bool{Value: &s.Evidence}, n, "where the cluster has probes, taint a voter only when those of two other hosts get no answer from it")
		fs.Lookup(n).NoOptDefVal = fleet.True
	})
	add("max-percent", "NODE_RECOVERY_MAX_PERCENT", func(n string) {
		fs.Var(env.Int{Value: &s.percent, Min: 1, Max: 100}, n, "percent of the nodes that may be silent and out of service together, one always may; with more a common cause is likely and nothing is tainted")
	})
	add("prune-hours", "NODE_RECOVERY_PRUNE_HOURS", func(n string) {
		fs.Var(env.Int{Value: &s.prune, Max: maxPrune}, n, "hours after which the Node of an agent that one process sees out of service is deleted; 0 for never")
	})
	add("dry-run", "NODE_RECOVERY_DRY_RUN", func(n string) {
		fs.Var(env.Bool{Value: &s.DryRun}, n, "say what would be done and write nothing")
		fs.Lookup(n).NoOptDefVal = fleet.True
	})
}

// name is a setting as the person who set it knows it: by its variable when that is
// where its value came from.
func name(cmd *cobra.Command, flag string) string {
	f := cmd.Flags().Lookup(flag)
	if f == nil || f.Changed {
		return "--" + flag
	}
	return env.Variable(f)
}

// Policy checks what hangs together and gives the rules, all but whose node this is.
func (s *Settings) Policy(cmd *cobra.Command, prefix string, keys fleet.Keys) (recover.Policy, error) {
	called := func(flag string) string { return name(cmd, prefix+flag) }
	switch {
	case s.poll > s.after:
		return recover.Policy{}, env.Usage("%s: a pass each %s cannot see a silence of %s (%s)", called("poll"), s.poll, s.after, called("after"))
	case s.prune > 0 && time.Duration(s.prune)*time.Hour < s.after:
		return recover.Policy{}, env.Usage("%s: %d h is less than the %s after which a node is taken for dead", called("prune-hours"), s.prune, s.after)
	}
	marks := strings.Split(s.annotation, ",")
	for i, mark := range marks {
		mark = strings.TrimSpace(mark)
		if err := fleet.CheckKey(mark); err != nil {
			return recover.Policy{}, env.Usage("%s: %v", called("annotation"), err)
		}
		if strings.HasPrefix(mark, keys.Prefix()) || strings.HasPrefix(mark, fleet.EtcdAnnotationPrefix) {
			return recover.Policy{}, env.Usage("%s: %s is under a prefix whose annotations mean something else", called("annotation"), mark)
		}
		marks[i] = mark
	}
	if !slices.Contains(marks, fleet.AnnotationOutOfService) {
		marks = append(marks, fleet.AnnotationOutOfService)
	}
	return recover.Policy{
		Keys: keys, After: s.after, Annotation: marks[0], Former: marks[1:], Evidence: s.Evidence, MaxPercent: s.percent,
		Prune: time.Duration(s.prune) * time.Hour,
	}, nil
}
