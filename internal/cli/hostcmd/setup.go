package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform/procs"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/platform/systemd"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
)

// manager is systemd as package setup uses it.
type manager struct{ systemd.Manager }

func (m manager) Service(ctx context.Context, name string) (setup.Service, error) {
	s, err := m.Manager.Service(ctx, name)
	if err != nil {
		return setup.Service{}, err
	}
	return setup.Service{
		Unit: setup.Unit{
			Loaded: s.Loaded, Masked: s.Masked, Enabled: s.Enabled == "enabled", Stale: s.Stale, Active: s.Active != "inactive" && s.Active != "failed",
			Commands: s.Commands, Conditions: s.Conditions, Outdated: outdated(s.MainPID),
		},
		Environment: s.Environment, EnvironmentFiles: s.EnvironmentFiles,
	}, nil
}

// outdated says whether a process runs a program that was replaced: the kernel says so of
// its file.
func outdated(pid uint32) bool {
	return pid != 0 && (procs.Process{PID: int(pid)}).Replaced("/proc")
}

// gate is how a command of setup works: dry or wet, with the cluster asked or not.
type gate struct {
	file  string
	check bool
	local bool
	// coming: with check, the program is taken for there; and so are these images, of an
	// archive that comes.
	coming bool
	holds  []string
	// leaving: the host is to be without a daemon after it, so that a swap which nobody carries
	// on at the moment counts as one, too.
	leaving bool
	// credential is tried where the host's own is refused: it was made anew since.
	credential k3s.Secret
}

func (h *host) setup() *cobra.Command {
	var g gate
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make this host one of the fleet, k3s going on as it runs",
		Long: `Reads what the fleet says of this host, a YAML document (see docs/interface.md), and makes
of the k3s that runs here, as its install script or a person set it up, a host that can
change its role: one configuration file for each role with the flags that k3s has now,
the start conditions, the second unit, the role file, the daemon and its settings.
k3s is not restarted. What it does not understand it refuses, with nothing changed; a second
run changes nothing. --check shows what it would do.

Where the document says platform docker it writes the Compose project and its .env, brings
or builds the images, and has Compose make the containers; k3s is started where it has never
been. A change that would make a container anew in which k3s runs is refused.

Refused while a swap holds the Lease; where no API server answers, --local says that
none is under way.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := h.document(g.file)
			if err != nil {
				return err
			}
			d, err := setup.Parse(raw)
			if err != nil {
				return env.Usage("%v", err)
			}
			g.credential = d.Kubeconfig
			if d.OnDocker() {
				return h.setupDocker(cmd.Context(), g, d)
			}
			return h.provision(cmd.Context(), g, func(ctx context.Context, m setup.Host) ([]status.Problem, error) {
				m.DataDir = d.DataDir()
				seen, err := m.Look(ctx)
				if err != nil {
					return nil, err
				}
				seen.Program = seen.Program || g.check && g.coming
				plan, problems := setup.Make(seen, d)
				if len(problems) > 0 {
					return problems, nil
				}
				plan.Show(h.e.Out)
				if g.check {
					return nil, nil
				}
				return m.Carry(ctx, plan)
			})
		},
	}
	cmd.Flags().StringVarP(&g.file, "file", "f", "-", "the document; - is standard input")
	cmd.Flags().BoolVar(&g.coming, "program-comes", false, "with --check: take /usr/local/bin/regrade for installed, as it will be")
	cmd.Flags().StringArrayVar(&g.holds, "archive-holds", nil, "with --check: take this image for one of docker.archive, which is yet to come")
	g.flags(cmd)
	return cmd
}

func (h *host) remove() *cobra.Command {
	g := gate{leaving: true}
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Take regrade off this host, k3s going on as it runs",
		Long: `Takes back what setup did, by what it wrote down: k3s's unit starts again just as it was
found. k3s is not restarted. Refused, with nothing changed: a host in a swap, at a lower level,
or in another role than the one it was found in. --check shows what it would do;
--local does it where no API server answers.

Where k3s runs in containers the daemon's container goes, with its credential and settings;
k3s's own stay as they are, and so do the role files and the entrypoint.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch r, err := project.Recorded(h.root); {
			case err != nil:
				return env.Failed(err)
			case r == nil:
				// Which of the two it was nobody knows, and a host without systemd has none to ask.
				_, problems := setup.MakeRemoval(setup.Seen{}, false, false, false)
				return outcome(problems, nil)
			case r.Platform != "":
				return h.removeDocker(cmd.Context(), g)
			}
			return h.provision(cmd.Context(), g, func(ctx context.Context, m setup.Host) ([]status.Problem, error) {
				seen, err := m.Look(ctx)
				if err != nil {
					return nil, err
				}
				files, err := rolefile.Dir{Root: h.root}.Read()
				if err != nil {
					return nil, err
				}
				lowered, err := setup.Lowered(m)
				if err != nil {
					return nil, err
				}
				removal, problems := setup.MakeRemoval(seen, files.Leaving != "", files.Joining.Swap != "", lowered)
				if len(problems) > 0 {
					return problems, nil
				}
				removal.Show(h.e.Out)
				if g.check {
					return nil, nil
				}
				return m.Remove(ctx, removal)
			})
		},
	}
	g.flags(cmd)
	return cmd
}

