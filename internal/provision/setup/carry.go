package setup

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
	"github.com/exadev/regrade/internal/status"
)

// Carry carries a plan out, safe to be done again after any interruption: the record
// first, then files in their order. What the units are then is read back; where they are not
// as meant, all of it is taken back, so that k3s would start as before.
func (h Host) Carry(ctx context.Context, p Plan) ([]status.Problem, error) {
	if p.Empty() {
		return nil, nil
	}
	record := p.Record
	record.Pending = true
	if err := h.note(record); err != nil {
		return nil, err
	}
	for _, f := range p.Files {
		if err := h.write(f.Path, f.Content, f.Mode); err != nil {
			return nil, err
		}
	}
	if p.Reload {
		if err := h.Systemd.Reload(ctx); err != nil {
			return nil, fmt.Errorf("set up the host: %w", err)
		}
	}
	problems, err := h.otherwise(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return problems, h.back(ctx, p)
	}
	for _, name := range p.Enable {
		if err := h.Systemd.Enable(ctx, name); err != nil {
			return nil, fmt.Errorf("set up the host: %w", err)
		}
	}
	if len(p.Enable) > 0 {
		// systemd says of a unit what it knew before, until it reads the files again.
		if err := h.Systemd.Reload(ctx); err != nil {
			return nil, fmt.Errorf("set up the host: %w", err)
		}
	}
	if p.Restart {
		if err := h.Systemd.Restart(ctx, daemonUnit); err != nil {
			return nil, fmt.Errorf("set up the host: %w", err)
		}
	}
	record.Pending = false
	return nil, h.note(record)
}

func (h Host) note(r Record) error {
	raw, err := r.Encode()
	if err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	// The command that was found may have a token in it.
	return h.write(fleet.FileInstalled, raw, secretMode)
}

func (h Host) write(path string, content []byte, mode fs.FileMode) error {
	if err := atomicfile.Write(h.at(path), content, mode); err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	return nil
}

// CodeOverridden: a drop-in of somebody else has the last word on a unit.
const CodeOverridden = "UnitOverridden"

// otherwise says which unit would not start as meant.
func (h Host) otherwise(ctx context.Context, p Plan) ([]status.Problem, error) {
	var out []status.Problem
	for _, role := range roles {
		want, ok := p.Wants[role]
		if !ok {
			continue
		}
		u, err := h.unit(ctx, units[role])
		if err != nil {
			return nil, fmt.Errorf("set up the host: %w", err)
		}
		asks := slices.ContainsFunc(u.Conditions, func(c string) bool { return strings.HasSuffix(c, "host role-is "+string(role)) })
		if !same(u, want) || !asks {
			out = append(out, problem(CodeOverridden, "another drop-in or systemd itself keeps %s from starting as %q behind its condition", units[role], strings.Join(want, " "))...)
		}
	}
	return out, nil
}

// back takes the changes of a plan back, units first.
func (h Host) back(ctx context.Context, p Plan) error {
	for _, f := range slices.Backward(p.Files) {
		if f.Old != nil {
			if err := h.write(f.Path, f.Old, f.Mode); err != nil {
				return err
			}
			continue
		}
		if err := atomicfile.Remove(h.at(f.Path)); err != nil {
			return fmt.Errorf("set up the host: take back: %w", err)
		}
	}
	if err := h.Systemd.Reload(ctx); err != nil {
		return fmt.Errorf("set up the host: take back: %w", err)
	}
	if p.First {
		if err := atomicfile.Remove(h.at(fleet.FileInstalled)); err != nil {
			return fmt.Errorf("set up the host: take back: %w", err)
		}
		return nil
	}
	return h.note(p.Before)
}

// Removal is what takes a setup off again.
type Removal struct {
	// Delete are files, in this order: nothing may start by a half of it.
	Delete []string
	// Disable are units that were not enabled before.
	Disable []string
	// Aside are configuration files that somebody has changed since: they are the owner's
	// and are kept beside, with keptAs behind their names.
	Aside []string
	// Want is the command that k3s's unit shall have again.
	Unit string
	Want []string
}

// keptAs is put behind the name of a file that a removal keeps.
const keptAs = ".before-removal"

// more are files that regrade writes on a host as it goes.
var more = []string{
	fleet.FileJoinDropIn, fleet.FileAgentJoin, fleet.FileUnitJoin, fleet.FileAgentUnit, fleet.FileLevelDropIn,
	fleet.FileLeaving, fleet.FileJoinURL, fleet.FileAgentURL, fleet.FileClusterID, fleet.FileMemberID, fleet.FileVoters, fleet.FilePassword,
	fleet.FileJoinBegun, fleet.FileJoining, fleet.FileAllowJoin, fleet.FileHostLock,
}

