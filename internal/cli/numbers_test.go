package cli

import (
	"io"
	"strings"
	"testing"
	"time"

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
		"FLEET_ROLE_FINISH_SECONDS=60":           `FLEET_ROLE_FINISH_SECONDS="60": want 1m30s to 720h0m0s`,
		"FLEET_ROLE_COOLDOWN_SECONDS=-5":         `FLEET_ROLE_COOLDOWN_SECONDS="-5": want no less than zero`,
		"FLEET_ROLE_COOLDOWN_SECONDS=5000000000": `FLEET_ROLE_COOLDOWN_SECONDS="5000000000": want at most 720h0m0s`,
		"FLEET_ROLE_WINDOW=4":                    `FLEET_ROLE_WINDOW="4": want a whole number of 5 to 500`,
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

// Safety rule 21: the Lease is renewed once a period, so its times follow from that.
func TestTheTimesOfTheLeaseGoWithThePeriod(t *testing.T) {
	for name, c := range map[string]struct {
		set      map[string]string
		takeOver time.Duration
		want     string
	}{
		"what is set by default":       {nil, 30 * time.Second, ""},
		"a long period":                {map[string]string{"PERIOD": "60"}, 2 * time.Minute, ""},
		"a short period":               {map[string]string{"PERIOD": "1"}, 30 * time.Second, ""},
		"as short as a period":         {map[string]string{"PERIOD": "60", "TAKE_OVER": "60"}, time.Minute, ""},
		"a take-over within a period":  {map[string]string{"PERIOD": "60", "TAKE_OVER": "59"}, 0, "FLEET_ROLE_TAKE_OVER_SECONDS: a controller that lives renews its Lease every 1m0s and would be taken for gone after 59s, want a period or more"},
		"a Lease of two periods":       {map[string]string{"PERIOD": "60", "LEASE": "120"}, 2 * time.Minute, ""},
		"a Lease that runs out before": {map[string]string{"PERIOD": "60", "LEASE": "119"}, 0, "FLEET_ROLE_LEASE_SECONDS: a Lease of 1m59s is renewed every 1m0s, want two periods or more"},
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			cmd := &cobra.Command{}
			s.flags(cmd.Flags())
			err := s.read(cmd, env.Env{Out: io.Discard, Err: io.Discard, Getenv: func(k string) string {
				return c.set[strings.TrimSuffix(strings.TrimPrefix(k, "FLEET_ROLE_"), "_SECONDS")]
			}})
			switch code, message := env.Status(err); {
			case c.want != "" && (code != 2 || message != c.want):
				t.Errorf("exit status %d, %s", code, message)
			case c.want == "" && (err != nil || s.policy.TakeOver != c.takeOver):
				t.Errorf("a controller is taken for gone after %s: %v", s.policy.TakeOver, err)
			}
		})
	}
}

// The cooldown follows from other settings where nobody has set it, be it by flag or by
// variable: the shipped Deployment has variables only.
func TestACooldownThatIsSetStands(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  string
		want time.Duration
	}{
		"nobody":     {nil, "", 30 * time.Minute},
		"a variable": {nil, "7200", 2 * time.Hour},
		"a flag":     {[]string{"--cooldown=3600"}, "7200", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			cmd := &cobra.Command{}
			s.flags(cmd.Flags())
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			err := s.read(cmd, env.Env{Out: io.Discard, Err: io.Discard, Getenv: func(k string) string {
				if k == "FLEET_ROLE_COOLDOWN_SECONDS" {
					return c.env
				}
				return ""
			}})
			if err != nil || s.policy.Cooldown != c.want {
				t.Errorf("%s: %v", s.policy.Cooldown, err)
			}
		})
	}
}
