package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/remote"
)

// installing are the settings of the commands that go to every host.
type installing struct {
	access   access
	ssh      sshSettings
	file     string
	check    bool
	limit    []string
	wait     time.Duration
	programs string
	archive  string
}

func (i *installing) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&i.file, "file", "f", "fleet.yaml", "the fleet's file; - is standard input")
	fs.BoolVar(&i.check, "check", false, "show every difference and every refusal; change nothing")
	fs.StringSliceVar(&i.limit, "limit", nil, "go to these hosts alone, and leave the cluster's objects")
	fs.StringVar(&i.access.kubeconfig, "kubeconfig", "", "kubeconfig file of a person who may install things; default: what kubectl takes")
	fs.StringVar(&i.access.context, "context", "", "context in the kubeconfig")
	i.ssh.flags(fs)
}

func newApply(e env.Env, d Deps) *cobra.Command {
	i := installing{wait: 2 * time.Minute}
	var printed bool
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make the cluster and its hosts what fleet.yaml says",
		Long: `Goes to every server and eligible host of fleet.yaml over SSH, as root or by sudo, and makes it one of
the fleet: regrade itself, one k3s configuration for each role, units, settings, the credential of
the host daemon; installs regrade's objects in the cluster; and waits until every daemon speaks.
k3s runs on as it does. A role that a swap has changed stays as it is.

--check runs the same with every write left out, and prints each difference, secrets left out, and each
refusal. A second run changes nothing. One that was broken off is completed by the next. A host that
cannot be reached or refuses is named, and the others are done: the exit status is 1 then, and 2
where nothing was done at all. "regrade init" writes a first fleet.yaml.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := readFleet(e, i.file)
			if err != nil {
				return err
			}
			if printed {
				return failed(inventory.Print(e.Out, p.fleet, fleetSettings()...))
			}
			if problems := inventory.Check(p.fleet, p.settings.policy.Target); len(problems) > 0 {
				return refused(&apply.Refusal{Problems: problems})
			}
			return i.turn(cmd.Context(), e, d, p, "as "+i.file+" says", (*apply.Turn).Apply)
		},
	}
	i.flags(cmd)
	cmd.Flags().BoolVar(&printed, "print-config", false, "print the file with every default, and do nothing")
	cmd.Flags().StringVar(&i.programs, "programs", "", "folder with regrade-linux-ARCH for hosts of another architecture than this program's")
	cmd.Flags().StringVar(&i.archive, "image-archive", "", "file of docker save, brought to Docker hosts that lack an image of it")
	cmd.Flags().Var(env.Seconds{Value: &i.wait, Min: time.Second, Max: time.Hour}, "wait", "how long the daemons may take to speak")
	return cmd
}

func newRemove(e env.Env, d Deps) *cobra.Command {
	var i installing
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Take regrade off the cluster and its hosts, k3s going on as it runs",
		Long: `Takes back what apply did: each host's k3s starts again just as it was found, and regrade's objects
leave the cluster. k3s is not restarted. Every host is asked first; where one refuses, such as a host that
a swap has given another role, nothing is changed anywhere. --check shows what would be done; --limit
does some hosts alone. Where the API is down, "regrade host remove --local" does it on a host.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := readFleet(e, i.file)
			if err != nil {
				return err
			}
			return i.turn(cmd.Context(), e, d, p, "without regrade", (*apply.Turn).Remove)
		},
	}
	i.flags(cmd)
	return cmd
}

// turn is one run, and what is said at its end.
func (i *installing) turn(ctx context.Context, e env.Env, d Deps, p plan, state string, do func(*apply.Turn, context.Context) (apply.Outcome, error)) error {
	if err := apply.Known(p.fleet, i.limit); err != nil {
		return refused(err)
	}
	archive, err := i.images()
	if err != nil {
		return err
	}
	i.access.namespace, i.access.actuators = p.settings.namespace, p.settings.actuators
	// The server that the kubeconfig names may be an agent by now.
	var more []string
	for _, h := range p.fleet.Hosts {
		if h.Takes() {
			more = append(more, h.JoinURL)
		}
	}
	cluster, err := d.Install(
		kube.Access{Kubeconfig: i.access.kubeconfig, Context: i.access.context, More: more, UserAgent: "regrade/" + version()},
		kube.Options{Namespace: i.access.namespace, ActuatorConfigMap: i.access.actuators},
	)
	if err != nil {
		return env.Failed(err)
	}
	options := i.ssh.options()
	t := apply.New(apply.Settings{
		Fleet: p.fleet, Check: i.check, Limit: i.limit, Program: d.Program(i.programs),
		Image: p.image, ImageAsked: p.imageAsked, Archive: archive,
		Objects: p.objects, Namespace: p.settings.namespace, Keys: p.settings.policy.Keys, Levels: p.levels,
		Period: p.settings.policy.Period, Wait: i.wait, Out: e.Out, Now: e.Now,
	}, cluster, func(ctx context.Context, h inventory.Host) (remote.Runner, error) {
		target, err := remote.ParseTarget(h.SSH)
		if err != nil {
			return nil, err
		}
		return d.Dial(ctx, target, options)
	})
	began := e.Now()
	out, err := do(t, ctx)
	if err != nil {
		return refused(err)
	}
	took := e.Now().Sub(began).Seconds()
	switch {
	case out.Changed == 0 && len(out.Problems) == 0:
		_, _ = fmt.Fprintf(e.Out, "nothing to do: cluster and hosts are %s (%.1f s)\n", state, took)
	case i.check:
		_, _ = fmt.Fprintf(e.Out, "%d to be changed, nothing is (%.1f s)\n", out.Changed, took)
	default:
		_, _ = fmt.Fprintf(e.Out, "%d changed (%.1f s)\n", out.Changed, took)
	}
	if len(out.Problems) == 0 {
		return nil
	}
	text := "not done:"
	for _, name := range slices.Sorted(maps.Keys(out.Problems)) {
		text += fmt.Sprintf("\n  - %s: %s (%s)", name, out.Problems[name].Sentence, out.Problems[name].Code)
	}
	return env.Failed(errors.New(text))
}

// images looks into the archive, before anything is asked of anybody.
func (i *installing) images() (apply.Archive, error) {
	if i.archive == "" {
		return apply.Archive{}, nil
	}
	a, err := project.ReadArchive(i.archive)
	if err != nil {
		return apply.Archive{}, env.Usage("%v", err)
	}
	return apply.Archive{Path: i.archive, Archive: a}, nil
}

// refused is exit status 2 for a turn that changed nothing.
func refused(err error) error {
	if r, ok := errors.AsType[*apply.Refusal](err); ok {
		return &env.Exit{Code: fleet.ExitRefused, Err: r}
	}
	return failed(err)
}