// Reason codes of a removal, and of both where a swap holds the Lease.
const (
	CodeHeld     = "LeaseHeld"
	CodeNotSetUp = "NotSetUp"
	CodeSwapped  = "RoleChanged"
	CodeUnderway = "SwapUnderWay"
	CodeLevel    = "LevelLowered"
	CodeByHand   = "SetUpByHand"
)

// MakeRemoval decides how a setup is taken back.
func MakeRemoval(s Seen, leaving, joining, lowered bool) (Removal, []status.Problem) {
	switch {
	case s.Record == nil:
		return Removal{}, problem(CodeNotSetUp, "%s is missing: this host was not set up by regrade, or by hand", fleet.FileInstalled)
	case leaving || joining:
		return Removal{}, problem(CodeUnderway, "this host is in the middle of a swap")
	case lowered:
		return Removal{}, problem(CodeLevel, "this server runs at a lower level; bring it up first: regrade level full")
	case s.Role != "" && s.Role != s.Record.Role:
		return Removal{}, problem(CodeSwapped, "this host was set up as %s and is a %s now; swap it back first, for k3s as it was found would start in the other role", s.Record.Role, s.Role)
	}
	for _, role := range roles {
		// A role file that is lost says nothing, and the units would be the other role's again.
		if s.Units[role].Active && role != s.Record.Role {
			return Removal{}, problem(CodeSwapped, "this host was set up as %s, and k3s runs as %s: put its role right first, for k3s as it was found would start in the other role", s.Record.Role, role)
		}
		// It stays, and would ask for a role file that goes.
		if s.adopted(role) && !slices.Contains(s.Record.Created, unitDir+units[role]+dropIn) {
			return Removal{}, problem(CodeByHand, "%s was there before regrade host setup: this host was set up by hand, and is taken off by hand", unitDir+units[role]+dropIn)
		}
	}
	r := Removal{Unit: s.Record.Unit, Want: s.Record.Command}
	for _, role := range roles {
		if !slices.Contains(s.Record.Enabled, units[role]) {
			r.Disable = append(r.Disable, units[role])
		}
	}
	r.Disable = append(r.Disable, daemonUnit)
	// The other role's unit goes before the condition that keeps it from starting does.
	for _, path := range slices.Backward(s.Record.Created) {
		if strings.HasPrefix(path, unitDir) && !strings.HasSuffix(path, dropIn) {
			r.Delete = append(r.Delete, path)
		}
	}
	for _, path := range slices.Backward(s.Record.Created) {
		if slices.Contains(r.Delete, path) || path == fleet.FileRole {
			continue
		}
		r.Delete = append(r.Delete, path)
		if now, there := s.Files[path]; there && slices.Contains([]string{fleet.FileServerConf, fleet.FileAgentConf}, path) && sum(now) != s.Record.Sums[path] {
			r.Aside = append(r.Aside, path)
		}
	}
	r.Delete = append(r.Delete, more...)
	if slices.Contains(s.Record.Created, fleet.FileRole) {
		r.Delete = append(r.Delete, fleet.FileRole)
	}
	r.Delete = append(r.Delete, fleet.FileInstalled)
	return r, nil
}

// Remove carries it out, safe to be done again.
func (h Host) Remove(ctx context.Context, r Removal) ([]status.Problem, error) {
	if err := h.Systemd.Stop(ctx, daemonUnit); err != nil {
		return nil, fmt.Errorf("take regrade off the host: %w", err)
	}
	for _, name := range r.Disable {
		if err := h.Systemd.Disable(ctx, name); err != nil {
			return nil, fmt.Errorf("take regrade off the host: %w", err)
		}
	}
	record := r.Delete[len(r.Delete)-1]
	for _, path := range r.Delete[:len(r.Delete)-1] {
		if slices.Contains(r.Aside, path) {
			if err := os.Rename(h.at(path), h.at(path+keptAs)); err != nil {
				return nil, fmt.Errorf("take regrade off the host: %w", err)
			}
		}
		if err := atomicfile.Remove(h.at(path)); err != nil {
			return nil, fmt.Errorf("take regrade off the host: %w", err)
		}
	}
	if err := h.Systemd.Reload(ctx); err != nil {
		return nil, fmt.Errorf("take regrade off the host: %w", err)
	}
	u, err := h.unit(ctx, r.Unit)
	if err != nil {
		return nil, fmt.Errorf("take regrade off the host: %w", err)
	}
	if !same(u, r.Want) {
		return problem(CodeOverridden, "%s does not start as it did before regrade: it starts %q; its unit file has been changed since", r.Unit, hidden(u.Commands)), nil
	}
	if err := atomicfile.Remove(h.at(record)); err != nil {
		return nil, fmt.Errorf("take regrade off the host: %w", err)
	}
	return nil, nil
}

// hidden are start commands without what follows a flag.
func hidden(commands [][]string) string {
	var out []string
	for _, argv := range commands {
		out = append(out, argv[:min(2, len(argv))]...)
	}
	return strings.Join(out, " ")
}
