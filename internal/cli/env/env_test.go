package env_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/obs"
)

func TestSecondsTakesSecondsAndDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "300": 5 * time.Minute, "5m": 5 * time.Minute, " 15 ": 15 * time.Second, "1h30m": 90 * time.Minute,
	} {
		if got, err := env.ParseSeconds(text); err != nil || got != want {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "-5s", "1.5s", "100ms", "99999999999", "1000h", "5 m", "0x10", "NaN"} {
		if got, err := env.ParseSeconds(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, got)
		}
	}
}

func FuzzParseSeconds(f *testing.F) {
	for _, s := range []string{"300", "5m", "-1", "1.5s", "9223372036854775807ns", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := env.ParseSeconds(s)
		if err != nil {
			return
		}
		if d < 0 || d > 30*24*time.Hour || d%time.Second != 0 {
			t.Errorf("%q gives %s", s, d)
		}
		if again, err := env.ParseSeconds(d.String()); err != nil || again != d {
			t.Errorf("%q gives %s, which gives %s, %v", s, d, again, err)
		}
	})
}

// A flag on the command line wins over its variable; an empty variable is unset.
func TestVariablesSetFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		value   string
		want    time.Duration
		wantErr string
	}{
		"neither":         {nil, "", time.Minute, ""},
		"the variable":    {nil, "30", 30 * time.Second, ""},
		"both":            {[]string{"--wait=45"}, "30", 45 * time.Second, ""},
		"a bad variable":  {nil, "soon", 0, `WAIT_SECONDS="soon": want seconds like 300, or a duration like 5m`},
		"below the least": {nil, "3", 0, `WAIT_SECONDS="3": want 10s to 720h0m0s`},
		"a flag hides it": {[]string{"--wait=45"}, "soon", 45 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := time.Minute
			cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
			cmd.Flags().Var(env.Seconds{Value: &d, Min: 10 * time.Second}, "wait", "how long")
			env.Bind(cmd.Flags(), "wait", "WAIT_SECONDS")
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return env.Read(cmd, func(k string) string {
					if k == "WAIT_SECONDS" {
						return test.value
					}
					return ""
				})
			}
			cmd.SetArgs(test.args)
			err := cmd.Execute()
			if test.wantErr != "" {
				code, message := env.Status(err)
				if code != 2 || message != test.wantErr {
					t.Errorf("got status %d, %q", code, message)
				}
				return
			}
			if err != nil || d != test.want {
				t.Errorf("got %s, %v", d, err)
			}
		})
	}
}

func TestADryRunIsOnlyLeftByTheWordFalse(t *testing.T) {
	b := true
	for _, s := range []string{"", "no", "0", "False", "f"} {
		if err := (env.Bool{Value: &b}).Set(s); err == nil || !b {
			t.Errorf("%q was taken for false", s)
		}
	}
	if err := (env.Bool{Value: &b}).Set("false"); err != nil || b {
		t.Errorf("false: %v, %v", b, err)
	}
}

func TestExitStatuses(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		code    int
		message string
	}{
		"done":               {nil, 0, ""},
		"failed":             {env.Failed(errors.New("x")), 1, "x"},
		"wrong usage":        {env.Usage("no %s", "x"), 2, "no x"},
		"said already":       {&env.Exit{Code: 3}, 3, ""},
		"wrapped":            {fmt.Errorf("in y: %w", &env.Exit{Code: 3, Err: errors.New("x")}), 3, "x"},
		"one of cobra's own": {errors.New("unknown flag: --x"), 2, "unknown flag: --x"},
	} {
		if code, message := env.Status(test.err); code != test.code || message != test.message {
			t.Errorf("%s: got %d, %q", name, code, message)
		}
	}
}

// Safety rule 31: a secret comes from its variable or from a file, and neither an
// error nor a flag shows it.
func TestASecretComesFromItsVariableOrAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := os.Mkdir(filepath.Join(dir, "hunter-dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		variable, file string
		want, wantErr  string
	}{
		"neither":                 {"", "", "", ""},
		"the variable":            {"hunter2", "", "hunter2", ""},
		"a file with a new line":  {"", write("a", "hunter2\n"), "hunter2", ""},
		"both":                    {"hunter2", write("a", "hunter2"), "", "X_TOKEN and X_TOKEN_FILE: want one of them"},
		"an empty file":           {"", write("empty", " \n"), "", "is empty"},
		"no file":                 {"", dir + "/none", "", "X_TOKEN_FILE: open the file that it names: no such file or directory"},
		"the secret in its place": {"", "hunter2hunter2", "", "X_TOKEN_FILE: open the file that it names: no such file or directory"},
		"a folder":                {"", filepath.Join(dir, "hunter-dir"), "", "X_TOKEN_FILE: read the file that it names: is a directory"},
		"two lines":               {"", write("two", "hunter2\nhunter3"), "", "X_TOKEN has a control character"},
		"a large file":            {"", write("large", strings.Repeat("hunter2", 2000)), "", "X_TOKEN: more than 8192 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := env.Secret{Variable: "X_TOKEN"}
			cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
			s.Flag(cmd.Flags(), "token", "the token")
			getenv := func(k string) string {
				return map[string]string{"X_TOKEN": test.variable, "X_TOKEN_FILE": test.file}[k]
			}
			var got obs.Secret
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				if err := env.Read(cmd, getenv); err != nil {
					return err
				}
				var err error
				got, err = s.Read(getenv)
				return err
			}
			cmd.SetArgs(nil)
			err := cmd.Execute()
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || strings.Contains(err.Error(), "hunter") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || got.Reveal() != test.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestARootThatIsNoAbsolutePathIsRefused(t *testing.T) {
	for arg, want := range map[string]string{"/host": "/host", "/": "/", "host": "", "./host": "", "": ""} {
		fs, got := pflag.NewFlagSet("", pflag.ContinueOnError), ""
		env.Root(fs, &got)
		err := fs.Parse([]string{"--root", arg})
		if want == "" && (err == nil || got != "/") || want != "" && (err != nil || got != want) {
			t.Errorf("%q: %q, %v", arg, got, err)
		}
	}
}
