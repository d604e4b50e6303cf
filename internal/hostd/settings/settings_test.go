package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
)

const least = "node: n1\nservers: [\"https://10.0.0.2:6443\"]\n"

func TestTheLeastFileTakesTheDefaults(t *testing.T) {
	h, err := settings.Parse([]byte(least))
	if err != nil {
		t.Fatal(err)
	}
	if h.Namespace != fleet.DefaultNamespace || time.Duration(h.Period) != 15*time.Second || h.ServerConfig != fleet.FileServerConf || h.Kubeconfig != fleet.FileKubeconfig {
		t.Errorf("%+v", h)
	}
}

func TestADockerHostNeedsNoMoreThanItsPlatform(t *testing.T) {
	h, err := settings.Parse([]byte(least + "platform: docker\ndocker: {project: fleet}\n"))
	if err != nil || h.Platform != settings.PlatformDocker || h.Docker.Project != "fleet" || h.Docker.ServerService != "k3s" || len(h.Docker.Identity) != 2 {
		t.Errorf("%+v %v", h, err)
	}
}

func TestDurationsAreSecondsOrText(t *testing.T) {
	h, err := settings.Parse([]byte(least + "period: 2\noperation-timeout: 1m\n"))
	if err != nil || time.Duration(h.Period) != 2*time.Second || time.Duration(h.OperationTimeout) != time.Minute {
		t.Errorf("%v %v %v", h.Period, h.OperationTimeout, err)
	}
}

func TestWrongSettingsAreNamedByTheirKey(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"no node":                            {"servers: [\"https://a:6443\"]", "node:"},
		"a node in capitals":                 {"node: N1\nservers: [\"https://a:6443\"]", "node:"},
		"no servers":                         {"node: n1", "servers:"},
		"a server that is no URL":            {"node: n1\nservers: [\"https://a:6443\", \"b:6443\"]", "servers[1]:"},
		"an unknown key":                     {least + "perod: 3s", "perod"},
		"a period that is too short":         {least + "period: 10ms", "period:"},
		"a duration that is none":            {least + "period: soon", "soon"},
		"a prefix without a slash":           {least + "label-prefix: x.example", "label-prefix:"},
		"a relative path":                    {least + "kubeconfig: k", "kubeconfig:"},
		"a unit that is none":                {least + "server-unit: k3s", "server-unit:"},
		"one unit for both":                  {least + "agent-unit: k3s.service", "agent-unit:"},
		"one configuration for both":         {least + "agent-config: /etc/rancher/k3s/server.yaml", "agent-config:"},
		"a platform":                         {least + "platform: podman", "platform:"},
		"a command that is missing":          {least + "platform: command\ncommand: {levels: [/l], current-level: [/c]}", "command.apply-level:"},
		"a command by a bare name":           {least + "platform: command\ncommand: {levels: [l], current-level: [/c], apply-level: [/a]}", "command.levels:"},
		"a command without an end":           {least + "platform: command\ncommand: {levels: [/l], current-level: [/c], apply-level: [/a], timeout: 1h}", "command.timeout:"},
		"another data folder":                {least + "platform: docker\ndata-dir: /data", "data-dir:"},
		"a project in capitals":              {least + "platform: docker\ndocker: {project: Runner}", "docker.project:"},
		"a socket as a URL":                  {least + "platform: docker\ndocker: {socket: \"unix:///x\"}", "docker.socket:"},
		"one service for both":               {least + "platform: docker\ndocker: {agent-service: k3s}", "docker.agent-service:"},
		"a service with a space":             {least + "platform: docker\ndocker: {server-service: a b}", "docker.server-service:"},
		"no identity":                        {least + "platform: docker\ndocker: {identity: []}", "docker.identity:"},
		"an identity in another":             {least + "platform: docker\ndocker: {identity: [/etc/rancher, /etc/rancher/node]}", "docker.identity[1]:"},
		"the data as an identity":            {least + "platform: docker\ndocker: {identity: [/var/lib/rancher]}", "docker.identity[0]:"},
		"a key of docker":                    {least + "platform: docker\ndocker: {projekt: a}", "projekt"},
		"a cooldown as short as the window":  {least + "levels: {cooldown: 120s}", "levels.cooldown:"},
		"a period too long for the window":   {least + "period: 60s\nlevels: {enabled: true}", "levels.period:"},
		"calm that is no calm":               {least + "levels: {calm-full: 6}", "levels.calm-full:"},
		"a level that gives up the vote":     {least + "levels: {lowest: agent}", "levels.lowest:"},
		"a way up that is none":              {least + "levels: {step-up: yes}", "levels.step-up:"},
		"an even number of voters":           {least + "levels: {voters: 4}", "levels.voters:"},
		"one credential for both halves":     {least + "levels: {kubeconfig: /etc/rancher/k3s/fleet-role-actuator.kubeconfig}", "levels.kubeconfig:"},
		"no pressure file":                   {least + "levels: {pressure: []}", "levels.pressure:"},
		"a pressure file by a relative path": {least + "levels: {pressure: [x]}", "levels.pressure[0]:"},
		"a selector of all pods":             {least + "levels: {runner-selector: \"\"}", "levels.runner-selector:"},
		"a floor beyond any memory":          {least + "levels: {floor-mib: 99999999999}", "levels.floor-mib:"},
		"a node named as a swap's holder":    {"node: fleet-role\nservers: [\"https://a:6443\"]\nlevels: {enabled: true}", "node:"},
		"a log level":                        {least + "log-level: loud", "log-level:"},
		"no YAML":                            {"node: [", "yaml"},
		"a list":                             {"- a", "json"},
	} {
		if _, err := settings.Parse([]byte(c.yaml)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to name %q", name, err, c.want)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := settings.Parse([]byte("node: X\nperiod: 0s\n"))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("%v", err)
	}
}

