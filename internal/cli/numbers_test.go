package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/alertcmd"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/heartbeatcmd"
	"github.com/exadev/regrade/internal/cli/probecmd"
	"github.com/exadev/regrade/internal/cli/recoverycmd"
)

// Issue 4, bad input: a setting that is a number refuses what makes no sense, and the
// sentence says which setting it is and what it wants.
func TestNumbersThatMakeNoSenseAreRefused(t *testing.T) {
	e := env.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	numbers := 0
	for _, cmd := range []*cobra.Command{newController(e, Deps{}), newManifests(e), probecmd.New(e, probecmd.Deps{}), recoverycmd.New(e, recoverycmd.Deps{}), heartbeatcmd.New(e, heartbeatcmd.Deps{}), alertcmd.New(e, alertcmd.Deps{})} {
		for _, fs := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			fs.VisitAll(func(f *pflag.Flag) {
				name := env.Variable(f)
				switch f.Value.Type() {
				case "string", "bool":
					return
				}
				if name == "" {
					t.Errorf("--%s is a number and has no variable", f.Name)
				}
				numbers++
				before := f.Value.String()
				for _, text := range []string{"-1", "-1s", "NaN", "Inf", "1e400", "99999999999999999999", "-99999999999999999999", "9999999999h", "2562048h", "many", " "} {
					if err := f.Value.Set(text); err == nil || !strings.HasPrefix(err.Error(), "want ") {
						t.Errorf("%s=%q: %v", name, text, err)
					}
				}
				if f.Value.String() != before {
					t.Errorf("%s became %s", name, f.Value)
				}
				if err := f.Value.Set(before); err != nil {
					t.Errorf("its own default: %s=%s: %v", name, before, err)
				}
				none := f.Value.Set("0") == nil || f.Value.Set("0s") == nil
				if may := zeroIsNone[name]; may != none {
					t.Errorf("%s=0: taken %t, want %t", name, none, may)
				}
			})
		}
	}
	if numbers < 30 {
		t.Errorf("only %d settings were looked at", numbers)
	}
}

// zeroIsNone are the settings of which zero means none, or not at all.
var zeroIsNone = map[string]bool{
	"FLEET_ROLE_RUNNER_WAIT_SECONDS": true, "FLEET_ROLE_DWELL_SECONDS": true, "FLEET_ROLE_MAX_SERVERS": true, "FLEET_ROLE_MAX_SWAPS_PER_DAY": true,
	"FLEET_ROLE_FAILED_CONNECTS": true, "FLEET_ROLE_MEMORY_SOME_PERCENT": true, "FLEET_ROLE_MEMORY_FULL_PERCENT": true, "FLEET_ROLE_MEMORY_FLOOR_MIB": true,
	"FLEET_ROLE_PROBE_METRICS_PORT": true, "HEARTBEAT_UNSCHEDULABLE_AFTER_SECONDS": true, "NODE_RECOVERY_PRUNE_HOURS": true,
}

func TestASettingThatMakesNoSenseIsNamed(t *testing.T) {
	for variable, want := range map[string]string{
		"FLEET_ROLE_COOLDOWN_SECONDS=0":          `FLEET_ROLE_COOLDOWN_SECONDS="0": want 1s to 720h0m0s`,
		"FLEET_ROLE_ABANDON_BACKOFF_SECONDS=0":   `FLEET_ROLE_ABANDON_BACKOFF_SECONDS="0": want 1s to 720h0m0s`,
		"FLEET_ROLE_COOLDOWN_SECONDS=-5":         `FLEET_ROLE_COOLDOWN_SECONDS="-5": want no less than zero`,
		"FLEET_ROLE_COOLDOWN_SECONDS=5000000000": `FLEET_ROLE_COOLDOWN_SECONDS="5000000000": want at most 720h0m0s`,
		"FLEET_ROLE_WINDOW=4":                    `FLEET_ROLE_WINDOW="4": want a whole number of 5 to 1000`,
		"FLEET_ROLE_FAILED_CONNECTS=1.5":         `FLEET_ROLE_FAILED_CONNECTS="1.5": want a number of 0 to 1`,
		"FLEET_ROLE_WAL_FSYNC_LIMIT=1h":          `FLEET_ROLE_WAL_FSYNC_LIMIT="1h": want a duration like 8s, of 100µs to 8s`,
		"FLEET_ROLE_MAX_SWAPS_PER_DAY=-1":        `FLEET_ROLE_MAX_SWAPS_PER_DAY="-1": want a whole number of 0 to 1000`,
	} {
		name, value, _ := strings.Cut(variable, "=")
		e := env.Env{Out: io.Discard, Err: io.Discard, Getenv: func(k string) string {
			if k == name {
				return value
			}
			return ""
		}}
		cmd := newController(e, Deps{})
		cmd.SetArgs(nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if code, message := env.Status(cmd.ExecuteContext(t.Context())); code != 2 || message != want {
			t.Errorf("%s: exit status %d, %s", variable, code, message)
		}
	}
}
