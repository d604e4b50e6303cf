package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// A run of apply_level outlives the process that began it: who sets a level by hand may
// break off, and the daemon goes on with the step. So each run has a lock for as long as
// it lasts, which its program inherits, and the level is written in it. Without it a
// second program would switch the host beside the first.

// late is for how long after its time a program may take to be gone.
const late = time.Minute

// begin takes the lock of a run. end lets it go, also where something that the program
// left behind still has it open.
func (h *Host) begin(level fleet.Level) (lock *os.File, end func(), err error) {
	if h.c.Lock == "" {
		return nil, func() {}, nil
	}
	if err := os.MkdirAll(filepath.Dir(h.c.Lock), 0o755); err != nil {
		return nil, nil, fmt.Errorf("apply_level %s: %w", level, err)
	}
	f, err := os.OpenFile(h.c.Lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("apply_level %s: %w", level, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("one that another process began is not done")
		}
		return nil, nil, fmt.Errorf("apply_level %s: %w", level, err)
	}
	end = func() {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}
	if err := errors.Join(f.Truncate(0), second(f.WriteString(string(level)+"\n"))); err != nil {
		end()
		return nil, nil, fmt.Errorf("apply_level %s: %w", level, err)
	}
	return f, end, nil
}

func second[T any](_ T, err error) error { return err }

// others is a run that another process began and that is not done, its zero value for
// none. One that has had its time counts no more: what holds the lock was left behind.
func (h *Host) others() platform.LevelRun {
	if h.c.Lock == "" {
		return platform.LevelRun{}
	}
	f, err := os.Open(h.c.Lock)
	if err != nil {
		return platform.LevelRun{} // none has ever begun, or its lock could not be had
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return platform.LevelRun{}
	}
	info, err := f.Stat()
	if err != nil || h.Now().Sub(info.ModTime()) > h.c.ApplyTimeout+late {
		return platform.LevelRun{}
	}
	raw, _ := io.ReadAll(io.LimitReader(f, 64))
	level, err := fleet.ParseLevel(strings.TrimSpace(string(raw)))
	if err != nil {
		level = ""
	}
	return platform.LevelRun{Level: level, Running: true}
}
