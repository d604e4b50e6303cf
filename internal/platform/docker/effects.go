package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Start implements platform.Units. Nothing is started that its entrypoint would not
// let through: a container that idles is no use, and to prepare its identity would be
// wrong.
func (h *Host) Start(ctx context.Context, role fleet.Role) error {
	p, err := h.pair(ctx)
	if err != nil {
		return fmt.Errorf("start the %s: %w", role, err)
	}
	if p.of(role).ID == "" {
		return fmt.Errorf("start the %s: %s", role, p.absent[role])
	}
	files, err := h.files(p.server).Role()
	if err != nil {
		return fmt.Errorf("start the %s: %w", role, err)
	}
	if !rolefile.MayStart(files, role).May {
		return nil
	}
	return h.queue(ctx, role, platform.JobStart, startWait, func(job context.Context) error {
		if err := h.start(job, role, func() error { return overdue(ctx, time.Now()) }); err != nil {
			return fmt.Errorf("start the %s: %w", role, err)
		}
		return nil
	})
}

// start readies both containers and starts one. In this order: no k3s of the other
// role, both containers stopped, no k3s in a third one, the identity where the role looks for it, noted
// whose it is, started. Killed anywhere it is done again from the beginning.
func (h *Host) start(ctx context.Context, role fleet.Role, late func() error) error {
	p, err := h.pair(ctx)
	if err != nil {
		return err
	}
	r := h.record()
	for _, one := range []fleet.Role{other(role), role} {
		c := p.of(one)
		process, c, err := h.k3sIn(ctx, c, one)
		switch {
		case err != nil:
			return err
		case process && one == role && !h.severed(ctx, c):
			return nil // it runs
		case process && one == role: // and nobody hears of it
		case process:
			return fmt.Errorf("k3s %s runs in container %s: never both (safety rule 10)", one, c.Name)
		case one == role && c.Runs() && r.Start.covers(role, c, h.boot()) && !h.confirmedSince(c):
			return nil // it is on its way
		case c.ID == "" || c.AtRest():
			continue
		}
		// It idles, or is about to be restarted by the engine, or its network is gone. No
		// vote hangs on it.
		if err := late(); err != nil {
			return err
		}
		if err := h.engine.Stop(ctx, c.ID); err != nil {
			return err
		}
	}
	if err := h.stranger(); err != nil {
		return err
	}
	moved, err := h.carry(ctx, role, r)
	if err != nil {
		return err
	}
	// Before the start: once it runs, the identity in its volumes is the newer one,
	// and must never be written over with the other's.
	err = h.note(func(r *record) {
		r.Owner, r.Start = role, start{Role: role, Container: p.of(role).ID, At: time.Now().UTC(), Boot: h.boot()}
		r.Restarting = start{}
	})
	if err != nil && (moved || r.Owner != role) {
		// Otherwise no vote hangs on a note: a full disk must not keep a member down.
		return fmt.Errorf("note whose identity it is: %w", err)
	}
	if err := late(); err != nil {
		return err
	}
	if err := h.engine.Start(ctx, p.of(role).ID); err != nil {
		return err
	}
	_ = h.note(h.booted) // at worst it is started once more when it is stopped by hand
	return nil
}

// Stop implements platform.Units, with the container's own time to end: etcd hands
// leadership over meanwhile (k3s-facts §12).
func (h *Host) Stop(ctx context.Context, role fleet.Role) error {
	p, err := h.pair(ctx)
	if err != nil {
		return fmt.Errorf("stop the %s: %w", role, err)
	}
	process, c, err := h.k3sIn(ctx, p.of(role), role)
	if err != nil {
		return fmt.Errorf("stop the %s: %w", role, err)
	}
	if h.record().Restarting.Role == role {
		// What is stopped on purpose does not come back for a restart that was asked before.
		// Unwritten, the files decide whether it may.
		_ = h.note(func(r *record) { r.Restarting = start{} })
	}
	if queued := h.running()[role]; c.ID == "" || c.AtRest() && (queued == platform.JobNone || queued == platform.JobStop) {
		return nil
	}
	if process {
		// Whose identity is the newer one cannot be seen any more once it is gone.
		// Without the note the two are compared.
		_ = h.note(func(r *record) {
			r.Owner = role
			h.booted(r)
		})
	}
	h.mark(ctx, other(role))
	if err := overdue(ctx, time.Now()); err != nil {
		return fmt.Errorf("stop the %s: %w", role, err)
	}
	return h.queue(ctx, role, platform.JobStop, stopWait, func(job context.Context) error {
		if err := h.engine.Stop(job, c.ID); err != nil {
			return fmt.Errorf("stop the %s: %w", role, err)
		}
		return nil
	})
}

// Restart implements platform.Units. The engine does both halves, so that a daemon
// that dies between them leaves no server down. Some engines take the daemon's death
// for a cancel; then the next daemon starts what the restart has stopped (boot.go).
func (h *Host) Restart(ctx context.Context) error {
	p, err := h.pair(ctx)
	if err != nil {
		return fmt.Errorf("restart the server: %w", err)
	}
	if p.server.ID == "" {
		return fmt.Errorf("restart the server: %s", p.absent[fleet.RoleServer])
	}
	// On a full disk the restart goes on: what the note is for is seen again.
	_ = h.note(func(r *record) {
		r.Start = start{Role: fleet.RoleServer, Container: p.server.ID, At: time.Now().UTC(), Boot: h.boot()}
		r.Restarting = r.Start
		h.booted(r)
	})
	if err := overdue(ctx, time.Now()); err != nil {
		return fmt.Errorf("restart the server: %w", err)
	}
	return h.queue(ctx, fleet.RoleServer, platform.JobOther, stopWait, func(job context.Context) error {
		if err := h.engine.Restart(job, p.server.ID); err != nil {
			return fmt.Errorf("restart the server: %w", err)
		}
		_ = h.note(func(r *record) { r.Restarting = start{} }) // the container has started since, which says the same
		return nil
	})
}

// KillShims implements platform.Units: there are none. A container's pods are in its
// own pid namespace and end with it, on a restart into etcd-only too (k3s-facts §12).
func (h *Host) KillShims(context.Context) error { return nil }
