package hostcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/bundle"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/provision/setup"
)

// collected bounds the whole of it.
const collected = 3 * time.Minute

// journalLines are the last of each unit's journal that go along.
const journalLines = "2000"

func (h *host) supportBundle() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what a bug report needs of this host into one file, secrets left out",
		Long: `Writes a .tar.gz that nobody but its owner may read: what regrade host doctor finds, the
report, the role files, regrade's settings, k3s's configuration with secrets masked, k3s's and
regrade's units as systemd has them, the last lines of their journals, the daemon's notes, memory,
pressure and free disk. MANIFEST.txt in it says what is in and what was left out.

Tokens, passwords, kubeconfigs and keys are never read into it; those of this host are masked
wherever they stand, and so is what looks like one. Look through it before you pass it on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), collected)
			defer cancel()
			return h.collect(ctx, file)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, which must not be there yet; - for standard output; default regrade-support-NODE-TIME.tar.gz here")
	return cmd
}

func (h *host) collect(ctx context.Context, file string) error {
	x, report := h.read(ctx, false)
	node := or(x.Node, "host")
	now := h.e.Now().UTC()
	folder := "regrade-support-" + node + "-" + now.Format("20060102T150405Z")
	if file == "" {
		file = folder + ".tar.gz"
	}
	f, err := bundle.Open(file, h.e.Out)
	if err != nil {
		return env.Failed(err)
	}
	s, err := settings.Load(h.root)
	if err != nil {
		s = settings.Defaults() // what is wrong with it is in the doctor's words
	}
	b := bundle.New(f, folder, now, h.secrets(ctx, s)...)
	b.Add("version.txt", "regrade's version", []byte(h.d.Version+"\n"))
	addJSON(b, "doctor.json", "what regrade host doctor finds", doctor.New(h.d.Version, x.Node, doctor.JudgeHost(x)))
	addJSON(b, "listeners.json", "who listens on 2379, 2380 and 6443", x.Listeners)
	if report == nil {
		b.Leave("report.json", or(x.SettingsProblem, x.Unseen))
	} else {
		addJSON(b, "report.json", "the host's report, as its daemon would write it", report)
	}
	h.ownFiles(b, s)
	h.k3sFiles(b, s)
	h.systemd(ctx, b, s)
	h.machine(b, s)
	b.Leave(fleet.FileKubeconfig, "a credential")
	if err := f.Close(b.Close()); err != nil {
		return env.Failed(err)
	}
	if f.Path() != "" {
		_, _ = fmt.Fprintln(h.e.Out, f.Path())
	}
	return nil
}

func addJSON(b *bundle.Bundle, name, what string, v any) {
	b.Part(name, what, func() ([]byte, error) {
		raw, err := json.MarshalIndent(v, "", "  ")
		return append(raw, '\n'), err
	})
}

// secrets are those of this host that can be read, to be looked for in everything else.
func (h *host) secrets(ctx context.Context, s settings.Host) []obs.Secret {
	files := nativeOf(s, h.root)
	out := files.Disk().Secrets(s.ServerConfig, s.AgentConfig, "/etc/rancher/k3s/config.yaml")
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		raw, _ := files.Disk().ReadFile(files.EnvFile(role))
		for key, v := range k3s.ParseEnv(raw) {
			if strings.Contains(key, "TOKEN") || strings.Contains(key, "SECRET") || strings.Contains(key, "KEY") || strings.Contains(key, "AUTH") || strings.Contains(key, "ENDPOINT") {
				out = append(out, obs.Secret(v))
			}
		}
	}
	if machine, err := h.d.Host(s, h.root); err == nil {
		if _, server := stagedOf(s, h.root, machine); server != nil {
			out = append(out, server(ctx).Join.Token)
		}
	}
	for _, name := range []string{s.Kubeconfig, s.Levels.Kubeconfig, "/etc/rancher/k3s/k3s.yaml"} {
		raw, _ := files.Disk().ReadFile(name)
		for _, m := range credential.FindAllStringSubmatch(string(raw), -1) {
			out = append(out, obs.Secret(strings.Trim(m[1], `"'`)))
		}
	}
	return out
}

// credential is a value in a kubeconfig that nobody else may have.
var credential = regexp.MustCompile(`(?m)\b(?:token|password|client-key-data):\s*(\S+)`)

// ownFiles are regrade's, each by its name: small, and without a secret.
func (h *host) ownFiles(b *bundle.Bundle, s settings.Host) {
	for _, at := range []string{
		fleet.FileRole, fleet.FileLeaving, fleet.FileJoinURL, fleet.FileAgentURL, fleet.FileClusterID, fleet.FileMemberID, fleet.FileVoters,
		fleet.FileJoinBegun, fleet.FileJoining, fleet.FileAllowJoin, rolefile.FileServerLevel, rolefile.FileJournal, rolefile.FileLevelJournal,
		fleet.FileHostConfig, fleet.FileJoinConfig,
		path.Join(s.DataDir, fleet.FileLevel), path.Join(s.DataDir, fleet.FileStarted), fleet.FileEntrypoint,
	} {
		h.file(b, at, "as it is", func(raw []byte) ([]byte, error) { return raw, nil })
	}
	h.file(b, fleet.FileInstalled, "what regrade host setup found and made", func(raw []byte) ([]byte, error) {
		var r setup.Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, err
		}
		r.Command = k3s.ShownArgs(r.Command)
		return json.MarshalIndent(r, "", "  ")
	})
}

