package hostcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
)

// setupDocker is setup where k3s runs in containers. Images are brought before the host
// lock is taken, for that may take minutes and the daemon is silent without it; what was
// seen before is then looked at anew.
func (h *host) setupDocker(ctx context.Context, g gate, d setup.Desired) error {
	m := h.d.Project(h.root)
	free := func() error {
		if g.local {
			return nil
		}
		s, err := m.Settings(d)
		if err != nil {
			return env.Failed(err)
		}
		if s == nil {
			return nil
		}
		return h.noSwapBy(ctx, g, *s)
	}
	unlock, err := h.alone(ctx, g, fleet.FileSetupLock)
	if err != nil {
		return err
	}
	defer unlock()
	if err := free(); err != nil {
		return err
	}
	seen, err := m.Look(ctx, d)
	if err != nil {
		return env.Failed(err)
	}
	if g.check {
		seen.Archived = append(seen.Archived, g.holds...)
	}
	plan, problems := project.Make(seen, d)
	if len(problems) > 0 {
		return outcome(problems, nil)
	}
	plan.Show(h.e.Out)
	if g.check || plan.Empty() {
		return nil
	}
	if err := m.Bring(ctx, plan); err != nil {
		return env.Failed(err)
	}
	if seen.Data != "" {
		// The daemon's own: its file is in the data volume, and a lock is the file's, whoever
		// has it mounted.
		unlock, err := h.alone(ctx, g, filepath.Join(seen.Data, filepath.Base(fleet.FileHostLock)))
		if err != nil {
			return err
		}
		defer unlock()
	}
	if err := free(); err != nil {
		return err
	}
	if seen, err = m.Look(ctx, d); err != nil {
		return env.Failed(err)
	}
	if plan, problems = project.Make(seen, d); len(problems) > 0 {
		return outcome(problems, nil)
	}
	if len(plan.Images) > 0 {
		return env.Failed(fmt.Errorf("an image is still missing after this: %s", plan.Images[0]))
	}
	return outcome(nil, m.Carry(ctx, plan))
}

// removeDocker takes the daemon off a host whose k3s runs in containers.
func (h *host) removeDocker(ctx context.Context, g gate) error {
	m := h.d.Project(h.root)
	look := func() (project.Removal, []status.Problem, string, error) {
		seen, err := m.LookForRemoval(ctx)
		if err != nil {
			return project.Removal{}, nil, "", env.Failed(err)
		}
		if !g.local {
			s, err := m.SettingsOf(seen.Record)
			if err != nil {
				return project.Removal{}, nil, "", env.Failed(err)
			}
			if s != nil {
				if err := h.noSwapBy(ctx, g, *s); err != nil {
					return project.Removal{}, nil, "", err
				}
			}
		}
		removal, problems := project.MakeRemoval(seen)
		return removal, problems, seen.Data, nil
	}
	unlock, err := h.alone(ctx, g, fleet.FileSetupLock)
	if err != nil {
		return err
	}
	defer unlock()
	removal, problems, data, err := look()
	if err != nil || len(problems) > 0 {
		return refusedOr(problems, err)
	}
	removal.Show(h.e.Out)
	if g.check {
		return nil
	}
	if data != "" {
		unlock, err := h.alone(ctx, g, filepath.Join(data, filepath.Base(fleet.FileHostLock)))
		if err != nil {
			return err
		}
		defer unlock()
	}
	// What was seen before the lock may be of a step that has ended since.
	if removal, problems, _, err = look(); err != nil || len(problems) > 0 {
		return refusedOr(problems, err)
	}
	return outcome(nil, m.Remove(ctx, removal))
}

// refusedOr is a refusal, or an error that is one of a command's already.
func refusedOr(problems []status.Problem, err error) error {
	if err != nil {
		return err
	}
	return outcome(problems, nil)
}

// alone takes a lock of the host; a command that changes nothing takes none.
func (h *host) alone(ctx context.Context, g gate, path string) (unlock func(), err error) {
	if g.check {
		return func() {}, nil
	}
	lock := flock.New(filepath.Join("/", h.root, path))
	if err := os.MkdirAll(filepath.Dir(lock.Path()), 0o755); err != nil {
		return nil, env.Failed(fmt.Errorf("host lock: %w", err))
	}
	p := parts{lock: lock, settings: settings.Defaults()}
	if err := p.take(ctx); err != nil {
		return nil, err
	}
	return func() { _ = lock.Unlock() }, nil
}
