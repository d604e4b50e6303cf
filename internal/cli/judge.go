package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
)

// leastDisk and mostDisk bound a limit of the disk: etcd's histograms tell 1 ms to 8 s
// apart, a standby's own fdatasync less.
const (
	leastDisk = 100 * time.Microsecond
	mostDisk  = 8 * time.Second
)

// judgeFlags are the settings of verdicts and automatic decisions. What follows
// from another one, such as the network limits from the election timeout, is not
// a setting (R-185-26).
func (s *settings) judgeFlags(fs *pflag.FlagSet) {
	s.rules = decide.Rules{Fitness: fitness.DefaultPolicy(), Decide: decide.DefaultPolicy()}
	f, d := &s.rules.Fitness, &s.rules.Decide
	fs.Var(env.Int{Value: &f.Size, Min: 5, Max: fitness.MaxWindow}, "window", "samples of a full window")
	env.Bind(fs, "window", "FLEET_ROLE_WINDOW")
	fs.Var(env.Duration{Value: &f.ElectionTimeout, Min: 100 * time.Millisecond, Max: time.Minute}, "election-timeout", "etcd's election timeout: a link is bad above a tenth of it, and a standby may come in up to a twentieth")
	env.Bind(fs, "election-timeout", "FLEET_ROLE_ELECTION_TIMEOUT")
	fs.Var(env.Float{Value: &f.FailedConnects, Max: 1}, "failed-connects", "share of a window's connects, 0 to 1, above which a link is bad")
	env.Bind(fs, "failed-connects", "FLEET_ROLE_FAILED_CONNECTS")
	fs.Var(env.Duration{Value: &f.WALFsync, Min: leastDisk, Max: mostDisk}, "wal-fsync-limit", "limit of the p99 of etcd's WAL fsync, and of a standby's fdatasync")
	env.Bind(fs, "wal-fsync-limit", "FLEET_ROLE_WAL_FSYNC_LIMIT")
	fs.Var(env.Duration{Value: &f.BackendCommit, Min: leastDisk, Max: mostDisk}, "backend-commit-limit", "limit of the p99 of etcd's backend commit")
	env.Bind(fs, "backend-commit-limit", "FLEET_ROLE_BACKEND_COMMIT_LIMIT")
	fs.Var(env.Float{Value: &f.Memory.SomeAvg60, Max: 100}, "memory-some", "percent of a minute in which some task waits for memory, from which it is over; 0 for no limit")
	env.Bind(fs, "memory-some", "FLEET_ROLE_MEMORY_SOME_PERCENT")
	fs.Var(env.Float{Value: &f.Memory.FullAvg60, Max: 100}, "memory-full", "the same of every task; 0 for no limit")
	env.Bind(fs, "memory-full", "FLEET_ROLE_MEMORY_FULL_PERCENT")
	s.floorMiB = int(f.Memory.AvailableFloorBytes >> 20)
	fs.Var(env.Int{Value: &s.floorMiB, Max: 16 << 20}, "memory-floor-mib", "available memory below which it is over; 0 for no limit")
	env.Bind(fs, "memory-floor-mib", "FLEET_ROLE_MEMORY_FLOOR_MIB")
	s.wifi = string(f.WiFi)
	fs.StringVar(&s.wifi, "wifi", s.wifi, "what a default route by Wi-Fi means: ignore, avoid (such a standby does not come in) or unfit (such a voter goes, too)")
	env.Bind(fs, "wifi", "FLEET_ROLE_WIFI")
	fs.Var(env.Int{Value: &d.MaxServers, Max: 1000}, "max-servers", "most servers that the cluster may have: the target and one more must fit; 0 for no bound")
	env.Bind(fs, "max-servers", "FLEET_ROLE_MAX_SERVERS")
	fs.Var(env.Int{Value: &d.MaxUnfit, Min: 1, Max: 99}, "max-unfit", "voters that may be unfit at once; with more a common cause is likely and nothing is swapped")
	env.Bind(fs, "max-unfit", "FLEET_ROLE_MAX_UNFIT")
	fs.Var(env.Int{Value: &d.MaxPerDay, Max: 1000}, "max-swaps-per-day", "automatic swaps in 24 hours")
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
	f.Memory.AvailableFloorBytes = uint64(s.floorMiB) << 20
	least := decide.Cooldown(s.policy.LearnerStall, s.policy.Period, f.Size)
	if !env.Given(cmd.Flags(), "cooldown") {
		s.policy.Cooldown = least
	}
	return nil
}

// decisions are the rules that a command decides by: those it was made with,
// and the verdicts of its settings.
func (s *settings) decisions(d Deps) controller.Rules {
	r := d.Rules
	if r.Judge == nil {
		r.Judge, r.Window = s.rules.Judge, s.rules.Fitness.Size
	}
	return r
}
