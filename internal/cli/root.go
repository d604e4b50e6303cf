package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/swap"
)

// Cluster is what commands need of the API.
type Cluster interface {
	controller.Cluster
	controller.Waker
	Survey
}

// Deps are what commands are made with; tests put an in-memory cluster here.
type Deps struct {
	Connect func(kube.Access, kube.Options) (Cluster, error)
	Rules   controller.Rules
	// Look is how often a command that waits looks again.
	Look time.Duration
	// Install reaches a cluster to install in it, Dial a host as root. Program gives regrade for
	// an architecture, from a folder where one is named.
	Install func(kube.Access, kube.Options) (apply.Cluster, error)
	Dial    func(context.Context, remote.Target, remote.Options) (remote.Runner, error)
	Program func(dir string) func(arch string) (apply.Program, error)
	// More are commands of other packages.
	More []*cobra.Command
}

// Production reaches a real cluster and decides by package swap.
func Production() Deps {
	return Deps{
		Connect: func(a kube.Access, o kube.Options) (Cluster, error) {
			conn, err := kube.Connect(a)
			if err != nil {
				return nil, err
			}
			return kube.NewClient(conn, o), nil
		},
		Install: func(a kube.Access, o kube.Options) (apply.Cluster, error) {
			conn, err := kube.Connect(a)
			if err != nil {
				return nil, err
			}
			return struct {
				*kube.Client
				*kube.Installer
			}{kube.NewClient(conn, o), kube.NewInstaller(conn)}, nil
		},
		Dial: remote.Dial, Program: programs,
		Rules: controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove},
		Look:  time.Second,
	}
}

// New makes the root command.
func New(e env.Env, d Deps) *cobra.Command {
	root := &cobra.Command{
		Use:   "regrade",
		Short: "Keep a k3s cluster's etcd votes on its fittest hosts",
		Long: `Regrade keeps a k3s cluster's etcd votes on its fittest hosts: it swaps one
voter for one standby at a time, safely enough to be left alone.

Every flag that names a variable in its help can be set by it. Exit statuses:
0 done or accepted, 1 failed or refused by a gate, 2 wrong usage or a host that
can never be swapped, 3 not yet.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return env.Usage("there is no command %q; regrade help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.AddCommand(
		newController(e, d), newSwap(e, d), newStatus(e, d), newPlan(e, d), newExplain(e, d), newDoctor(e, d), newSupportBundle(e, d), newPause(e, d), newResume(e, d),
		newManifests(e), newApply(e, d), newRemove(e, d), newVersion(e),
	)
	root.AddCommand(d.More...)
	return root
}

// Run runs one command line and returns the exit status.
func Run(ctx context.Context, args []string, e env.Env, d Deps) int {
	root := New(e, d)
	root.SetArgs(args)
	code, message := env.Status(root.ExecuteContext(ctx))
	if message != "" {
		_, _ = fmt.Fprintln(e.Err, "regrade:", message)
	}
	return code
}

// exactly is cobra.ExactArgs with the names in the message.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return env.Usage("want %s, got %d arguments", strings.Join(names, " and "), len(args))
		}
		return nil
	}
}

// failed gives errors that have no exit status of their own status 1.
func failed(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*env.Exit](err); ok {
		return err
	}
	return env.Failed(err)
}
