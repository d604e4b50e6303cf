// Package alertcmd is `regrade alert`: the loop of the Deployment fleet-alert, or of
// any machine, which tells people what is wrong with a fleet; and its check, for cron
// and monitoring.
package alertcmd

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/bounded"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/reach"
	"github.com/exadev/regrade/internal/deliver"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lean"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/web"
)

// Cluster is what the alert process has of the API, where it has any.
type Cluster interface {
	Source() watch.Source
	Store() watch.Store
	Requests() int64
}

// Deps are what the command is made with; tests put fakes here.
type Deps struct {
	Connect func(kube.Access, kube.HealthOptions) (Cluster, error)
	Version string
}

type api struct{ *kube.HealthAPI }

func (a api) Source() watch.Source { return kube.HealthSource{API: a.HealthAPI} }
func (a api) Store() watch.Store   { return kube.AlertState{API: a.HealthAPI} }

// Production reaches a real cluster, where one is asked for.
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
	e   env.Env
	d   Deps
	web *deliver.Web

	cluster  reach.Cluster
	shown    reach.Shown
	settings Settings
	secrets  *secrets

	check  bool
	output string
}

// New makes `regrade alert`.
func New(e env.Env, d Deps) *cobra.Command {
	c := &command{e: e, d: d, secrets: newSecrets()}
	cmd := &cobra.Command{
		Use:   "alert",
		Short: "Tell people what is wrong with the fleet: the loop of the fleet-alert Deployment",
		Long: `Alert looks at fleet-health.json, in the cluster, in a file or at an address, and
tells its receivers what has been wrong for longer than the window: one alert for
a condition, and one recovery. A document that does not come, or cannot be read,
is such a condition. What a receiver did not take is told when it is back.

With --check it looks once, prints what it would tell, and ends: exit status 0
when nothing is wrong, 1 when something is. It sends nothing and writes nothing.

Addresses and tokens come from variables or files, never from arguments.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	fs := cmd.Flags()
	c.cluster.Flags(fs)
	c.shown.Flags(fs, ":9464")
	c.settings.Flags(fs, "")
	c.secrets.flags(fs)
	fs.BoolVar(&c.check, "check", false, "look once and print what would be told")
	fs.StringVarP(&c.output, "output", "o", "text", "of --check: text or json")
	return cmd
}

func (c *command) run(cmd *cobra.Command) error {
	if err := env.Read(cmd, c.e.Getenv); err != nil {
		return err
	}
	if err := c.settings.Check(); err != nil {
		return err
	}
	given, err := c.secrets.read(c.e.Getenv)
	if err != nil {
		return err
	}
	c.web = deliver.NewWeb(c.d.Version)
	receivers, err := c.receivers(given)
	if err != nil {
		return err
	}
	switch {
	case c.output != "text" && c.output != "json":
		return env.Usage("output %q: want text or json", c.output)
	case c.output != "text" && !c.check:
		return env.Usage("output %s: it is of --check", c.output)
	case !c.check && len(receivers) == 0:
		return env.Usage("nobody to tell: want FLEET_ALERT_WEBHOOK_URL, FLEET_ALERT_NTFY_URL, FLEET_ALERT_SLACK_URL or FLEET_ALERT_COMMAND")
	case !c.check && c.settings.State == "":
		return env.Usage("FLEET_ALERT_STATE: without a state each restart would tell everything again")
	}
	log, err := c.shown.Logger(c.e.Err)
	if err != nil {
		return err
	}
	cluster, err := c.connect()
	if err != nil {
		return err
	}
	source, err := c.source(given, cluster)
	if err != nil {
		return err
	}
	store := c.store(cluster)
	if c.check {
		return c.checkOnce(cmd.Context(), source, store)
	}
	l, err := c.shown.Listen()
	if err != nil {
		return err
	}
	if l != nil {
		defer func() { _ = l.Close() }()
	}
	w := watch.New(watch.Settings{Source: source, Store: store, Receivers: receivers, After: c.settings.After, Interval: c.settings.Interval, ID: own(), Log: log})
	log.Info("alert started", "version", c.d.Version, "after", c.settings.After.String(), "receivers", len(receivers))
	go lean.Stay(cmd.Context(), c.settings.Interval, log)
	var requests func() int64
	if cluster != nil {
		requests = cluster.Requests
	}
	// A look waits for the document, the state, and for each receiver for a while.
	shown := web.NewAlert(c.d.Version, 3*c.settings.Interval+5*time.Minute, requests, time.Now)
	return reach.Watched(cmd.Context(), l, shown.Pages(), func(ctx context.Context) {
		w.Run(ctx, func(t watch.Turn) {
			var sent []web.Delivery
			for _, d := range t.Deliveries {
				sent = append(sent, web.Delivery{Receiver: d.Receiver, Err: d.Err})
			}
			shown.Looked(t.Took, t.State, t.Problem, t.StoreErr, sent)
		})
	})
}

// own is this process's name for another one on the same state: that of the pod, and what
// tells it from the one before.
func own() string {
	host, err := os.Hostname()
	if err != nil {
		host = "alert"
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// connect reaches the cluster where document or state are in it, and nowhere else.
func (c *command) connect() (Cluster, error) {
	if !c.settings.ConfigMap && c.settings.State != InConfigMap {
		return nil, nil
	}
	access, err := c.cluster.Access("regrade-alert/" + c.d.Version)
	if err != nil {
		return nil, err
	}
	cluster, err := c.d.Connect(access, kube.HealthOptions{Namespace: c.cluster.Namespace})
	if err != nil {
		return nil, env.Failed(err)
	}
	return cluster, nil
}

func (c *command) source(given map[*env.Secret]obs.Secret, cluster Cluster) (watch.Source, error) {
	var all []watch.Source
	if c.settings.ConfigMap {
		all = append(all, cluster.Source())
	}
	if c.settings.File != "" {
		all = append(all, deliver.File{Path: c.settings.File, Now: c.e.Now})
	}
	if given[&c.secrets.url] != "" {
		u, err := address(&c.secrets.url, given)
		if err != nil {
			return nil, err
		}
		all = append(all, deliver.Page{Web: c.web, URL: u, Token: given[&c.secrets.urlToken]})
	}
	if len(all) != 1 {
		return nil, env.Usage("where the document is: want one of FLEET_ALERT_CONFIGMAP=true, FLEET_ALERT_FILE and FLEET_ALERT_URL")
	}
	return all[0], nil
}

// store is where the state is, nil for nowhere.
func (c *command) store(cluster Cluster) watch.Store {
	switch c.settings.State {
	case "":
		return nil
	case InConfigMap:
		return cluster.Store()
	}
	return &deliver.StateFile{Path: c.settings.State, Glance: c.check}
}

func address(of *env.Secret, given map[*env.Secret]obs.Secret) (*url.URL, error) {
	u, err := deliver.CheckURL(given[of])
	if err != nil {
		return nil, env.Usage("%s: %v", of.Variable, err)
	}
	return u, nil
}

// state is what is kept, for a check: without one it knows only what the document says.
func state(ctx context.Context, store watch.Store) (alert.State, error) {
	if store == nil {
		return alert.State{}, nil
	}
	raw, _, err := watch.Load(ctx, &bounded.Calls{}, store)
	if err != nil || raw == nil {
		return alert.State{}, err
	}
	return alert.ParseState(raw)
}