func TestJoinURLs(t *testing.T) { // R-D1-13
	m, err := settings.ParseJoin([]byte("n1: https://10.0.0.1:6443\nn2: https://n2.example:6443\n"))
	if err != nil || len(m) != 2 {
		t.Error(m, err)
	}
	for _, bad := range []string{"n1: http://a:6443", "N1: https://a:6443", "n1: [x]", "n1: \"\""} {
		if _, err := settings.ParseJoin([]byte(bad)); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	root := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := settings.Load(root); err == nil || !strings.Contains(err.Error(), "host.yaml") {
		t.Error(err)
	}
	if l, err := settings.LoadLayout(root); err != nil || l.ServerUnit != "k3s.service" {
		t.Errorf("a start condition needs no settings: %+v %v", l, err)
	}
	write(fleet.FileHostConfig, least+"data-dir: /data\nunknown: 1\n")
	if l, err := settings.LoadLayout(root); err != nil || l.DataDir != "/data" {
		t.Errorf("a start condition looks at what it needs: %+v %v", l, err)
	}
	write(fleet.FileHostConfig, "node: [n1]\nservers: 7\nperiod: soon\nmin-free-mib: much\ndata-dir: /data\n")
	if l, err := settings.LoadLayout(root); err != nil || l.DataDir != "/data" {
		t.Errorf("a key that a start condition does not need keeps nothing from starting: %+v %v", l, err)
	}
	write(fleet.FileHostConfig, least+"data-dir: /data\nunknown: 1\n")
	if _, err := settings.Load(root); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Error(err)
	}
	write(fleet.FileHostConfig, least)
	if _, err := settings.Load(root); err == nil || !strings.Contains(err.Error(), "join.yaml") {
		t.Error(err)
	}
	write(fleet.FileJoinConfig, "n1: https://a:6443\n")
	if h, err := settings.Load(root); err != nil || h.Join["n1"] == "" {
		t.Error(h, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(least))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := settings.Parse(raw)
		if err == nil && (h.Node == "" || len(h.Servers) == 0 || h.Period <= 0) {
			t.Errorf("accepted: %+v", h)
		}
	})
}

// A slow daemon whose levels are off is not refused for their window.
func TestLevelsThatAreOffHoldUpNothing(t *testing.T) {
	h, err := settings.Parse([]byte(least + "period: 5m\n"))
	if err != nil || h.Levels.Enabled || h.Levels.StepUp != "manual" {
		t.Errorf("%+v, %v", h.Levels, err)
	}
	h, err = settings.Parse([]byte(least + "levels: {enabled: true, some: 0, full: 0, floor-mib: 512, calm-floor-mib: 1024, step-up: automatic}\n"))
	if err != nil || h.Levels.Policy(15*time.Second).Gap != 45*time.Second || h.Levels.Cooldown != settings.Duration(10*time.Minute) {
		t.Errorf("%+v, %v", h.Levels, err)
	}
}
