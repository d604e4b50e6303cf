package setup

import (
	"encoding/json"
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/status"
)

// Lent is what a server lends a standby: how its k3s runs, and the server token
// (R-K-03). All of it is secret.
type Lent struct {
	Voter k3s.Config
	Token k3s.Secret
}

// Lend reads it off a server, which may be one of the fleet already or not yet.
func Lend(s Seen) (Lent, []status.Problem) {
	u := s.Units[fleet.RoleServer]
	if !u.Loaded || !u.Active {
		return Lent{}, problem(CodeNoK3s, "%s does not run on this host, so it has no server's flags to lend", units[fleet.RoleServer])
	}
	_, c, problems := adopt.Found{Unit: units[fleet.RoleServer], Commands: u.Commands, Env: u.Env, Files: s.Configs[fleet.RoleServer]}.Effective()
	// A server at a lower level runs with flags that would keep a standby at it.
	if problems = append(problems, adopt.Unfit(c)...); len(problems) > 0 {
		return Lent{}, problems
	}
	token := s.Token
	if token == "" {
		token = k3s.Secret(c.Get("token"))
	}
	if token == "" {
		return Lent{}, problem(adopt.CodeNoToken, "this server has no token that a standby could join etcd with")
	}
	delete(c, "config")
	return Lent{Voter: c, Token: token}, nil
}

type lent struct {
	Voter k3s.Config `json:"voter"`
	Token string     `json:"token"`
}

// Encode is for the one that asked, over a way that nobody else reads.
func (l Lent) Encode() ([]byte, error) {
	raw, err := json.Marshal(lent{l.Voter, l.Token.Reveal()})
	if err != nil {
		return nil, fmt.Errorf("what a server lends: %w", err)
	}
	return raw, nil
}

// ParseLent reads it. No error shows what it read.
func ParseLent(raw []byte) (Lent, error) {
	var l lent
	if err := json.Unmarshal(raw, &l); err != nil || l.Token == "" || len(l.Voter) == 0 {
		return Lent{}, fmt.Errorf("what a server lends: %d bytes that are not its flags and its token", len(raw))
	}
	return Lent{l.Voter, k3s.Secret(l.Token)}, nil
}