// file adds one; one that is not there is told of nowhere else.
func (h *host) file(b *bundle.Bundle, at, what string, shown func([]byte) ([]byte, error)) {
	raw, err := os.ReadFile(filepath.Join("/", h.root, at))
	if errors.Is(err, fs.ErrNotExist) {
		b.Leave("files"+at, "is not there")
		return
	}
	b.Part("files"+at, what, func() ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return shown(raw)
	})
}

// k3sFiles are k3s's configuration, of which only what is known to be no secret is shown.
func (h *host) k3sFiles(b *bundle.Bundle, s settings.Host) {
	for _, main := range []string{s.ServerConfig, s.AgentConfig, "/etc/rancher/k3s/config.yaml"} {
		all := []string{main}
		drops, err := os.ReadDir(filepath.Join("/", h.root, main+".d"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.Leave("files"+main+".d", err.Error())
		}
		for _, e := range drops {
			if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
				all = append(all, path.Join(main+".d", e.Name()))
			}
		}
		for _, at := range all {
			h.file(b, at, "keys, and the values of those that are known to hold no secret", func(raw []byte) ([]byte, error) {
				c, err := k3s.ParseConfig(raw)
				if err != nil {
					return nil, errors.New("it is no configuration of k3s, so what in it is secret cannot be told")
				}
				return c.Shown(), nil
			})
		}
	}
}

// unit is what is shown of a systemd unit: of its environment the names alone.
type unit struct {
	Name             string     `json:"name"`
	Loaded           bool       `json:"loaded"`
	Masked           bool       `json:"masked"`
	Enabled          bool       `json:"enabled"`
	Stale            bool       `json:"stale"`
	Active           bool       `json:"active"`
	Commands         [][]string `json:"commands"`
	Conditions       []string   `json:"conditions"`
	Environment      []string   `json:"environment"`
	EnvironmentFiles []string   `json:"environment_files"`
	Error            string     `json:"error,omitempty"`
}

// systemd are the units as systemd has them, and their journals.
func (h *host) systemd(ctx context.Context, b *bundle.Bundle, s settings.Host) {
	if s.Platform == settings.PlatformDocker {
		for _, service := range []string{s.Docker.ServerService, s.Docker.AgentService, "regrade-host"} {
			b.Leave("journal/"+service+".log", fmt.Sprintf("the engine has it: docker compose logs --tail %s %s", journalLines, service))
		}
		return
	}
	var units []unit
	m := h.d.Systemd()
	for _, name := range []string{s.ServerUnit, s.AgentUnit, "regrade-host.service"} {
		u := unit{Name: name}
		if x, err := m.Service(ctx, name); err != nil {
			u.Error = err.Error()
		} else {
			u.Loaded, u.Masked, u.Enabled, u.Stale, u.Active, u.Conditions = x.Loaded, x.Masked, x.Enabled, x.Stale, x.Active, x.Conditions
			for _, argv := range x.Commands {
				u.Commands = append(u.Commands, k3s.ShownArgs(argv))
			}
			for _, line := range x.Environment {
				key, _, _ := strings.Cut(line, "=")
				u.Environment = append(u.Environment, key)
			}
			u.EnvironmentFiles = x.EnvironmentFiles
		}
		units = append(units, u)
		b.Part("journal/"+name+".log", "its last "+journalLines+" lines", func() ([]byte, error) {
			return h.d.Print(ctx, "journalctl", "--no-pager", "-o", "short-iso", "-n", journalLines, "-u", name)
		})
	}
	addJSON(b, "units.json", "the units as systemd has them", units)
}

// machine is memory, pressure, load and room.
func (h *host) machine(b *bundle.Bundle, s settings.Host) {
	for _, at := range []string{"/proc/meminfo", "/proc/pressure/memory", "/proc/pressure/io", "/proc/pressure/cpu", "/proc/loadavg", "/proc/uptime", "/proc/version", "/etc/os-release"} {
		h.file(b, at, "as it is", func(raw []byte) ([]byte, error) { return raw, nil })
	}
	var room strings.Builder
	for _, at := range []string{s.DataDir, "/", "/etc", "/run"} {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(filepath.Join("/", h.root, at), &fs); err != nil {
			fmt.Fprintf(&room, "%s: %v\n", at, err)
			continue
		}
		size := uint64(fs.Bsize)
		fmt.Fprintf(&room, "%s: %d MiB of %d free, %d of %d inodes\n", at, fs.Bavail*size>>20, fs.Blocks*size>>20, fs.Ffree, fs.Files)
	}
	b.Add("disk.txt", "free room", []byte(room.String()))
}

// printed runs a program for what it prints. Its words on standard error are the reason
// where it fails.
func printed(ctx context.Context, argv ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if x, ok := errors.AsType[*exec.ExitError](err); ok && len(x.Stderr) > 0 {
		return nil, fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(string(x.Stderr)))
	}
	return out, err
}
