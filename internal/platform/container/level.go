package container

import (
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// Level is what the next start of the server takes (R-112-15); no file is full.
func (f *Files) Level() (fleet.Level, error) { return f.levelIn(fleet.FileLevel) }

// SetLevel sets it.
func (f *Files) SetLevel(level fleet.Level) error {
	if level == fleet.LevelFull {
		return atomicfile.Remove(f.Disk().Path(fleet.FileLevel))
	}
	return f.putLevel(fleet.FileLevel, level)
}

// Started is the level that the server was last started with, empty when nothing
// noted it. It says nothing while no server process is there.
func (f *Files) Started() (fleet.Level, error) {
	raw, err := f.read(fleet.FileStarted)
	if err != nil || raw == "" {
		return "", err
	}
	return f.levelIn(fleet.FileStarted)
}

// SetStarted notes it. k3s hides its arguments (R-112-16), and /run of one
// container is not another's, so the note stands in the data folder. The old one
// goes first: on a full disk no note is better than a wrong one.
func (f *Files) SetStarted(level fleet.Level) error {
	if old, err := f.Started(); err == nil && old == level {
		return nil
	}
	if err := atomicfile.Remove(f.Disk().Path(fleet.FileStarted)); err != nil || level == "" {
		return err
	}
	return f.putLevel(fleet.FileStarted, level)
}

func (f *Files) putLevel(name string, level fleet.Level) error {
	if _, err := fleet.ParseLevel(string(level)); err != nil {
		return err
	}
	return atomicfile.Write(f.Disk().Path(name), []byte(string(level)+"\n"), 0o600)
}

func (f *Files) levelIn(name string) (fleet.Level, error) {
	s, err := f.read(name)
	if err != nil {
		return "", err
	}
	level, err := fleet.ParseLevel(s)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Disk().Path(name), err)
	}
	return level, nil
}

func (f *Files) read(name string) (string, error) {
	raw, err := f.Disk().ReadFile(fleet.DefaultDataDir + "/" + name)
	if err != nil {
		return "", fmt.Errorf("level: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
