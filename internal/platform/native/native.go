// Package native is the part of a native host that is files: the role files,
// k3s's data folder and configuration, and the units' drop-ins. The systemd
// adapter adds units and processes to it; `regrade host role-is` uses it alone,
// because a start condition must not need a bus.
package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/atomicfile"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Layout says where things are on the host. The zero value is what k3s's
// install script and regrade's own units use.
type Layout struct {
	// Root is put before every absolute path; empty is the host itself.
	Root string
	// DataDir is k3s's data folder.
	DataDir string
	// ServerUnit and AgentUnit are the names of k3s's units, with ".service".
	ServerUnit string
	AgentUnit  string
	// ServerConfig and AgentConfig are each role's own k3s configuration file.
	ServerConfig string
	AgentConfig  string
}

// Defaults are the paths of a Layout that sets none.
func (l Layout) Defaults() Layout {
	set := func(v *string, to string) {
		if *v == "" {
			*v = to
		}
	}
	set(&l.DataDir, fleet.DefaultDataDir)
	set(&l.ServerUnit, "k3s.service")
	set(&l.AgentUnit, "k3s-agent.service")
	set(&l.ServerConfig, fleet.FileServerConf)
	set(&l.AgentConfig, fleet.FileAgentConf)
	return l
}

const (
	joinName  = "20-fleet-role-join"
	levelName = "30-regrade-level.yaml"
	unitDir   = "/etc/systemd/system"
	bootIDAt  = "/proc/sys/kernel/random/boot_id"
)

// Files are the files of one host. It implements platform.Files and the part of
// platform.Store that needs no process.
type Files struct {
	layout Layout
	disk   k3s.Disk
	dir    rolefile.Dir
	// BootID reads this boot's id; it may be replaced in tests.
	BootID func() (string, error)
}

// New makes it.
func New(l Layout) *Files {
	l = l.Defaults()
	return &Files{
		layout: l,
		disk:   k3s.Disk{Root: l.Root, DataDir: l.DataDir, ServerConfig: l.ServerConfig},
		dir:    rolefile.Dir{Root: l.Root},
		BootID: func() (string, error) {
			raw, err := os.ReadFile(bootIDAt)
			if err != nil {
				return "", fmt.Errorf("boot id: %w", err)
			}
			return strings.TrimSpace(string(raw)), nil
		},
	}
}

// Layout is the host's, with defaults.
func (f *Files) Layout() Layout { return f.layout }

// Disk is k3s's part.
func (f *Files) Disk() k3s.Disk { return f.disk }

// Role are the files that the start rule looks at (design §4.1), and nothing
// beside them: what cannot be read of the rest must not keep a voter from
// starting. A member needs no join confirmed.
func (f *Files) Role() (rolefile.Files, error) {
	files, err := f.dir.Read()
	if err != nil {
		return rolefile.Files{}, err
	}
	allowed, err := f.dir.AllowedBoot()
	if err != nil {
		files.JoiningProblem = err.Error()
	}
	if files.BootID, err = f.BootID(); err != nil && (allowed != "" || files.Joining.BootID != "") {
		files.JoiningProblem = err.Error()
	}
	files.AllowJoin = allowed != "" && allowed == files.BootID
	if files.WAL, files.Tombstone, err = f.disk.Initialised(); err != nil {
		return rolefile.Files{}, err
	}
	// What cannot be told is taken for a former member; one with a datastore starts
	// all the same.
	if files.Demoted, err = f.disk.Demoted(); err != nil {
		if !files.WAL {
			return rolefile.Files{}, err
		}
		files.Demoted = true
	}
	// A configuration that cannot be read names nothing to join; the preflight
	// says what is wrong with it.
	if j, err := f.disk.ReadJoin(f.layout.ServerConfig, f.EnvFile(fleet.RoleServer)); err == nil {
		files.JoinURL, files.Token = j.URL, j.Token.Reveal() != ""
	}
	return files, nil
}

// Observe is what the files say.
func (f *Files) Observe() (platform.Facts, error) {
	var x platform.Facts
	var err error
	if x.Files, err = f.Role(); err != nil {
		return platform.Facts{}, err
	}
	if _, err := f.BootID(); err != nil {
		return platform.Facts{}, err
	}
	store, err := f.disk.ReadDatastore()
	if err != nil {
		return platform.Facts{}, err
	}
	x.Datastore, x.MemberName, x.EtcdCerts = store.Exists, store.Name, store.Certs
	if x.Snapshots, err = f.disk.OwnSnapshots(); err != nil {
		return platform.Facts{}, err
	}
	config, err := f.disk.ReadFile(f.layout.ServerConfig)
	if err != nil {
		return platform.Facts{}, fmt.Errorf("server configuration: %w", err)
	}
	x.Staged = config != nil
	name := strings.TrimSuffix(f.layout.AgentUnit, ".service")
	x.AgentProblem = f.disk.AgentProblem(f.layout.AgentConfig, f.EnvFile(fleet.RoleAgent), "/etc/default/"+name, "/etc/sysconfig/"+name)
	x.Password = rolefile.Fingerprint(f.disk.NodePassword())
	if x.AgentProblem == "" {
		x.AgentProblem = x.Files.Identity.PasswordProblem(x.Password)
	}
	if x.Datastore {
		x.DatastoreProblem = f.disk.DatastoreProblem()
	}
	if x.Level, err = f.level(); err != nil {
		return platform.Facts{}, err
	}
	if x.Server.Level, err = f.dir.ServerLevel(); err != nil {
		return platform.Facts{}, err
	}
	if x.ServerJoin, err = f.join(fleet.RoleServer); err != nil {
		return platform.Facts{}, err
	}
	if x.AgentJoin, err = f.join(fleet.RoleAgent); err != nil {
		return platform.Facts{}, err
	}
	if x.Journal, err = f.dir.Journal(); err != nil {
		return platform.Facts{}, err
	}
	if x.LevelJournal, err = f.dir.LevelJournal(); err != nil {
		return platform.Facts{}, err
	}
	return x, nil
}

