package docker

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
)

// Staging is what the next start of the server takes, for the preflight (safety rule
// 17).
type Staging struct {
	// Absent says why there is no server to start, empty when there is one.
	Absent string
	// Config is k3s's configuration file.
	Config      k3s.Config
	ConfigError error
	Join        k3s.Join
	JoinError   error
	HostName    string
	// IdentityProblem says why the server would not be this host; Passwordless, that
	// the node password is what lacks.
	IdentityProblem string
	Passwordless    bool
}

const envNodeName = "K3S_NODE_NAME"

// Staging looks.
func (h *Host) Staging(ctx context.Context) (Staging, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	p, err := h.pair(ctx)
	if err != nil {
		return Staging{}, err
	}
	if p.server.ID == "" {
		return Staging{Absent: p.absent[fleet.RoleServer]}, nil
	}
	s := Staging{HostName: p.server.HostName}
	s.Config, s.ConfigError = h.serverConfig(p.server)
	s.Join, s.JoinError = h.files(p.server).Join(fleet.RoleServer)
	if p.agent.ID != "" {
		s.IdentityProblem, s.Passwordless = h.identityProblem(p, h.record())
	}
	return s, nil
}

// serverConfig is the server's configuration file: the entrypoint adds nothing that
// servers are compared by.
func (h *Host) serverConfig(c Container) (k3s.Config, error) {
	if source(c, fleet.FileServerConf) != "" {
		dir := filepath.Dir(fleet.FileServerConf)
		if p := h.sameFolder(c, dir, h.at(dir)); p != "" {
			return nil, fmt.Errorf("service %s: k3s's configuration, %s", h.service(fleet.RoleServer), p)
		}
	}
	config, err := h.disk().ReadConfig(fleet.FileServerConf)
	if err != nil {
		return nil, err
	}
	// k3s takes the variable where the file has no name (k3s-facts §1.1).
	if name := c.Env(envNodeName); name != "" && config.Get("node-name") == "" {
		config = config.Merge(k3s.Config{"node-name": {name}})
	}
	return config, nil
}
