package heartbeatcmd

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/deliver"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/obs"
)

// Settings are those of the heartbeat that are no secret. `regrade manifests` takes the
// same ones for its Deployment.
type Settings struct {
	prefix string // of the flags' names

	Interval, Window, Unschedulable time.Duration
	Checks, ScaleSets               string
	ControllerNamespace             string
	HealthyUntil                    string
	ConfigMap                       bool
	Dir                             string
	GistID, GitHub                  string
}

// none is the value that leaves out a file.
const none = "none"

// Flags adds them, each flag's name with the prefix.
func (s *Settings) Flags(fs *pflag.FlagSet, prefix string) {
	s.prefix = prefix
	seconds := func(d *time.Duration, value, least time.Duration, flag, variable, usage string) {
		*d = value
		fs.Var(env.Seconds{Value: d, Min: least}, prefix+flag, usage)
		env.Bind(fs, prefix+flag, variable)
	}
	text := func(v *string, value, flag, variable, usage string) {
		fs.StringVar(v, prefix+flag, value, usage)
		env.Bind(fs, prefix+flag, variable)
	}
	seconds(&s.Interval, 180*time.Second, time.Second, "interval", "HEARTBEAT_INTERVAL_SECONDS", "time between two ticks")
	seconds(&s.Window, 600*time.Second, time.Second, "window", "HEARTBEAT_WINDOW_SECONDS", "for how long a tick vouches for a healthy fleet")
	seconds(&s.Unschedulable, 0, 0, "unschedulable-after", "HEARTBEAT_UNSCHEDULABLE_AFTER_SECONDS", "how long a runner pod may be unschedulable; 0 for the interval")
	text(&s.Checks, strings.Join(heartbeat.DefaultChecks(), ","), "checks", "HEARTBEAT_CHECKS", "what makes a fleet healthy, comma-separated: "+strings.Join(heartbeat.Checks(), ", "))
	text(&s.ScaleSets, "", "scale-sets", "HEARTBEAT_EXPECTED_SCALE_SETS", "runner scale sets that have to be there, namespace/release, with spaces between")
	text(&s.ControllerNamespace, "actions-runner-controller", "controller-namespace", "HEARTBEAT_CONTROLLER_NAMESPACE", "namespace of the runner controller and its listeners")
	text(&s.HealthyUntil, fleet.FileHealthyUntil, "healthy-until", "HEARTBEAT_HEALTHY_UNTIL", "name of the file that says until when a healthy fleet is vouched for, "+none+" for not at all")
	fs.Var(env.Bool{Value: &s.ConfigMap}, prefix+"configmap", "publish into the ConfigMap "+fleet.ConfigMapHealth)
	fs.Lookup(prefix + "configmap").NoOptDefVal = "true"
	env.Bind(fs, prefix+"configmap", "HEARTBEAT_CONFIGMAP")
	text(&s.Dir, "", "dir", "HEARTBEAT_DIR", "publish into this folder")
	text(&s.GistID, "", "gist-id", "HEARTBEAT_GIST_ID", "publish into this gist of GitHub")
	text(&s.GitHub, deliver.GitHub, "gh-api-url", "HEARTBEAT_GH_API_URL", "GitHub's API")
}

// secrets are those that are.
type secrets struct{ ghToken, putURL, putToken env.Secret }

func newSecrets() *secrets {
	return &secrets{
		ghToken: env.Secret{Variable: "HEARTBEAT_GH_TOKEN"}, putURL: env.Secret{Variable: "HEARTBEAT_PUT_URL"}, putToken: env.Secret{Variable: "HEARTBEAT_PUT_TOKEN"},
	}
}

func (s *secrets) flags(fs *pflag.FlagSet) {
	s.ghToken.Flag(fs, "gh-token", "GitHub's token, which may write gists")
	s.putURL.Flag(fs, "put-url", "the address below which files are put by HTTP")
	s.putToken.Flag(fs, "put-token", "the token that is sent there")
}

// Check refuses what cannot work, by name.
func (s *Settings) Check() error {
	checks, err := heartbeat.ParseChecks(s.Checks)
	if err != nil {
		return env.Usage("HEARTBEAT_CHECKS: %v", err)
	}
	sets, err := heartbeat.ParseScaleSets(s.ScaleSets)
	if err != nil {
		return env.Usage("HEARTBEAT_EXPECTED_SCALE_SETS: %v", err)
	}
	asks := func(name string) bool { return strings.Contains(","+strings.Join(checks, ",")+",", ","+name+",") }
	switch {
	case asks(heartbeat.CheckScaleSets) && len(sets) == 0:
		return env.Usage("HEARTBEAT_EXPECTED_SCALE_SETS: the check %s needs some", heartbeat.CheckScaleSets)
	case len(sets) > 0 && !asks(heartbeat.CheckScaleSets):
		return env.Usage("HEARTBEAT_EXPECTED_SCALE_SETS: they are not looked at without the check %s", heartbeat.CheckScaleSets)
	case fleet.CheckNamespace(s.ControllerNamespace) != nil:
		return env.Usage("HEARTBEAT_CONTROLLER_NAMESPACE: %v", fleet.CheckNamespace(s.ControllerNamespace))
	case s.Window <= s.Interval:
		return env.Usage("HEARTBEAT_WINDOW_SECONDS: a window of %s is over before the next tick after %s", s.Window, s.Interval)
	case s.HealthyUntil != none && !plainName(s.HealthyUntil):
		return env.Usage("HEARTBEAT_HEALTHY_UNTIL: %q is no file name of letters, digits, dots, dashes and underscores, or one of another file", s.HealthyUntil)
	case s.Dir != "" && !filepath.IsAbs(s.Dir):
		return env.Usage("HEARTBEAT_DIR: %q is no absolute path", s.Dir)
	}
	if s.GistID != "" {
		if err := deliver.CheckGist(s.GistID); err != nil {
			return env.Usage("HEARTBEAT_GIST_ID: %v", err)
		}
	}
	if _, err := deliver.CheckURL(obs.Secret(s.GitHub)); err != nil {
		return env.Usage("HEARTBEAT_GH_API_URL: %v", err)
	}
	return nil
}

// plainName says whether a name may be a file's beside ours, in a folder, a ConfigMap
// and a gist.
func plainName(s string) bool {
	if s == "" || len(s) > 128 || strings.HasPrefix(s, ".") || s == fleet.KeyHealth || s == fleet.KeyRoleStatus {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(".-_", c) {
			return false
		}
	}
	return true
}

// wanted is what is asked about runners.
func (s *Settings) wanted() heartbeat.Wanted {
	checks, _ := heartbeat.ParseChecks(s.Checks) // checked
	w := heartbeat.Wanted{Namespace: s.ControllerNamespace}
	for _, c := range checks {
		switch c {
		case heartbeat.CheckRunners:
			w.Controller = true
		case heartbeat.CheckScaleSets:
			w.ScaleSets, _ = heartbeat.ParseScaleSets(s.ScaleSets)
		case heartbeat.CheckRunnerPods:
			w.Pods = true
		}
	}
	return w
}

// Wants says what the heartbeat has to be allowed to read.
func (s *Settings) Wants() heartbeat.Wanted { return s.wanted() }

func address(name string, s obs.Secret) (*url.URL, error) {
	u, err := deliver.CheckURL(s)
	if err != nil {
		return nil, env.Usage("%s: %v", name, err)
	}
	return u, nil
}

func selector(s string) error {
	if _, err := kube.Selector(s); err != nil {
		return env.Usage("FLEET_ROLE_RUNNER_SELECTOR: %v", err)
	}
	return nil
}
