// Package entrycmd is `regrade entrypoint server|agent`, the program that a k3s
// container starts, and `regrade entrypoint health`, its health check.
//
// Exit statuses: 0 the container was stopped while it idled or waited; 1 refused
// or failed, and the restart policy tries again; 2 wrong usage. Once k3s is
// executed the status is k3s's.
package entrycmd

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/entrypoint"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/obs"
)

type command struct {
	e env.Env
	o entrypoint.Options

	inventory, prefix, datastore, format, level string
}

// New makes `regrade entrypoint`.
func New(e env.Env) *cobra.Command {
	c := &command{e: e}
	cmd := &cobra.Command{
		Use:   "entrypoint server|agent",
		Short: "Start k3s in a container, if this host's files let that role run",
		Long: `Entrypoint is the program that a k3s container starts. It becomes k3s, or idles
for ever where the role is the other one's or this host was removed from etcd,
or refuses where a former member has no server to join. The files in
/etc/github-runner and the data volume decide, the same rule as under systemd;
without a role file it starts k3s as it always did.

A server joins where /etc/github-runner/join-url says, else $K3S_JOIN_SERVER_URL,
an agent where agent-join-url says, else $K3S_AGENT_SERVER_URL. Its other
settings are k3s's own, in /etc/rancher/k3s/server.yaml and agent.yaml.

Exit statuses: 0 stopped while it idled or waited, 1 refused or failed, 2 wrong
usage; once k3s runs, k3s's.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return env.Usage("want server or agent")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.start(cmd, args[0]) },
	}
	env.Root(cmd.PersistentFlags(), &c.o.Root)
	fs := cmd.Flags()
	for _, f := range []struct {
		value                           *string
		name, variable, standard, usage string
	}{
		{&c.o.K3s, "k3s", "FLEET_ROLE_K3S", "/bin/k3s", "program that is executed as k3s"},
		{&c.inventory, "inventory-role", "FLEET_ROLE_INVENTORY_ROLE", "", "server or agent: the role of a host that has no role file yet"},
		{&c.o.Eligible, "eligible", "FLEET_ROLE_ELIGIBLE", "", "true or false: the Node's label voter-eligible"},
		{&c.o.Pinned, "pinned", "FLEET_ROLE_PINNED", "", "true or false: the Node's label voter-pinned"},
		{&c.prefix, "label-prefix", "FLEET_ROLE_LABEL_PREFIX", fleet.DefaultPrefix, "prefix of regrade's labels"},
		{&c.datastore, "datastore", "K3S_DATASTORE", "etcd", "etcd, or sqlite for a single server that founds no etcd"},
		{&c.format, "log-format", "FLEET_ROLE_LOG_FORMAT", "text", "text or json"},
		{&c.level, "log-level", "FLEET_ROLE_LOG_LEVEL", "info", "debug, info, warn, error"},
	} {
		fs.StringVar(f.value, f.name, f.standard, f.usage)
		env.Bind(fs, f.name, f.variable)
	}
	cmd.AddCommand(c.health(), c.network())
	return cmd
}

func (c *command) start(cmd *cobra.Command, arg string) error {
	if err := env.Read(cmd, c.e.Getenv); err != nil {
		return err
	}
	role, err := fleet.ParseRole(arg)
	if err != nil {
		return env.Usage("%v", err)
	}
	if c.inventory != "" {
		if c.o.Inventory, err = fleet.ParseRole(c.inventory); err != nil {
			return env.Usage("inventory: %v", err)
		}
	}
	for name, v := range map[string]string{"--eligible": c.o.Eligible, "--pinned": c.o.Pinned} {
		if v != "" && v != "true" && v != "false" {
			return env.Usage("%s %q: want true or false", name, v)
		}
	}
	switch c.datastore {
	case "etcd":
	case "sqlite":
		c.o.SQLite = true
	default:
		return env.Usage("--datastore %q: want etcd or sqlite", c.datastore)
	}
	if c.o.Keys, err = fleet.NewKeys(c.prefix); err != nil {
		return env.Usage("%v", err)
	}
	log, err := obs.NewLogger(c.e.Err, c.format, c.level)
	if err != nil {
		return env.Usage("%v", err)
	}
	c.o.Environ = os.Environ()
	if err := entrypoint.Start(cmd.Context(), c.o, role, log); err != nil {
		return env.Failed(err)
	}
	return nil
}

func (c *command) health() *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Say whether the container became k3s, or what it idles for",
		Long: `Health is the k3s containers' health check. Exit status 0: k3s was started. 1:
the container idles, waits or refused, and why. It says nothing of k3s's own
health.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			healthy, sentence, err := entrypoint.Health(c.o.Root)
			if err != nil {
				return env.Failed(err)
			}
			_, _ = fmt.Fprintln(c.e.Out, sentence)
			if !healthy {
				return &env.Exit{Code: fleet.ExitFailed}
			}
			return nil
		},
	}
}

// network is asked by the host daemon of a container that shares another one's network.
func (c *command) network() *cobra.Command {
	return &cobra.Command{
		Use:    "network",
		Short:  "Say which network namespace this process is in",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := os.Readlink("/proc/self/ns/net")
			if err != nil {
				return env.Failed(err)
			}
			_, _ = fmt.Fprintln(c.e.Out, name)
			return nil
		},
	}
}
