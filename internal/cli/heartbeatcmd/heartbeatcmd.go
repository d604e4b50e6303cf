// Package heartbeatcmd is `regrade heartbeat`: the loop of the Deployment
// fleet-heartbeat, which says how the fleet is.
package heartbeatcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/reach"
	"github.com/exadev/regrade/internal/deliver"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/heartbeat/beat"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/web"
)

// Cluster is what the heartbeat has of the API.
type Cluster interface {
	beat.Cluster
	// Publisher is the ConfigMap.
	Publisher() beat.Publisher
	Requests() int64
}

// Deps are what the command is made with; tests put fakes here.
type Deps struct {
	Connect func(kube.Access, kube.HealthOptions) (Cluster, error)
	Version string
}

type api struct{ *kube.HealthAPI }

func (a api) Publisher() beat.Publisher { return kube.HealthMap{API: a.HealthAPI} }

// Production reaches a real cluster.
func Production(version string) Deps {
	return Deps{
		Connect: func(a kube.Access, o kube.HealthOptions) (Cluster, error) {
			conn, err := kube.Connect(a)
			if err != nil {
				return nil, err
			}
			h, err := kube.NewHealthAPI(conn, o)
			return api{h}, err
		},
		Version: version,
	}
}

// command is one command line.
type command struct {
	e env.Env
	d Deps

	cluster  reach.Cluster
	shown    reach.Shown
	settings Settings
	secrets  *secrets

	prefix, selector string
	target           int
	once             bool
}