// Unit is the name of a role's unit.
func (f *Files) Unit(role fleet.Role) string {
	if role == fleet.RoleServer {
		return f.layout.ServerUnit
	}
	return f.layout.AgentUnit
}

// EnvFile is the environment file of a role's unit, as install.sh writes it.
func (f *Files) EnvFile(role fleet.Role) string {
	return filepath.Join(unitDir, f.Unit(role)+".env")
}

func (f *Files) config(role fleet.Role) string {
	if role == fleet.RoleServer {
		return f.layout.ServerConfig
	}
	return f.layout.AgentConfig
}

func (f *Files) joinFiles(role fleet.Role) (config, unit string) {
	return f.config(role) + ".d/" + joinName + ".yaml", filepath.Join(unitDir, f.Unit(role)+".d", joinName+".conf")
}

// halfJoin is no URL: one of the two drop-ins is missing or names another host,
// so that a join cut short is written, or taken away, again.
const halfJoin = "half"

func (f *Files) join(role fleet.Role) (string, error) {
	config, unit := f.joinFiles(role)
	a, err := f.disk.ReadFile(config)
	if err != nil {
		return "", fmt.Errorf("join drop-in: %w", err)
	}
	b, err := f.disk.ReadFile(unit)
	if err != nil {
		return "", fmt.Errorf("join drop-in: %w", err)
	}
	if a == nil && b == nil {
		return "", nil
	}
	url, err := k3s.ParseJoinDropIn(a)
	if err != nil {
		return halfJoin, nil
	}
	want, err := k3s.UnitDropIn(url)
	if err != nil || k3s.ParseUnitDropIn(b) != k3s.ParseUnitDropIn(want) {
		return halfJoin, nil
	}
	return url, nil
}

func (f *Files) level() (fleet.Level, error) {
	raw, err := f.disk.ReadFile(f.layout.ServerConfig + ".d/" + levelName)
	if err != nil || raw == nil {
		return fleet.LevelFull, err
	}
	return k3s.ParseLevelDropIn(raw)
}

func (f *Files) at(path string) string { return filepath.Join("/", f.layout.Root, path) }

// SetRole implements platform.Files.
func (f *Files) SetRole(_ context.Context, role fleet.Role) error {
	if err := f.dir.SetRole(role); err != nil {
		return err
	}
	return f.dir.EndAllowJoin()
}

// SetLeaving implements platform.Files.
func (f *Files) SetLeaving(_ context.Context, id fleet.SwapID) error { return f.dir.SetLeaving(id) }

// SetJoining implements platform.Files.
func (f *Files) SetJoining(_ context.Context, j rolefile.Joining) error { return f.dir.SetJoining(j) }

// SetIdentity implements platform.Files.
func (f *Files) SetIdentity(_ context.Context, id rolefile.Identity) error {
	return f.dir.SetIdentity(id)
}

// SetJournal implements platform.Files.
func (f *Files) SetJournal(_ context.Context, raw []byte) error { return f.dir.SetJournal(raw) }

// SetLevelJournal implements platform.Files.
func (f *Files) SetLevelJournal(_ context.Context, raw []byte) error {
	return f.dir.SetLevelJournal(raw)
}

// SetLevel implements platform.Files.
func (f *Files) SetLevel(_ context.Context, level fleet.Level) error {
	path := f.at(f.layout.ServerConfig + ".d/" + levelName)
	if level == fleet.LevelFull {
		return atomicfile.Remove(path)
	}
	raw, err := k3s.LevelDropIn(level)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, raw, 0o600)
}

// SetJoin implements platform.Files, but for telling systemd of the drop-in.
func (f *Files) SetJoin(_ context.Context, role fleet.Role, url string) error {
	config, unit := f.joinFiles(role)
	if url == "" {
		if err := atomicfile.Remove(f.at(unit)); err != nil {
			return err
		}
		return atomicfile.Remove(f.at(config))
	}
	a, err := k3s.JoinDropIn(url)
	if err != nil {
		return err
	}
	b, err := k3s.UnitDropIn(url)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(f.at(config), a, 0o600); err != nil {
		return err
	}
	return atomicfile.Write(f.at(unit), b, 0o644)
}

// PruneSnapshots implements platform.Store.
func (f *Files) PruneSnapshots(_ context.Context, keep int) error {
	return f.disk.PruneSnapshots(keep)
}

// AllowJoin is the operator's override for this boot (safety rule 18).
func (f *Files) AllowJoin() error {
	boot, err := f.BootID()
	if err != nil {
		return err
	}
	return f.dir.AllowJoin(boot)
}

// RoleIs answers a unit's start condition. A server that may start notes the
// level it starts with, because k3s hides its arguments (R-112-16). The answer
// depends on the role's files alone: unnoted says why a level was not noted, and
// takes no vote away.
func (f *Files) RoleIs(role fleet.Role) (a rolefile.Answer, unnoted, err error) {
	files, err := f.Role()
	if err != nil {
		return rolefile.Answer{}, nil, err
	}
	a = rolefile.MayStart(files, role)
	if !a.May || role != fleet.RoleServer {
		return a, nil, nil
	}
	level, unnoted := f.level()
	if unnoted != nil {
		level = "" // no note: the daemon takes the level for unknown, not for an earlier start's
	}
	return a, errors.Join(unnoted, f.dir.SetServerLevel(level)), nil
}
