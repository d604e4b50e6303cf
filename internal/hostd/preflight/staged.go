package preflight

import (
	"context"
	"os"
	"strings"

	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/status"
)

// Staged is the server that a host could start, as its platform knows it.
type Staged struct {
	// Absent says why there is none, empty when there is one.
	Absent string
	// Config is k3s's configuration of it, Where is its name for people.
	Config      k3s.Config
	ConfigError error
	Where       string
	Join        k3s.Join
	JoinError   error
	// HostName is what k3s will take for the host's.
	HostName      string
	HostNameError error
	// Problems are the platform's own.
	Problems []status.Problem
}

// passwordFile is k3s's node password, without which an agent that comes back
// is refused (k3s-facts §9).
const passwordFile = "/etc/rancher/node/password"

// Native looks at a server that is staged by a configuration file and the
// environment file of its unit.
func Native(disk k3s.Disk, config, env string) func(context.Context) Staged {
	return func(context.Context) Staged {
		s := Staged{Where: config}
		if raw, err := disk.ReadFile(passwordFile); err != nil || len(strings.TrimSpace(string(raw))) == 0 {
			s.Problems = append(s.Problems, status.Problem{Code: CodePassword, Sentence: passwordFile + " is missing or empty: the host could not come back as an agent"})
		}
		if raw, err := disk.ReadFile(config); err == nil && raw == nil {
			s.Absent = config + " is not there: the host was not provisioned as a server"
			return s
		}
		s.Config, s.ConfigError = disk.ReadConfig(config)
		s.Join, s.JoinError = disk.ReadJoin(config, env)
		s.HostName, s.HostNameError = os.Hostname()
		return s
	}
}

// ready judges its configuration, and says whether there is one to go on with.
func (s Staged) ready(l *list, in hostapi.PreflightInput) bool {
	switch {
	case s.Absent != "":
		l.add(CodeNotStaged, "%s", s.Absent)
		return false
	case s.ConfigError != nil:
		l.add(CodeBadConfig, "%v", s.ConfigError)
		return false
	}
	if s.Config.Get("with-node-id") == "true" {
		l.add(CodeNodeID, "with-node-id is set: the Node's name and the member's would differ")
	}
	if name := s.Config.Get("node-name"); name != "" && !strings.EqualFold(name, in.Node) {
		l.add(CodeNodeName, "node-name is %q in %s, the Node is %q", name, s.Where, in.Node)
	}
	return true
}
