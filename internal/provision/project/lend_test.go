package project_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
)

// R-K-03: what one server lends makes another host's files.
func TestAServerLendsWhatAStandbyNeeds(t *testing.T) {
	m := newMachine(t)
	m.setUp(desired(t, fleet.RoleServer, "n1"))
	lent, problems, err := m.Host().Lend(t.Context(), "/srv/k3s")
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if lent.Token.Reveal() != "hush-server" || lent.Voter.Get("agent-token") != "hush-agent" || !slices.Equal(lent.Voter["disable"], []string{"traefik"}) {
		t.Errorf("%v", lent.Voter)
	}
	other := newMachine(t)
	d := desired(t, fleet.RoleAgent, "n4")
	d.Voter, d.Token, d.Docker.AgentToken = lent.Voter, lent.Token, ""
	other.setUp(d)
	if env := other.Read("/srv/k3s/.env"); !strings.Contains(env, "\nK3S_TOKEN=hush-server\n") || !strings.Contains(env, "\nK3S_AGENT_TOKEN=hush-agent\n") {
		t.Error("the tokens are others")
	}
	if config := other.Read("/srv/k3s/k3s/server.yaml"); !strings.Contains(config, "disable:\n- traefik\n") || strings.Contains(config, "hush") {
		t.Errorf("server.yaml:\n%s", config)
	}
}

func TestATokenInAFileIsLent(t *testing.T) {
	m := newMachine(t)
	m.Plant("/srv/k3s/k3s/token", "hush-file\n", 0o600)
	d := desired(t, fleet.RoleServer, "n1")
	d.Token, d.Docker.TokenFile = "", "/etc/rancher/k3s/token"
	m.setUp(d)
	lent, problems, err := m.Host().Lend(t.Context(), "/srv/k3s")
	if err != nil || len(problems) > 0 || lent.Token.Reveal() != "hush-file" {
		t.Error(problems, err)
	}
}

func TestNoServerLendsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"it is stopped":               {func(m *machine) { m.Stop(m.Box("k3s")) }, setup.CodeNoK3s},
		"an .env that cannot be told": {func(m *machine) { m.Plant("/srv/k3s/.env", m.Read("/srv/k3s/.env")+"A=$B\n", 0o600) }, project.CodeEnv},
		"a lower level":               {func(m *machine) { m.Plant("/srv/k3s/k3s/server.yaml", "disable-apiserver: true\n", 0o600) }, "FlagUnsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.setUp(desired(t, fleet.RoleServer, "n1"))
			c.change(m)
			lent, problems, err := m.Host().Lend(t.Context(), "/srv/k3s")
			if err != nil || len(problems) != 1 || problems[0].Code != c.want || lent.Token != "" {
				t.Errorf("%v, %v; want %s", problems, err, c.want)
			}
		})
	}
}
