package project

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
)

// maxToken is more than any token is long.
const maxToken = 8 << 10

// Lend reads off a server what a standby's server is made of: its configuration, and the
// tokens of its .env (R-K-03). A server that does not run has nothing to lend.
func (h Host) Lend(ctx context.Context, folder string) (setup.Lent, []status.Problem, error) {
	fail := func(err error) (setup.Lent, []status.Problem, error) {
		return setup.Lent{}, nil, fmt.Errorf("what this server lends: %w", err)
	}
	e, _, err := h.env(folder)
	if err != nil {
		return fail(err)
	}
	if odd := e.Odd(); len(odd) > 0 {
		return setup.Lent{}, problem(CodeEnv, "%s: %s: write it out", in(folder, fileEnv), strings.Join(odd, "; ")), nil
	}
	socket := e.Get(varSocket)
	if socket == "" {
		socket = docker.DefaultSocket
	}
	engine, err := h.Engine(socket)
	if err != nil {
		return fail(err)
	}
	s := Seen{Boxes: map[string]*Box{}}
	if err := h.containers(ctx, engine, e.Get(varProject), folder, &s); err != nil {
		return fail(err)
	}
	if role, both := s.running(); both || role != fleet.RoleServer {
		return setup.Lent{}, problem(setup.CodeNoK3s, "no k3s server runs in the project in %s, so it has no server's flags to lend", folder), nil
	}
	dir := in(folder, meant(varK3sDir, e.Get(varK3sDir)))
	flags, err := k3s.Disk{Root: h.Root}.ReadConfig(filepath.Join(dir, configs[fleet.RoleServer]))
	if err != nil {
		return fail(err)
	}
	if problems := adopt.Unfit(flags); len(problems) > 0 {
		return setup.Lent{}, problems, nil
	}
	token := k3s.Secret(e.Get(container.EnvToken))
	if file := e.Get(container.EnvTokenFile); file != "" {
		// A path of the containers: of what is mounted there only the folder of k3s's files is
		// looked into.
		rest, ok := strings.CutPrefix(filepath.Clean(file), filepath.Dir(fleet.FileServerConf)+"/")
		if !ok {
			return setup.Lent{}, problem(adopt.CodeNoToken, "%s names a file that is not in %s", container.EnvTokenFile, filepath.Dir(fleet.FileServerConf)), nil
		}
		raw, err := obs.ReadSecret(h.at(filepath.Join(dir, rest)), maxToken)
		if err != nil {
			return fail(fmt.Errorf("%s: %w", container.EnvTokenFile, err))
		}
		token = k3s.Secret(strings.TrimSpace(string(raw)))
	}
	if token == "" {
		return setup.Lent{}, problem(adopt.CodeNoToken, "the .env of this server has no token that a standby could join etcd with"), nil
	}
	if e.Get(container.EnvAgentTokenFile) != "" {
		return setup.Lent{}, problem(adopt.CodeNoToken, "the agents' token is in a file, %s: put it into %s on the servers", container.EnvAgentTokenFile, container.EnvAgentToken), nil
	}
	if agents := e.Get(container.EnvAgentToken); agents != "" {
		flags = flags.Merge(k3s.Config{"agent-token": {agents}})
	}
	return setup.Lent{Voter: flags, Token: token}, nil, nil
}
