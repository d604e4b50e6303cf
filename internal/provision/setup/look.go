package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Service is a unit as systemd says it; Manager is systemd.
type Service struct {
	Unit
	// Environment are KEY=value lines, EnvironmentFiles what is read over them.
	Environment      []string
	EnvironmentFiles []string
}

// Manager is systemd as far as it is used here.
type Manager interface {
	Service(ctx context.Context, name string) (Service, error)
	Enable(ctx context.Context, name string) error
	Disable(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Reload(ctx context.Context) error
}

// Host is one host: its systemd, and its files below Root.
type Host struct {
	Root string
	// DataDir is k3s's, empty for its own place.
	DataDir string
	Systemd Manager
}

func (h Host) at(path string) string { return filepath.Join("/", h.Root, path) }

// Look reads everything that a plan is made of, and changes nothing.
func (h Host) Look(ctx context.Context) (Seen, error) {
	s := Seen{Units: map[fleet.Role]Unit{}, Configs: map[fleet.Role][]k3s.Config{}, Files: map[string][]byte{}}
	for _, path := range Paths() {
		raw, err := os.ReadFile(h.at(path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return Seen{}, fmt.Errorf("look at the host: %w", err)
		default:
			s.Files[path] = raw
		}
	}
	for _, role := range roles {
		u, err := h.unit(ctx, units[role])
		if err != nil {
			return Seen{}, fmt.Errorf("look at the host: %w", err)
		}
		s.Units[role] = u
		if s.Configs[role], err = h.configs(u); err != nil {
			return Seen{}, fmt.Errorf("look at the host: %w", err)
		}
	}
	daemon, err := h.unit(ctx, daemonUnit)
	if err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	s.Daemon = daemon
	files, err := rolefile.Dir{Root: h.Root}.Read()
	if err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	s.Role = files.Role
	disk := k3s.Disk{Root: h.Root, DataDir: h.DataDir}
	if s.Datastore, _, err = disk.Initialised(); err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	if s.Node, s.CA, err = disk.Whose(); err != nil {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	if raw, err := os.ReadFile(disk.Path("server", "token")); err == nil {
		s.Token = k3s.Secret(strings.TrimSpace(string(raw)))
	}
	if info, err := os.Stat(h.at(fileProgram)); err == nil {
		s.Program = info.Mode().IsRegular() && info.Mode()&0o111 != 0
	}
	if raw, err := os.ReadFile(h.at(fleet.FileInstalled)); err == nil {
		var r Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return Seen{}, fmt.Errorf("look at the host: %s: %w", fleet.FileInstalled, err)
		}
		s.Record = &r
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Seen{}, fmt.Errorf("look at the host: %w", err)
	}
	return s, nil
}

// unit is a unit with its environment as k3s would get it.
func (h Host) unit(ctx context.Context, name string) (Unit, error) {
	s, err := h.Systemd.Service(ctx, name)
	if err != nil {
		return Unit{}, err
	}
	u := s.Unit
	u.Env = map[string]string{}
	for _, line := range s.Environment {
		if key, v, ok := strings.Cut(line, "="); ok {
			u.Env[key] = v
		}
	}
	for _, pattern := range s.EnvironmentFiles {
		paths, err := filepath.Glob(h.at(pattern))
		if err != nil {
			return Unit{}, fmt.Errorf("%s: environment file %s: %w", name, pattern, err)
		}
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			if err != nil {
				return Unit{}, fmt.Errorf("%s: environment file: %w", name, err)
			}
			for key, v := range k3s.ParseEnv(raw) {
				u.Env[key] = v
			}
		}
	}
	return u, nil
}

const envConfigFile = "K3S_CONFIG_FILE"

// configs are the files that k3s merges for a unit: the one that its command or its
// environment names, else the common one, and the drop-ins beside it.
func (h Host) configs(u Unit) ([]k3s.Config, error) {
	path := "/etc/rancher/k3s/config.yaml"
	for _, argv := range u.Commands {
		for i, word := range argv {
			for _, flag := range []string{"--config", "-config", "-c", "--c"} {
				switch {
				case word == flag && i+1 < len(argv):
					path = argv[i+1]
				case strings.HasPrefix(word, flag+"="):
					path = strings.TrimPrefix(word, flag+"=")
				}
			}
		}
	}
	// The variable wins over the flag (k3s-facts §1.2).
	if v := u.Env[envConfigFile]; v != "" {
		path = v
	}
	return k3s.Disk{Root: h.Root}.ReadConfigs(path)
}

// same says whether a unit starts just that.
func same(u Unit, want []string) bool {
	return len(u.Commands) == 1 && slices.Equal(u.Commands[0], want)
}

// Lowered says whether the server's configuration has a drop-in of a lower level.
func Lowered(h Host) (bool, error) {
	raw, err := os.ReadFile(h.at(fleet.FileLevelDropIn))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the host: %w", err)
	}
	l, err := k3s.ParseLevelDropIn(raw)
	if err != nil {
		return true, nil // whatever it says, it is not full
	}
	return l != fleet.LevelFull, nil
}