// New makes `regrade heartbeat`.
func New(e env.Env, d Deps) *cobra.Command {
	c := &command{e: e, d: d, secrets: newSecrets()}
	cmd := &cobra.Command{
		Use:   "heartbeat",
		Short: "Say how the fleet is: the loop of the fleet-heartbeat Deployment",
		Long: `Heartbeat reads the Nodes and the controller's status on each tick and publishes
fleet-health.json, healthy or not: into a ConfigMap, a folder, a gist of GitHub,
or by HTTP PUT. While the fleet is healthy the controller's status goes out with
it, and a file that says until when it is vouched for; while it is not, those
grow old.

With --once it ends after one tick: exit status 0 when the fleet is healthy and
all was published, 1 when not.

Tokens, and addresses that may hold one, come from variables or files, never from
arguments.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	fs := cmd.Flags()
	c.cluster.Flags(fs)
	c.shown.Flags(fs, ":9464")
	c.settings.Flags(fs, "")
	c.secrets.flags(fs)
	fs.StringVar(&c.prefix, "label-prefix", fleet.DefaultPrefix, "prefix of regrade's labels, annotations and taint")
	env.Bind(fs, "label-prefix", "FLEET_ROLE_LABEL_PREFIX")
	fs.StringVar(&c.selector, "runner-selector", fleet.DefaultRunnerSelector, "label selector of runner pods")
	env.Bind(fs, "runner-selector", "FLEET_ROLE_RUNNER_SELECTOR")
	c.target = 3
	fs.Var(env.Int{Value: &c.target, Min: 1, Max: 99}, "target", "number of voters wanted, where no controller says it")
	env.Bind(fs, "target", "FLEET_ROLE_TARGET")
	fs.BoolVar(&c.once, "once", false, "end after one tick")
	return cmd
}

func (c *command) run(cmd *cobra.Command) error {
	if err := env.Read(cmd, c.e.Getenv); err != nil {
		return err
	}
	if err := c.settings.Check(); err != nil {
		return err
	}
	keys, err := fleet.NewKeys(c.prefix)
	if err != nil {
		return env.Usage("%v", err)
	}
	if c.target%2 == 0 {
		return env.Usage("FLEET_ROLE_TARGET: %d voters, want an odd number", c.target)
	}
	if err := selector(c.selector); err != nil {
		return err
	}
	publishers, err := c.publishers()
	if err != nil {
		return err
	}
	log, err := c.shown.Logger(c.e.Err)
	if err != nil {
		return err
	}
	access, err := c.cluster.Access("regrade-heartbeat/" + c.d.Version)
	if err != nil {
		return err
	}
	access.Plain = true // it reads all Nodes at each tick
	l, err := c.shown.Listen()
	if err != nil {
		return err
	}
	if l != nil {
		defer func() { _ = l.Close() }()
	}
	cluster, err := c.d.Connect(access, kube.HealthOptions{Namespace: c.cluster.Namespace, Keys: keys, RunnerSelector: c.selector})
	if err != nil {
		return env.Failed(err)
	}
	if c.settings.ConfigMap {
		publishers = append(publishers, cluster.Publisher())
	}
	b := beat.New(cluster, c.beat(keys, publishers))
	log.Info("heartbeat started", "version", c.d.Version, "interval", c.settings.Interval.String(), "checks", c.settings.Checks)
	if c.once {
		t := b.Tick(cmd.Context())
		if err := t.Err(); err != nil {
			return env.Failed(err)
		}
		if !t.Document.Healthy {
			return &env.Exit{Code: fleet.ExitFailed}
		}
		return nil
	}
	go lean.Stay(cmd.Context(), c.settings.Interval, log)
	shown := web.NewHeartbeat(c.d.Version, 2*c.settings.Interval+2*time.Minute, cluster.Requests, time.Now)
	return reach.Watched(cmd.Context(), l, shown.Pages(), func(ctx context.Context) {
		b.Run(ctx, func(t beat.Turn) {
			published := map[string]error{}
			for _, r := range t.Published {
				published[r.Publisher] = r.Err
			}
			shown.Ticked(t.Took, &t.Document, published)
		})
	})
}

func (c *command) beat(keys fleet.Keys, publishers []beat.Publisher) beat.Settings {
	s := &c.settings
	checks, _ := heartbeat.ParseChecks(s.Checks) // checked
	unschedulable := s.Unschedulable
	if unschedulable == 0 {
		unschedulable = s.Interval
	}
	until := s.HealthyUntil
	if until == none {
		until = ""
	}
	log, _ := c.shown.Logger(c.e.Err) // checked
	var next time.Duration
	if !c.once { // whoever calls it once knows when again
		next = s.Interval
	}
	return beat.Settings{
		Build:    heartbeat.Settings{Keys: keys, Checks: checks, Target: c.target, Unschedulable: unschedulable, StatusLife: heartbeat.DefaultStatusLife, Interval: next},
		Runners:  s.wanted(),
		Interval: s.Interval, Window: s.Window, HealthyUntil: until, Publishers: publishers, Log: log,
	}
}

// publishers are those outside of the cluster. A heartbeat that publishes nowhere is
// refused, and so is a secret without its other half.
func (c *command) publishers() (out []beat.Publisher, err error) {
	ghToken, err := c.secrets.ghToken.Read(c.e.Getenv)
	if err != nil {
		return nil, err
	}
	putURL, err := c.secrets.putURL.Read(c.e.Getenv)
	if err != nil {
		return nil, err
	}
	putToken, err := c.secrets.putToken.Read(c.e.Getenv)
	if err != nil {
		return nil, err
	}
	if putToken != "" && putURL == "" {
		return nil, env.Usage("HEARTBEAT_PUT_TOKEN: it is sent nowhere without HEARTBEAT_PUT_URL")
	}
	w := deliver.NewWeb(c.d.Version)
	if c.settings.Dir != "" {
		out = append(out, deliver.Folder{Path: c.settings.Dir})
	}
	if putURL != "" {
		u, err := address("HEARTBEAT_PUT_URL", putURL)
		if err != nil {
			return nil, err
		}
		out = append(out, deliver.Put{Web: w, Base: u, Token: putToken, Tags: &deliver.Tags{}})
	}
	switch {
	case c.settings.GistID != "" && ghToken == "":
		return nil, env.Usage("HEARTBEAT_GH_TOKEN: the gist needs one")
	case c.settings.GistID != "":
		u, err := address("HEARTBEAT_GH_API_URL", obs.Secret(c.settings.GitHub))
		if err != nil {
			return nil, err
		}
		out = append(out, deliver.Gist{Web: w, API: u, ID: c.settings.GistID, Token: ghToken})
	}
	if len(out) == 0 && !c.settings.ConfigMap {
		return nil, env.Usage("nowhere to publish: want HEARTBEAT_CONFIGMAP=true, HEARTBEAT_DIR, HEARTBEAT_GIST_ID or HEARTBEAT_PUT_URL")
	}
	return out, nil
}
