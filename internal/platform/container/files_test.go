package container_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/container"
)

type box struct {
	t    *testing.T
	root string
	env  map[string]string
}

func (b box) files() *container.Files {
	f := container.New(b.root, func(name string) string { return b.env[name] })
	f.SetBootID(func() (string, error) { return "boot-1", nil })
	return f
}

func (b box) plant(path, content string) {
	b.t.Helper()
	full := filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func TestWhereARoleJoinsAndWithWhat(t *testing.T) { // R-A-08, R-A-14, R-228-14
	const srv, agt = fleet.RoleServer, fleet.RoleAgent
	for name, c := range map[string]struct {
		role    fleet.Role
		files   map[string]string
		env     map[string]string
		url     string
		token   string
		problem string
	}{
		"nothing":                                     {role: srv},
		"the variable":                                {role: srv, env: map[string]string{"K3S_JOIN_SERVER_URL": "https://v:6443", "K3S_TOKEN": "t"}, url: "https://v:6443", token: "t"},
		"the file before the variable":                {role: srv, files: map[string]string{fleet.FileJoinURL: "https://f:6443\n"}, env: map[string]string{"K3S_JOIN_SERVER_URL": "https://v:6443"}, url: "https://f:6443"},
		"an empty file is none":                       {role: srv, files: map[string]string{fleet.FileJoinURL: "\n"}, env: map[string]string{"K3S_JOIN_SERVER_URL": "https://v:6443"}, url: "https://v:6443"},
		"a file that is no URL is a problem":          {role: srv, files: map[string]string{fleet.FileJoinURL: "v\n"}, env: map[string]string{"K3S_JOIN_SERVER_URL": "https://v:6443"}, problem: `join URL "v"`},
		"the server's own configuration comes last":   {role: srv, files: map[string]string{fleet.FileServerConf: "server: https://c:6443\ntoken: ct\n"}, env: map[string]string{"K3S_TOKEN": "t"}, url: "https://c:6443", token: "ct"},
		"K3S_URL turns no server into one that joins": {role: srv, env: map[string]string{"K3S_URL": "https://u:6443"}},
		"an agent takes it":                           {role: agt, env: map[string]string{"K3S_URL": "https://u:6443"}, url: "https://u:6443"},
		"the agent's own variable before it":          {role: agt, env: map[string]string{"K3S_URL": "https://u:6443", "K3S_AGENT_SERVER_URL": "https://a:6443", "K3S_JOIN_SERVER_URL": "https://v:6443"}, url: "https://a:6443"},
		"the agent's file before that":                {role: agt, files: map[string]string{fleet.FileAgentURL: "https://f:6443\n", fleet.FileJoinURL: "https://s:6443\n"}, env: map[string]string{"K3S_AGENT_SERVER_URL": "https://a:6443"}, url: "https://f:6443"},
		"an agent's token, where there is one":        {role: agt, env: map[string]string{"K3S_TOKEN": "s", "K3S_AGENT_TOKEN": "a"}, token: "a"},
		"else the one":                                {role: agt, env: map[string]string{"K3S_TOKEN": "s"}, token: "s"},
		"a token file":                                {role: srv, files: map[string]string{"/etc/rancher/k3s/token": "ft\n"}, env: map[string]string{"K3S_TOKEN": "s", "K3S_TOKEN_FILE": "/etc/rancher/k3s/token"}, token: "ft"},
		"a token file that is not there":              {role: srv, env: map[string]string{"K3S_TOKEN_FILE": "/etc/rancher/k3s/token"}, problem: "k3s token file"},
		"a configuration that cannot be read":         {role: srv, files: map[string]string{fleet.FileServerConf: "["}, problem: "join of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			b := box{t, t.TempDir(), c.env}
			for path, content := range c.files {
				b.plant(path, content)
			}
			j, err := b.files().Join(c.role)
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("%v, want %s", err, c.problem)
				}
				return
			}
			if err != nil || j.URL != c.url || j.Token.Reveal() != c.token {
				t.Errorf("%q %q %v, want %q %q", j.URL, j.Token.Reveal(), err, c.url, c.token)
			}
		})
	}
}

func TestTheStartRuleSeesTheContainersJoin(t *testing.T) {
	b := box{t, t.TempDir(), map[string]string{"K3S_TOKEN": "t", "K3S_JOIN_SERVER_URL": "https://v:6443"}}
	b.plant(fleet.FileRole, "server\n")
	b.plant(fleet.FileJoining, `{"swap":"20261129T120000Z-a-d","boot_id":"boot-1"}`)
	f, err := b.files().Role()
	if err != nil || f.JoinURL != "https://v:6443" || !f.Token || f.Role != fleet.RoleServer || !f.JoiningNow() {
		t.Errorf("%+v %v", f, err)
	}
	b.plant(fleet.FileJoinURL, "nonsense")
	if f, err := b.files().Role(); err != nil || f.JoinURL != "" || f.Token {
		t.Errorf("what cannot be read names nothing: %+v %v", f, err)
	}
}

func TestK3sIsGivenNothingThatDecidesOverOurHeads(t *testing.T) {
	b := box{t, t.TempDir(), map[string]string{"K3S_TOKEN": "s", "K3S_AGENT_TOKEN_FILE": "/a"}}
	given := []string{"K3S_URL=u", "K3S_TOKEN=s", "K3S_CLUSTER_INIT=true", "K3S_CONFIG_FILE=c", "K3S_DATA_DIR=d", "K3S_AGENT_TOKEN_FILE=/a", "K3S_NODE_NAME=n", "HTTPS_PROXY=p", "K3S_VPN_AUTH="}
	if got := b.files().Environ(fleet.RoleServer, given); !slices.Equal(got, []string{"K3S_AGENT_TOKEN_FILE=/a", "K3S_NODE_NAME=n", "HTTPS_PROXY=p", "K3S_TOKEN=s"}) {
		t.Errorf("%q", got)
	}
	if got := b.files().Environ(fleet.RoleAgent, given); !slices.Equal(got, []string{"K3S_AGENT_TOKEN_FILE=/a", "K3S_NODE_NAME=n", "HTTPS_PROXY=p", "K3S_TOKEN_FILE=/a"}) {
		t.Errorf("%q", got)
	}
}

func TestTheLevelAndWhatTheServerStartedWith(t *testing.T) { // R-112-15, R-112-16
	b := box{t, t.TempDir(), nil}
	f := b.files()
	if l, err := f.Level(); err != nil || l != fleet.LevelFull {
		t.Errorf("no file: %q %v", l, err)
	}
	if l, err := f.Started(); err != nil || l != "" {
		t.Errorf("no note: %q %v", l, err)
	}
	for _, level := range []fleet.Level{fleet.LevelEtcdOnly, fleet.LevelControlPlane, fleet.LevelFull} {
		if err := f.SetLevel(level); err != nil {
			t.Fatal(err)
		}
		if l, err := f.Level(); err != nil || l != level {
			t.Errorf("%q %v, want %q", l, err, level)
		}
		if err := f.SetStarted(level); err != nil {
			t.Fatal(err)
		}
		if l, err := f.Started(); err != nil || l != level {
			t.Errorf("noted %q %v, want %q", l, err, level)
		}
	}
	if err := f.SetLevel("half"); err == nil {
		t.Error("a level that is none was written")
	}
	b.plant(fleet.DefaultDataDir+"/"+fleet.FileLevel, "half\n")
	if _, err := f.Level(); err == nil || !strings.Contains(err.Error(), "regrade-level") {
		t.Errorf("%v", err)
	}
}
