package alertcmd

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/deliver"
	"github.com/exadev/regrade/internal/obs"
)

// Settings are those of the alert process that are no secret. `regrade manifests` takes
// the same ones for its Deployment.
type Settings struct {
	After, Interval time.Duration
	ConfigMap       bool
	File            string
	State           string
	Command         string
}

// InConfigMap is the word for the state that is kept in the cluster.
const InConfigMap = "configmap"

// Flags adds them, each flag's name with the prefix.
func (s *Settings) Flags(fs *pflag.FlagSet, prefix string) {
	seconds := func(d *time.Duration, value time.Duration, flag, variable, usage string) {
		*d = value
		fs.Var(env.Seconds{Value: d, Min: time.Second}, prefix+flag, usage)
		env.Bind(fs, prefix+flag, variable)
	}
	text := func(v *string, flag, variable, usage string) {
		fs.StringVar(v, prefix+flag, "", usage)
		env.Bind(fs, prefix+flag, variable)
	}
	seconds(&s.After, alert.DefaultAfter, "after", "FLEET_ALERT_AFTER_SECONDS", "how long a condition lasts before people are told")
	seconds(&s.Interval, time.Minute, "interval", "FLEET_ALERT_INTERVAL_SECONDS", "time between two looks")
	fs.Var(env.Bool{Value: &s.ConfigMap}, prefix+"configmap", "read the document from the ConfigMap of the heartbeat")
	fs.Lookup(prefix + "configmap").NoOptDefVal = "true"
	env.Bind(fs, prefix+"configmap", "FLEET_ALERT_CONFIGMAP")
	text(&s.File, "file", "FLEET_ALERT_FILE", "read the document from this file")
	text(&s.State, "state", "FLEET_ALERT_STATE", "file of the state, or the word "+InConfigMap)
	text(&s.Command, "command", "FLEET_ALERT_COMMAND", "program that is given each message, by its absolute path")
}

// Check refuses what cannot work, by name.
func (s *Settings) Check() error {
	switch {
	case s.After < s.Interval:
		return env.Usage("FLEET_ALERT_AFTER_SECONDS: a window of %s is shorter than the %s between two looks", s.After, s.Interval)
	case s.File != "" && s.State != "" && filepath.Clean(s.File) == filepath.Clean(s.State):
		return env.Usage("FLEET_ALERT_STATE: %s is the document (FLEET_ALERT_FILE)", s.State)
	case s.File != "" && !filepath.IsAbs(s.File):
		return env.Usage("FLEET_ALERT_FILE: %q is no absolute path", s.File)
	case s.State != "" && s.State != InConfigMap && !filepath.IsAbs(s.State):
		return env.Usage("FLEET_ALERT_STATE: %q is no absolute path, nor the word %s", s.State, InConfigMap)
	}
	if s.Command == "" {
		return nil
	}
	if !filepath.IsAbs(s.Command) {
		return env.Usage("FLEET_ALERT_COMMAND: %q is no absolute path", s.Command)
	}
	if info, err := os.Stat(s.Command); err != nil || info.IsDir() || info.Mode().Perm()&0o111 == 0 {
		return env.Usage("FLEET_ALERT_COMMAND: %s is no program", s.Command)
	}
	return nil
}

// secrets are those that are: addresses of receivers have their key in them.
type secrets struct {
	url, urlToken         env.Secret
	webhook, webhookToken env.Secret
	ntfy, ntfyToken       env.Secret
	slack                 env.Secret
}

func newSecrets() *secrets {
	v := func(name string) env.Secret { return env.Secret{Variable: name} }
	return &secrets{
		url: v("FLEET_ALERT_URL"), urlToken: v("FLEET_ALERT_URL_TOKEN"),
		webhook: v("FLEET_ALERT_WEBHOOK_URL"), webhookToken: v("FLEET_ALERT_WEBHOOK_TOKEN"),
		ntfy: v("FLEET_ALERT_NTFY_URL"), ntfyToken: v("FLEET_ALERT_NTFY_TOKEN"), slack: v("FLEET_ALERT_SLACK_URL"),
	}
}

func (s *secrets) flags(fs *pflag.FlagSet) {
	s.url.Flag(fs, "url", "the address of the document")
	s.urlToken.Flag(fs, "url-token", "the token that is sent there")
	s.webhook.Flag(fs, "webhook-url", "the address of a webhook that takes JSON")
	s.webhookToken.Flag(fs, "webhook-token", "the token that is sent there")
	s.ntfy.Flag(fs, "ntfy-url", "the address of an ntfy topic")
	s.ntfyToken.Flag(fs, "ntfy-token", "the token that is sent there")
	s.slack.Flag(fs, "slack-url", "the address of an incoming webhook of Slack, or of what takes the same")
}

// read reads all of them, in the order that they are named above.
func (s *secrets) read(getenv func(string) string) (map[*env.Secret]obs.Secret, error) {
	out := map[*env.Secret]obs.Secret{}
	for _, v := range []*env.Secret{&s.url, &s.urlToken, &s.webhook, &s.webhookToken, &s.ntfy, &s.ntfyToken, &s.slack} {
		got, err := v.Read(getenv)
		if err != nil {
			return nil, err
		}
		out[v] = got
	}
	for token, of := range map[*env.Secret]*env.Secret{&s.urlToken: &s.url, &s.webhookToken: &s.webhook, &s.ntfyToken: &s.ntfy} {
		if out[token] != "" && out[of] == "" {
			return nil, env.Usage("%s: it is sent nowhere without %s", token.Variable, of.Variable)
		}
	}
	return out, nil
}

// receivers are those who are told.
func (c *command) receivers(given map[*env.Secret]obs.Secret) (out []watch.Receiver, err error) {
	s := c.secrets
	if given[&s.webhook] != "" {
		u, err := address(&s.webhook, given)
		if err != nil {
			return nil, err
		}
		out = append(out, deliver.Webhook{Web: c.web, URL: u, Token: given[&s.webhookToken]})
	}
	if given[&s.ntfy] != "" {
		u, err := address(&s.ntfy, given)
		if err != nil {
			return nil, err
		}
		out = append(out, deliver.Ntfy{Web: c.web, URL: u, Token: given[&s.ntfyToken]})
	}
	if given[&s.slack] != "" {
		u, err := address(&s.slack, given)
		if err != nil {
			return nil, err
		}
		out = append(out, deliver.Slack{Web: c.web, URL: u})
	}
	if c.settings.Command != "" {
		out = append(out, deliver.Command{Path: c.settings.Command})
	}
	return out, nil
}