func (h *host) lend() *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:   "lend",
		Short: "Print what a standby needs of this server: its flags and the server token",
		Long: `Prints, as JSON, the flags with which k3s runs here as a server and the cluster's server
token, which a standby's server configuration is made of. "regrade apply" asks it. It is all
secret: who has it can join etcd.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := project.Recorded(h.root)
			if err != nil {
				return env.Failed(err)
			}
			if folder == "" && r != nil && r.Platform != "" {
				folder = r.Folder
			}
			if folder != "" {
				lent, problems, err := h.d.Project(h.root).Lend(cmd.Context(), folder)
				if err != nil || len(problems) > 0 {
					return outcome(problems, err)
				}
				return h.give(lent)
			}
			m := setup.Host{Root: h.root, Systemd: h.d.Systemd()}
			if s, err := settings.Load(h.root); err == nil {
				m.DataDir = s.DataDir
			}
			seen, err := m.Look(cmd.Context())
			if err != nil {
				return env.Failed(err)
			}
			lent, problems := setup.Lend(seen)
			if len(problems) > 0 {
				return refusals("refused", problems)
			}
			return h.give(lent)
		},
	}
	cmd.Flags().StringVar(&folder, "project", "", "folder of the Compose project in whose containers k3s runs, on a host that was not set up by this program")
	return cmd
}

func (h *host) give(lent setup.Lent) error {
	raw, err := lent.Encode()
	if err != nil {
		return env.Failed(err)
	}
	_, _ = fmt.Fprintf(h.e.Out, "%s\n", raw)
	return nil
}

func (g *gate) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&g.check, "check", false, "show what would be done, and refusals; change nothing")
	cmd.Flags().BoolVar(&g.local, "local", false, "do not ask the cluster whether a swap is under way")
}

// document reads the given file, or standard input.
func (h *host) document(file string) ([]byte, error) {
	const limit = 2 << 20
	in := h.e.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, env.Usage("the host document: %v", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, limit))
	if err != nil {
		return nil, env.Failed(fmt.Errorf("read the host document: %w", err))
	}
	return raw, nil
}

// provision runs do under the host lock, with no swap under way.
func (h *host) provision(ctx context.Context, g gate, do func(context.Context, setup.Host) ([]status.Problem, error)) error {
	lock := flock.New(filepath.Join("/", h.root, fleet.FileHostLock))
	p := parts{lock: lock, settings: settings.Defaults()}
	if err := p.take(ctx); err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	if !g.local {
		if err := h.noSwap(ctx, g); err != nil {
			return err
		}
	}
	problems, err := do(ctx, setup.Host{Root: h.root, Systemd: h.d.Systemd()})
	return outcome(problems, err)
}

// outcome is how a command ends: failed, refused with every reason, or done.
func outcome(problems []status.Problem, err error) error {
	switch {
	case err != nil:
		return env.Failed(err)
	case len(problems) > 0:
		return refusals("refused, nothing is changed", problems)
	}
	return nil
}

func refusals(heading string, problems []status.Problem) error {
	var lines []string
	for _, p := range problems {
		lines = append(lines, fmt.Sprintf("  - %s (%s)", p.Sentence, p.Code))
	}
	return &env.Exit{Code: fleet.ExitRefused, Err: fmt.Errorf("%s:\n%s", heading, strings.Join(lines, "\n"))}
}

// noSwap refuses while the Lease is held (R-C-07). A host without the daemon's settings was
// never in a swap.
func (h *host) noSwap(ctx context.Context, g gate) error {
	s, err := settings.Load(h.root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return env.Usage("%v", err)
	}
	s.Kubeconfig = filepath.Join("/", h.root, s.Kubeconfig)
	return h.noSwapBy(ctx, g, s)
}

// noSwapBy asks with settings whose kubeconfig is where this process has it.
func (h *host) noSwapBy(ctx context.Context, g gate, s settings.Host) error {
	v, err := h.ask(ctx, s)
	if err != nil && g.credential != "" {
		if other, again := h.askBy(ctx, s, g.credential); again == nil {
			v, err = other, nil
		}
	}
	return undisturbed(v, g.leaving, err)
}

// ask reads the cluster. A host that has no credential yet was never in a swap, and gets the
// zero View.
func (h *host) ask(ctx context.Context, s settings.Host) (hostapi.View, error) {
	if _, err := os.Stat(s.Kubeconfig); errors.Is(err, os.ErrNotExist) {
		return hostapi.View{}, nil
	}
	api, err := h.d.API(s)
	if err != nil {
		return hostapi.View{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return api.Read(ctx)
}

// askBy asks by another credential, which is a file for that long, root's alone and in memory.
func (h *host) askBy(ctx context.Context, s settings.Host, credential k3s.Secret) (hostapi.View, error) {
	dir := filepath.Join("/", h.root, "/run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return hostapi.View{}, fmt.Errorf("new credential: %w", err)
	}
	f, err := os.CreateTemp(dir, "regrade-credential-")
	if err != nil {
		return hostapi.View{}, fmt.Errorf("new credential: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(credential.Reveal())
	if err := errors.Join(err, f.Close()); err != nil {
		return hostapi.View{}, fmt.Errorf("new credential: %w", err)
	}
	s.Kubeconfig = f.Name()
	return h.ask(ctx, s)
}

// undisturbed refuses by what the Lease says: held by whomever, for a swap or for a step of a
// level; and for a host that leaves also a swap whose controller has not renewed it.
func undisturbed(v hostapi.View, leaving bool, err error) error {
	if err != nil {
		return env.Failed(fmt.Errorf("no API server says whether a swap is under way (--local says that none is): %w", err))
	}
	state, id := v.Lease.At(v.Date), v.Lease.SwapID()
	switch {
	case id != "" && (state == lease.Held || leaving && state == lease.Expired):
		return refused(setup.CodeHeld, fmt.Sprintf("swap %s is under way; nothing is changed meanwhile", id))
	case state == lease.Held:
		return refused(setup.CodeHeld, fmt.Sprintf("the Lease is held by %s; nothing is changed meanwhile", v.Lease.Holder))
	}
	return nil
}
