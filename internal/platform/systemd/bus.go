package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// busTimeout ends a call that systemd does not answer; reloadTimeout is for the
// one that reads all unit files again.
const (
	busTimeout    = 5 * time.Second
	reloadTimeout = 30 * time.Second
)

// UnitState is what systemd says of one unit.
type UnitState struct {
	Loaded     bool
	Masked     bool   // somebody has masked it: systemd knows nothing of it and starts it never
	Active     string // active, activating, deactivating, inactive, failed, reloading
	Job        string // job type, empty when none is queued
	MainPID    uint32
	Since      time.Time // last start of the main process
	Conditions []string  // the command lines of ExecCondition
	Enabled    string    // UnitFileState
	Stale      bool      // the unit's files have changed since systemd read them
}

// Bus is systemd's manager, as far as it is used. Start, Stop and Restart queue
// a job and return; a conflicting job is replaced, hence cancelled.
type Bus interface {
	Unit(ctx context.Context, name string) (UnitState, error)
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	ResetFailed(ctx context.Context, name string) error
	Enable(ctx context.Context, name string) error
	Reload(ctx context.Context) error
}

// systemBus is the real one. A broken connection is made anew on the next call.
type systemBus struct {
	mu   sync.Mutex
	conn *dbus.Conn
}

// NewBus is the host's own systemd. It connects on first use.
func NewBus() Bus { return &systemBus{} }

func (b *systemBus) call(ctx context.Context, what string, f func(context.Context, *dbus.Conn) error) error {
	return b.within(ctx, busTimeout, what, f)
}

func (b *systemBus) within(ctx context.Context, bound time.Duration, what string, f func(context.Context, *dbus.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || !b.conn.Connected() {
		// The connection outlives this call, so it is not tied to its context.
		c, err := dbus.NewSystemConnectionContext(context.Background())
		if err != nil {
			return fmt.Errorf("systemd: connect: %w", err)
		}
		b.conn = c
	}
	if err := overdue(ctx, time.Now()); err != nil {
		return fmt.Errorf("systemd: %s: %w", what, err)
	}
	if err := f(ctx, b.conn); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			b.conn.Close()
			b.conn = nil
		}
		return fmt.Errorf("systemd: %s: %w", what, err)
	}
	return nil
}

// overdue says that the time for a call is up. The process may have stood still on
// its way to it: the timer of the context may not have run since, the clock has.
func overdue(ctx context.Context, now time.Time) error {
	if at, ok := ctx.Deadline(); ok && !now.Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

func (b *systemBus) Unit(ctx context.Context, name string) (UnitState, error) {
	var s UnitState
	err := b.call(ctx, "look at "+name, func(ctx context.Context, c *dbus.Conn) error {
		p, err := c.GetAllPropertiesContext(ctx, name)
		if err != nil {
			return err
		}
		s = unitState(p)
		jobs, err := c.ListJobsContext(ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(jobs, func(j dbus.JobStatus) bool { return j.Unit == name }); i >= 0 {
			s.Job = jobs[i].JobType
		}
		return nil
	})
	return s, err
}

func unitState(p map[string]any) UnitState {
	str := func(key string) string { s, _ := p[key].(string); return s }
	s := UnitState{Loaded: str("LoadState") == "loaded", Masked: str("LoadState") == "masked", Active: str("ActiveState"), Enabled: str("UnitFileState")}
	s.MainPID, _ = p["MainPID"].(uint32)
	s.Stale, _ = p["NeedDaemonReload"].(bool)
	if us, _ := p["ExecMainStartTimestamp"].(uint64); us > 0 {
		s.Since = time.UnixMicro(int64(us)).UTC()
	}
	for _, key := range []string{"ExecCondition", "ExecConditionEx"} {
		s.Conditions = append(s.Conditions, commandLines(p[key])...)
	}
	return s
}

// commandLines reads a property of type a(sas…): path, then arguments.
func commandLines(v any) []string {
	rows, _ := v.([][]any)
	var out []string
	for _, row := range rows {
		if len(row) < 2 {
			continue
		}
		if args, ok := row[1].([]string); ok {
			out = append(out, strings.Join(args, " "))
		}
	}
	return out
}

func (b *systemBus) Start(ctx context.Context, name string) error {
	return b.call(ctx, "start "+name, func(ctx context.Context, c *dbus.Conn) error {
		_, err := c.StartUnitContext(ctx, name, "replace", nil)
		return err
	})
}

func (b *systemBus) Stop(ctx context.Context, name string) error {
	return b.call(ctx, "stop "+name, func(ctx context.Context, c *dbus.Conn) error {
		_, err := c.StopUnitContext(ctx, name, "replace", nil)
		return err
	})
}

func (b *systemBus) Restart(ctx context.Context, name string) error {
	return b.call(ctx, "restart "+name, func(ctx context.Context, c *dbus.Conn) error {
		_, err := c.RestartUnitContext(ctx, name, "replace", nil)
		return err
	})
}

func (b *systemBus) ResetFailed(ctx context.Context, name string) error {
	return b.call(ctx, "reset "+name, func(ctx context.Context, c *dbus.Conn) error {
		return c.ResetFailedUnitContext(ctx, name)
	})
}

func (b *systemBus) Enable(ctx context.Context, name string) error {
	return b.call(ctx, "enable "+name, func(ctx context.Context, c *dbus.Conn) error {
		_, _, err := c.EnableUnitFilesContext(ctx, []string{name}, false, false)
		return err
	})
}

func (b *systemBus) Reload(ctx context.Context) error {
	return b.within(ctx, reloadTimeout, "reload unit files", func(ctx context.Context, c *dbus.Conn) error {
		return c.ReloadContext(ctx)
	})
}
