package hostcmd

import (
	"context"
	"path/filepath"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/preflight"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/command"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/systemd"
	"github.com/exadev/regrade/internal/status"
)

// machineOf is the host on the platform that its settings name.
func machineOf(h settings.Host, root string) (platform.Host, error) {
	if h.Platform == settings.PlatformDocker {
		d := h.Docker
		return docker.New(docker.Options{
			Root: root, Socket: d.Socket, Project: d.Project, ServerService: d.ServerService, AgentService: d.AgentService, K3s: d.K3s, Identity: d.Identity,
		})
	}
	native := systemd.New(systemd.Options{Layout: h.Layout(root), K3s: filepath.Join("/", root, h.K3s)})
	if h.Platform == settings.PlatformCommand {
		return command.New(native, command.Commands{
			Levels: h.Command.Levels, Current: h.Command.CurrentLevel, Apply: h.Command.ApplyLevel, ApplyTimeout: time.Duration(h.Command.Timeout),
			Lock: filepath.Join("/", root, fleet.FileApplying),
		}), nil
	}
	return native, nil
}

// stagedOf is where the preflight looks on that platform.
func stagedOf(h settings.Host, root string, p platform.Host) (k3s.Disk, func(context.Context) preflight.Staged) {
	files := nativeOf(h, root)
	if d, ok := p.(*docker.Host); ok {
		return files.Disk(), func(ctx context.Context) preflight.Staged {
			s, err := d.Staging(ctx)
			return stagedInDocker(s, err)
		}
	}
	return files.Disk(), preflight.Native(files.Disk(), h.ServerConfig, files.EnvFile(fleet.RoleServer))
}

// stagedInDocker puts what the adapter says into the preflight's words.
func stagedInDocker(s docker.Staging, err error) preflight.Staged {
	if err != nil {
		// Nothing was seen, so nothing may be taken for staged.
		return preflight.Staged{Absent: err.Error()}
	}
	out := preflight.Staged{
		Absent: s.Absent, Config: s.Config, ConfigError: s.ConfigError, Where: fleet.FileServerConf + " or the container's variables",
		Join: s.Join, JoinError: s.JoinError, HostName: s.HostName,
	}
	if s.IdentityProblem != "" {
		code := preflight.CodeIdentity
		if s.Passwordless {
			code = preflight.CodePassword
		}
		out.Problems = append(out.Problems, status.Problem{Code: code, Sentence: s.IdentityProblem})
	}
	return out
}
