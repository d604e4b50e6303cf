// Package command is a host whose level is applied by three commands of its user
// (R-112-05): levels, current_level and apply_level NAME, as on a NixOS host that
// switches a specialisation in place. All else is a native host's.
//
// apply_level writes what decides the level and restarts k3s into it by itself, so that
// it stands for the level file and the restart of a native host in one. It runs beside
// the daemon's passes, which see by current_level when it is done.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// Commands are the three, each a program and its arguments.
type Commands struct {
	// Levels prints the levels that the host has, one a line or with spaces between.
	Levels []string
	// Current prints the level that the host is at.
	Current []string
	// Apply is given the level as its last argument.
	Apply []string
	// ApplyTimeout ends it, and all it has started; the others end after LookTimeout.
	ApplyTimeout time.Duration
	// Lock is the file whose lock a run of Apply has for as long as it lasts; empty for
	// none, where one process alone applies levels.
	Lock string
}

const (
	// LookTimeout ends levels and current_level: a pass waits for them.
	LookTimeout = 5 * time.Second
	// kept is for how long the answer of current_level stands: a pass looks several
	// times.
	kept = 2 * time.Second
	// maxOutput is how much of an output is kept; what comes after is read and dropped.
	maxOutput = 4 << 10
)

// Host is a native host whose levels are applied by commands.
type Host struct {
	platform.Host
	c Commands

	// Now is the clock; it may be replaced in tests.
	Now func() time.Time

	mu      sync.Mutex
	run     platform.LevelRun
	level   fleet.Level
	levelAt time.Time
	stale   bool // a level was applied since
}

var _ platform.Host = (*Host)(nil)

// New wraps a native host.
func New(h platform.Host, c Commands) *Host { return &Host{Host: h, c: c, Now: time.Now} }

// Observe implements platform.Host: what the native host shows, and its level by the
// command. A command that fails is an error: nothing is decided on half a sight.
func (h *Host) Observe(ctx context.Context) (platform.Facts, error) {
	f, err := h.Host.Observe(ctx)
	if err != nil {
		return platform.Facts{}, err
	}
	h.mu.Lock()
	run := h.run
	h.mu.Unlock()
	if !run.Running {
		if x := h.others(); x.Running {
			run = x
		}
	}
	level, err := h.current(ctx, run.Running)
	if err != nil {
		return platform.Facts{}, err
	}
	f.LevelRun = run
	f.LevelRun.Applies = true
	f.Level = level
	f.Server.Level = ""
	if f.Server.Process && !f.LevelRun.Running {
		// k3s hides what it runs with; the host's owner says it.
		f.Server.Level = level
	}
	return f, nil
}

// current is the level by the command, asked at most every two seconds.
func (h *Host) current(ctx context.Context, running bool) (fleet.Level, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// In the middle of a change the program may know nothing, or not yet: it is what it was.
	if now := h.Now(); h.level != "" && (running || !h.stale && now.Sub(h.levelAt) >= 0 && now.Sub(h.levelAt) < kept) {
		return h.level, nil
	}
	out, err := output(ctx, LookTimeout, h.c.Current)
	if err != nil {
		return "", fmt.Errorf("current_level: %w", err)
	}
	level, err := known(out)
	if err != nil {
		return "", fmt.Errorf("current_level: %w", err)
	}
	h.level, h.levelAt, h.stale = level, h.Now(), false
	return level, nil
}

// known is a level by its name alone: no word is no level.
func known(s string) (fleet.Level, error) {
	l, err := fleet.ParseLevel(strings.TrimSpace(s))
	if err == nil && strings.TrimSpace(s) == "" {
		err = errors.New("it printed no level")
	}
	return l, err
}

// SetLevel implements platform.Files: it starts apply_level and returns. One that the
// host does not have is refused, and so is a second one beside the first.
func (h *Host) SetLevel(ctx context.Context, level fleet.Level) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run.Running {
		if h.run.Level == level {
			return nil
		}
		return fmt.Errorf("apply_level %s: %s is being applied", level, h.run.Level)
	}
	out, err := output(ctx, LookTimeout, h.c.Levels)
	if err != nil {
		return fmt.Errorf("levels: %w", err)
	}
	if !slices.Contains(strings.Fields(out), string(level)) {
		return fmt.Errorf("levels: this host has no level %q, it has %s", level, strings.Join(strings.Fields(out), ", "))
	}
	lock, end, err := h.begin(level)
	if err != nil {
		return err
	}
	h.run = platform.LevelRun{Level: level, Running: true}
	go func() {
		defer end()
		// The step goes on when the pass that began it has ended.
		out, err := output(context.WithoutCancel(ctx), h.c.ApplyTimeout, append(slices.Clone(h.c.Apply), string(level)), lock)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.run.Running, h.run.Output, h.stale = false, out, true
		if err != nil {
			h.run.Error = fmt.Sprintf("apply_level %s: %v", level, err)
		}
	}()
	return nil
}

// SetLevelJournal implements platform.Files. What a run came to is told to the step that
// had it applied and to none after it, which would be taken for failed before it began.
func (h *Host) SetLevelJournal(ctx context.Context, raw []byte) error {
	if err := h.Host.SetLevelJournal(ctx, raw); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.run.Running {
		h.run = platform.LevelRun{}
	}
	return nil
}

// Restart implements platform.Units: the command has restarted k3s itself, so that there
// is nothing to do while it runs, and a restart without a change of level is k3s's unit's.
func (h *Host) Restart(ctx context.Context) error {
	h.mu.Lock()
	running := h.run.Running
	h.mu.Unlock()
	if running {
		return nil
	}
	return h.Host.Restart(ctx)
}

// output runs a command within its time and gives what it printed. What it started ends
// with it.
func output(ctx context.Context, limit time.Duration, argv []string, inherits ...*os.File) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = slices.DeleteFunc(inherits, func(f *os.File) bool { return f == nil })
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child that keeps the pipe holds nobody up for longer than this.
	cmd.WaitDelay = time.Second
	var out, said bounded
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return out.String(), fmt.Errorf("not done within %s: %s", limit, said.last())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return out.String(), fmt.Errorf("%w: %s", err, said.last())
	}
	return out.String(), nil
}

// bounded keeps the first of what is written.
type bounded struct{ kept bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (b *bounded) String() string { return b.kept.String() }

// last is the last line, for an error.
func (b *bounded) last() string {
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return lines[len(lines)-1]
}
