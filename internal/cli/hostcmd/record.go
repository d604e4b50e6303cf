package hostcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// inventory is what whoever set this host up says it is.
type inventory struct {
	role     string
	eligible bool
}

func (i *inventory) flags(fs *pflag.FlagSet) {
	fs.StringVar(&i.role, "inventory-role", "", "server or agent: what this host was set up as; written into the role file when there is none")
	env.Bind(fs, "inventory-role", "FLEET_ROLE_INVENTORY_ROLE")
	fs.BoolVar(&i.eligible, "eligible", false, "this host may vote; only then has it a role file")
	env.Bind(fs, "eligible", "FLEET_ROLE_ELIGIBLE")
}

func (h *host) recordRole() *cobra.Command {
	var i inventory
	cmd := &cobra.Command{
		Use:   "record-role",
		Short: "Write the role file from the inventory, when there is none",
		Long: `The daemon does the same when it starts. A role file that is there is kept: a swap
may have changed it. Refused, with nothing changed: an inventory that the running
k3s contradicts, a host in a swap or of a former member whose role file is lost,
a Lease that is held for a swap.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.Read(cmd, h.e.Getenv); err != nil {
				return err
			}
			p, err := h.parts()
			if err != nil {
				return err
			}
			if err := p.take(cmd.Context()); err != nil {
				return err
			}
			defer func() { _ = p.lock.Unlock() }()
			p.begin(cmd.Context())
			r, err := h.record(cmd.Context(), p, i)
			switch {
			case err != nil:
				return err
			case r.Refused != "":
				return &env.Exit{Code: fleet.ExitRefused, Err: fmt.Errorf("refused: %s", r.Refused)}
			case r.Write != "":
				_, _ = fmt.Fprintf(h.e.Out, "role: %s, written\n", r.Write)
			default:
				_, _ = fmt.Fprintf(h.e.Out, "role: nothing written: %s\n", r.Kept)
			}
			return nil
		},
	}
	i.flags(cmd.Flags())
	return cmd
}

// record writes the role file when there is none (R-C-03). The Lease is asked for
// and not insisted on: a host without a role file that was never in a swap may
// be the first of its cluster, and there is no API yet.
func (h *host) record(ctx context.Context, p *parts, i inventory) (rolefile.Record, error) {
	var role fleet.Role
	if i.role != "" {
		var err error
		if role, err = fleet.ParseRole(i.role); err != nil {
			return rolefile.Record{}, env.Usage("inventory: %v", err)
		}
	}
	f, err := p.daemon.Host.Observe(ctx)
	if err != nil {
		return rolefile.Record{}, env.Failed(fmt.Errorf("record the role: %w", err))
	}
	var held fleet.SwapID
	if f.Files.Role == "" && role != "" {
		if v, err := p.api.Read(ctx); err == nil && v.Lease.At(v.Date) == lease.Held && v.Lease.Holder == fleet.LeaseHolder {
			held = v.Lease.SwapID()
		}
	}
	r := rolefile.Recording(f.Files, role, i.eligible, running(f), held)
	if r.Write != "" {
		if err := p.daemon.Host.SetRole(ctx, r.Write); err != nil {
			return rolefile.Record{}, env.Failed(fmt.Errorf("record the role: %w", err))
		}
	}
	return r, nil
}

// running is the role whose k3s runs, empty for none.
func running(f platform.Facts) fleet.Role {
	switch {
	case f.Server.Process:
		return fleet.RoleServer
	case f.Agent.Process:
		return fleet.RoleAgent
	}
	return ""
}

// recordAtStart is the daemon's. A refusal is said and ends nothing: a daemon that
// stayed away would guard and finish nothing either (R-228-19).
func (h *host) recordAtStart(ctx context.Context, p *parts, i inventory) {
	if i.role == "" {
		return
	}
	if err := p.take(ctx); err != nil {
		p.log.Error("the role is not recorded", obs.Err, err)
		return
	}
	defer func() { _ = p.lock.Unlock() }()
	switch r, err := h.record(ctx, p, i); {
	case err != nil:
		p.log.Error("the role is not recorded", obs.Err, err)
	case r.Refused != "":
		p.log.Error("the role is not recorded", obs.Sentence, r.Refused)
	case r.Write != "":
		p.log.Info("role recorded", obs.Role, r.Write)
	}
}
