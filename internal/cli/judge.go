package cli

import (
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
)

// judgeFlags are the settings of verdicts and automatic decisions. What follows
// from another one, such as the network limits from the election timeout, is not
// a setting (R-185-26).
func (s *settings) judgeFlags(fs *pflag.FlagSet) {
	s.rules = decide.Rules{Fitness: fitness.DefaultPolicy(), Decide: decide.DefaultPolicy()}
	f, d := &s.rules.Fitness, &s.rules.Decide
	fs.IntVar(&f.Size, "window", f.Size, "samples of a full window")
	env.Bind(fs, "window", "FLEET_ROLE_WINDOW")
	fs.DurationVar(&f.ElectionTimeout, "election-timeout", f.ElectionTimeout, "etcd's election timeout: a link is bad above a tenth of it, and a standby may come in up to a twentieth")
	env.Bind(fs, "election-timeout", "FLEET_ROLE_ELECTION_TIMEOUT")
	fs.Float64Var(&f.FailedConnects, "failed-connects", f.FailedConnects, "share of a window's connects, 0 to 1, above which a link is bad")
	env.Bind(fs, "failed-connects", "FLEET_ROLE_FAILED_CONNECTS")
	fs.DurationVar(&f.WALFsync, "wal-fsync-limit", f.WALFsync, "limit of the p99 of etcd's WAL fsync, and of a standby's fdatasync")
	env.Bind(fs, "wal-fsync-limit", "FLEET_ROLE_WAL_FSYNC_LIMIT")
	fs.DurationVar(&f.BackendCommit, "backend-commit-limit", f.BackendCommit, "limit of the p99 of etcd's backend commit")
	env.Bind(fs, "backend-commit-limit", "FLEET_ROLE_BACKEND_COMMIT_LIMIT")
	fs.Float64Var(&f.Memory.SomeAvg60, "memory-some", f.Memory.SomeAvg60, "percent of a minute in which some task waits for memory, from which it is over; 0 for no limit")
	env.Bind(fs, "memory-some", "FLEET_ROLE_MEMORY_SOME_PERCENT")
	fs.Float64Var(&f.Memory.FullAvg60, "memory-full", f.Memory.FullAvg60, "the same of every task; 0 for no limit")
	env.Bind(fs, "memory-full", "FLEET_ROLE_MEMORY_FULL_PERCENT")
	s.floorMiB = f.Memory.AvailableFloorBytes >> 20
	fs.Uint64Var(&s.floorMiB, "memory-floor-mib", s.floorMiB, "available memory below which it is over; 0 for no limit")
	env.Bind(fs, "memory-floor-mib", "FLEET_ROLE_MEMORY_FLOOR_MIB")
	s.wifi = string(f.WiFi)
	fs.StringVar(&s.wifi, "wifi", s.wifi, "what a default route by Wi-Fi means: ignore, avoid (such a standby does not come in) or unfit (such a voter goes, too)")
	env.Bind(fs, "wifi", "FLEET_ROLE_WIFI")
	fs.IntVar(&d.MaxServers, "max-servers", d.MaxServers, "most servers that the cluster may have: the target and one more must fit; 0 for no bound")
	env.Bind(fs, "max-servers", "FLEET_ROLE_MAX_SERVERS")
	fs.IntVar(&d.MaxUnfit, "max-unfit", d.MaxUnfit, "voters that may be unfit at once; with more a common cause is likely and nothing is swapped")
	env.Bind(fs, "max-unfit", "FLEET_ROLE_MAX_UNFIT")
	fs.IntVar(&d.MaxPerDay, "max-swaps-per-day", d.MaxPerDay, "automatic swaps in 24 hours")
	env.Bind(fs, "max-swaps-per-day", "FLEET_ROLE_MAX_SWAPS_PER_DAY")
	fs.Var(env.Seconds{Value: &d.Dwell}, "dwell", "how long a host that was swapped out is no candidate")
	env.Bind(fs, "dwell", "FLEET_ROLE_DWELL_SECONDS")
}

// readJudge checks what hangs together and derives what follows.
func (s *settings) readJudge(cmd *cobra.Command) error {
	f, d := &s.rules.Fitness, &s.rules.Decide
	d.Target, f.Period = s.policy.Target, s.policy.Period
	// How many hosts are eligible is the cluster's to say: each pass judges it.
	if rs := decide.CheckTarget(d.Target, 0, d.MaxServers); len(rs) > 0 {
		return env.Usage("%s", words(rs))
	}
	wifi, err := fitness.ParseWiFiRule(s.wifi)
	if err != nil {
		return env.Usage("%v", err)
	}
	f.WiFi = wifi
	const most = 1 << 40
	f.Memory.AvailableFloorBytes = min(s.floorMiB, most) << 20
	switch {
	case f.Size < 5 || f.Size > fitness.MaxSize:
		return env.Usage("a window of %d samples: want 5 to %d", f.Size, fitness.MaxSize)
	case f.ElectionTimeout < 100*time.Millisecond || f.ElectionTimeout > time.Minute:
		return env.Usage("an election timeout of %s: want 100ms to 1m", f.ElectionTimeout)
	case !(f.FailedConnects >= 0 && f.FailedConnects <= 1):
		return env.Usage("failed connects %v: want a share of 0 to 1", f.FailedConnects)
	case f.WALFsync <= 0 || f.BackendCommit <= 0:
		return env.Usage("the limits of the disk must be above 0")
	case !percentage(f.Memory.SomeAvg60) || !percentage(f.Memory.FullAvg60):
		return env.Usage("the limits of memory pressure are percent, 0 to 100")
	case d.MaxUnfit < 1:
		return env.Usage("max-unfit %d: want at least 1; FLEET_ROLE_DRY_RUN keeps automatic swaps away", d.MaxUnfit)
	case d.MaxPerDay < 0:
		return env.Usage("max-swaps-per-day %d: want 0 or more", d.MaxPerDay)
	}
	least := decide.Cooldown(s.policy.LearnerStall, s.policy.Period, f.Size)
	if !cmd.Flags().Changed("cooldown") {
		s.policy.Cooldown = least
	}
	return nil
}

func percentage(v float64) bool { return v >= 0 && v <= 100 && !math.IsNaN(v) }

// decisions are the rules that a command decides by: those it was made with,
// and the verdicts of its settings.
func (s *settings) decisions(d Deps) controller.Rules {
	r := d.Rules
	if r.Judge == nil {
		r.Judge, r.Window = s.rules.Judge, s.rules.Fitness.Size
	}
	return r
}
