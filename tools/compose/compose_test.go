package compose

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/exadev/regrade/internal/fleet"
)

const folder = "../../deploy/compose/"

// dotenv is env.example as a host would fill it in.
func dotenv(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(folder + "env.example")
	if err != nil {
		t.Fatal(err)
	}
	filled := map[string]string{
		"K3S_NODE_NAME": "n1", "FLEET_ROLE_INVENTORY_ROLE": "server", "K3S_TOKEN": "t", "K3S_AGENT_SERVER_URL": "https://10.0.0.2:6443",
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		name, _, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if v, ok := filled[name]; ok {
			line = name + "=" + v
		}
		out = append(out, line)
	}
	return out
}

func load(t *testing.T, env []string, files []string, profiles ...string) (*types.Project, error) {
	t.Helper()
	paths := make([]string, 0, len(files))
	for _, f := range files {
		paths = append(paths, filepath.Join(folder, f))
	}
	o, err := cli.NewProjectOptions(paths, cli.WithName("regrade"), cli.WithEnv(env), cli.WithProfiles(profiles), cli.WithWorkingDirectory(folder))
	if err != nil {
		return nil, err
	}
	return o.LoadProject(context.Background())
}

var shipped = []string{"compose.yaml", "rights.yaml"}

func must(t *testing.T, files []string, profiles ...string) *types.Project {
	t.Helper()
	p, err := load(t, dotenv(t), files, profiles...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEachProfileHasItsServicesAndTheDaemonIsInAll(t *testing.T) { // R-X-01, R-C-04, R-D2-02
	for want, profiles := range map[string][]string{
		"regrade-host":               nil,
		"k3s regrade-host":           {"server"},
		"k3s-agent regrade-host":     {"agent"},
		"k3s k3s-agent regrade-host": {"server", "agent"},
	} {
		got := slices.Sorted(maps.Keys(must(t, shipped, profiles...).Services))
		if strings.Join(got, " ") != want {
			t.Errorf("profiles %q: %q, want %s", profiles, got, want)
		}
	}
}

// A switch of the profile, or of the role, makes no container anew.
func TestOneEnvIsTheSameConfigurationForBothRoles(t *testing.T) { // R-C-01, R-C-09
	both := must(t, shipped, "server", "agent")
	k3s, agent := both.Services["k3s"], both.Services["k3s-agent"]
	for name, one := range map[string]*types.Project{"k3s": must(t, shipped, "server"), "k3s-agent": must(t, shipped, "agent")} {
		if a, b := text(t, one.Services[name]), text(t, both.Services[name]); a != b {
			t.Errorf("%s differs with the profile:\n%s\n%s", name, a, b)
		}
	}
	for _, s := range both.Services {
		if a, b := s.Environment.ToMapping(), k3s.Environment.ToMapping(); !maps.Equal(a, b) {
			t.Errorf("%s has other variables: %v, %v", s.Name, a, b)
		}
	}
	// Name, command and profile are all that tells the two apart.
	if k3s.ContainerName != "regrade-k3s" || agent.ContainerName != "regrade-k3s-agent" || k3s.Command[0] != "server" || agent.Command[0] != "agent" {
		t.Errorf("%s %q, %s %q", k3s.ContainerName, k3s.Command, agent.ContainerName, agent.Command)
	}
	agent.Name, agent.ContainerName, agent.Command, agent.Profiles = k3s.Name, k3s.ContainerName, k3s.Command, k3s.Profiles
	if a, b := text(t, k3s), text(t, agent); a != b {
		t.Errorf("the services differ in more:\n%s\n%s", a, b)
	}
}

func text(t *testing.T, s types.ServiceConfig) string {
	t.Helper()
	p := &types.Project{Name: "one", Services: types.Services{s.Name: s}}
	raw, err := p.MarshalYAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTheNodesLabelsComeFromTheEnv(t *testing.T) { // R-185-34
	p, err := load(t, append(dotenv(t), "FLEET_ROLE_ELIGIBLE=true", "FLEET_ROLE_PINNED=true"), shipped, "server", "agent")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"k3s", "k3s-agent"} {
		e := p.Services[name].Environment.ToMapping()
		if e["FLEET_ROLE_ELIGIBLE"] != "true" || e["FLEET_ROLE_PINNED"] != "true" {
			t.Errorf("%s: %v", name, e)
		}
	}
	without := slices.DeleteFunc(dotenv(t), func(l string) bool {
		return strings.HasPrefix(l, "FLEET_ROLE_ELIGIBLE") || strings.HasPrefix(l, "FLEET_ROLE_PINNED")
	})
	if p, err = load(t, without, shipped, "server"); err != nil {
		t.Fatal(err)
	}
	// R-185-35: a kubelet never takes a label off, so none is ever left out.
	if e := p.Services["k3s"].Environment.ToMapping(); e["FLEET_ROLE_ELIGIBLE"] != "false" || e["FLEET_ROLE_PINNED"] != "false" {
		t.Errorf("%v", e)
	}
}

// at gives each mount of a service by its place in the container.
func at(s types.ServiceConfig) map[string]types.ServiceVolumeConfig {
	m := map[string]types.ServiceVolumeConfig{}
	for _, v := range s.Volumes {
		m[v.Target] = v
	}
	return m
}

func TestEveryServiceSeesTheSameFoldersAndOnlyTheDaemonWritesRoles(t *testing.T) { // R-A-01, R-A-02
	p := must(t, shipped, "server", "agent")
	daemon := at(p.Services["regrade-host"])
	for _, name := range []string{"k3s", "k3s-agent"} {
		m := at(p.Services[name])
		for _, dir := range []string{fleet.RoleDir, filepath.Dir(fleet.FileJoining)} {
			if v := m[dir]; v.Type != types.VolumeTypeBind || !v.ReadOnly {
				t.Errorf("%s: %s is %s, read-only %t", name, dir, v.Type, v.ReadOnly)
			}
			if v := daemon[dir]; v.Type != types.VolumeTypeBind || v.ReadOnly || v.Source != m[dir].Source {
				t.Errorf("the daemon's %s is %s of %s, read-only %t", dir, v.Type, v.Source, v.ReadOnly)
			}
		}
		for _, dir := range []string{fleet.DefaultDataDir, "/etc/rancher/node", "/var/lib/tailscale"} {
			if v := m[dir]; v.Type != types.VolumeTypeVolume || v.ReadOnly || v.Source != daemon[dir].Source || v.Source == "" {
				t.Errorf("%s: %s is %s %s, the daemon's %s", name, dir, v.Type, v.Source, daemon[dir].Source)
			}
		}
		// What the image declares as volumes has a name: none is anonymous.
		for _, dir := range []string{"/var/lib/kubelet", "/var/lib/cni", "/var/log"} {
			if m[dir].Source == "" {
				t.Errorf("%s: %s is an anonymous volume", name, dir)
			}
		}
		if m["/etc/rancher/k3s"].Source == "" || m["/etc/rancher/k3s"].Source != daemon["/etc/rancher/k3s"].Source {
			t.Errorf("%s: its configuration is in %s", name, m["/etc/rancher/k3s"].Source)
		}
		for target, v := range m {
			if v.Type == types.VolumeTypeBind && filepath.Ext(v.Source) != "" && filepath.Ext(v.Source) != ".d" {
				t.Errorf("%s: %s looks like a file: %s", name, target, v.Source)
			}
		}
	}
	if m := daemon["/var/run/docker.sock"]; m.Source != "/var/run/docker.sock" {
		t.Errorf("the engine's socket is %s", m.Source)
	}
}

func TestSeparateIdentitiesAreOneFileAndTheDaemonSeesAllFour(t *testing.T) { // R-D2-05, R-N-09
	p := must(t, append(slices.Clone(shipped), "identity.yaml"), "server", "agent")
	k3s, agent, daemon := at(p.Services["k3s"]), at(p.Services["k3s-agent"]), at(p.Services["regrade-host"])
	seen := map[string]bool{}
	for _, v := range daemon {
		seen[v.Source] = true
	}
	for dir, name := range map[string][2]string{
		"/etc/rancher/node": {"k3s-node", "k3s-agent-node"}, "/var/lib/tailscale": {"k3s-tailscale-data", "k3s-agent-tailscale-data"},
	} {
		if k3s[dir].Source != name[0] || agent[dir].Source != name[1] || !seen[name[0]] || !seen[name[1]] {
			t.Errorf("%s: %s and %s, the daemon sees %v", dir, k3s[dir].Source, agent[dir].Source, seen)
		}
	}
	if len(p.Services["k3s"].Volumes) != len(p.Services["k3s-agent"].Volumes) {
		t.Error("a mount was added in place of one that was replaced")
	}
	if k3s[fleet.DefaultDataDir].Source != agent[fleet.DefaultDataDir].Source {
		t.Error("the data folder is shared in any case")
	}
}

func TestHowTheContainersAreStartedAndStopped(t *testing.T) { // k3s-facts §12
	p := must(t, shipped, "server", "agent")
	for name, s := range p.Services {
		if s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s: restart %s", name, s.Restart)
		}
		if s.Privileged {
			t.Errorf("%s is privileged", name)
		}
		if s.Logging == nil || s.Logging.Driver != "local" {
			t.Errorf("%s: nothing bounds its log: %+v", name, s.Logging)
		}
		if s.NetworkMode != "host" || s.Hostname != "" {
			t.Errorf("%s: network %s, host name %s", name, s.NetworkMode, s.Hostname)
		}
	}
	for _, name := range []string{"k3s", "k3s-agent"} {
		s := p.Services[name]
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < 30*time.Second {
			t.Errorf("%s: killed after %v", name, s.StopGracePeriod)
		}
		if strings.Join(s.Entrypoint, " ") != "/usr/local/bin/regrade entrypoint" || len(s.Command) != 1 {
			t.Errorf("%s: %q %q", name, s.Entrypoint, s.Command)
		}
		if h := s.HealthCheck; h == nil || strings.Join(h.Test, " ") != "CMD /usr/local/bin/regrade entrypoint health" || h.Timeout == nil || time.Duration(*h.Timeout) < time.Minute {
			t.Errorf("%s: health %+v", name, h)
		}
		// Who restarts what is unhealthy kills no k3s in its stop.
		if got := s.Labels["autoheal.stop.timeout"]; s.StopGracePeriod == nil || got != fmt.Sprint(time.Duration(*s.StopGracePeriod).Seconds()) {
			t.Errorf("%s: autoheal gives it %q s", name, got)
		}
		if !slices.Equal(s.Tmpfs, []string{"/run", "/var/run"}) {
			t.Errorf("%s: tmpfs %q", name, s.Tmpfs)
		}
		for _, c := range []string{"SYS_ADMIN", "NET_ADMIN", "SYS_RESOURCE", "SYS_PTRACE", "SYSLOG"} {
			if !slices.Contains(s.CapAdd, c) {
				t.Errorf("%s lacks %s", name, c)
			}
		}
		for _, c := range []string{"ALL", "SYS_MODULE"} {
			if slices.Contains(s.CapAdd, c) {
				t.Errorf("%s has %s", name, c)
			}
		}
	}
	if len(p.Services["regrade-host"].CapAdd) != 0 {
		t.Error("the daemon has capabilities that it does not need")
	}
}

// The lab replaces the rights and nothing else, and no more of them than it must.
func TestTheLabDiffersInItsRightsAlone(t *testing.T) {
	ours, lab := must(t, shipped, "server", "agent"), must(t, []string{"compose.yaml", "../../lab/compose/rights.yaml"}, "server", "agent")
	for name := range ours.Services {
		a, b := ours.Services[name], lab.Services[name]
		if gone := slices.DeleteFunc(slices.Clone(a.CapAdd), func(c string) bool { return slices.Contains(b.CapAdd, c) }); len(a.CapAdd) > 0 && !slices.Equal(gone, []string{"SYS_RESOURCE"}) {
			t.Errorf("%s: the lab goes without %q", name, gone)
		}
		a.CapAdd, a.Ulimits = b.CapAdd, b.Ulimits
		if x, y := text(t, a), text(t, b); x != y {
			t.Errorf("%s differs in more:\n%s\n%s", name, x, y)
		}
	}
}

func TestAHostWithoutWhatItNeedsIsRefusedWithTheVariablesName(t *testing.T) { // R-228-14
	for _, name := range []string{"K3S_NODE_NAME", "K3S_AGENT_SERVER_URL", "FLEET_ROLE_INVENTORY_ROLE", "K3S_IMAGE", "REGRADE_IMAGE"} {
		env := slices.DeleteFunc(dotenv(t), func(l string) bool { return strings.HasPrefix(l, name+"=") })
		if _, err := load(t, env, shipped, "server"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

var used = regexp.MustCompile(`\$\{([A-Z0-9_]+)`)

func TestEveryVariableIsInTheExampleWithAWordAndNoOther(t *testing.T) {
	names := map[string]bool{"COMPOSE_FILE": true}
	for _, f := range append(slices.Clone(shipped), "identity.yaml") {
		raw, err := os.ReadFile(folder + f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range used.FindAllStringSubmatch(string(raw), -1) {
			names[m[1]] = true
		}
	}
	raw, err := os.ReadFile(folder + "env.example")
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		name, _, is := strings.Cut(line, "=")
		switch {
		case line == "":
			said = false
		case strings.HasPrefix(line, "#"):
			said = true
		case !is || !names[name]:
			t.Errorf("%s: nothing takes it", line)
		case !said:
			t.Errorf("%s: nothing says what it is", name)
		default:
			delete(names, name)
		}
	}
	for name := range names {
		t.Errorf("env.example lacks %s", name)
	}
}

// Debian's Docker Compose, which reads the files by another schema.
func TestDockerCompose1Reads(t *testing.T) {
	program, err := exec.LookPath("docker-compose")
	if err != nil {
		t.Skip("docker-compose is not installed")
	}
	if out, err := exec.Command(program, "version", "--short").Output(); err != nil || !strings.HasPrefix(string(out), "1.") {
		t.Skipf("docker-compose is %s %v", out, err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "image"), os.DirFS(folder+"image")); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(slices.Clone(shipped), "identity.yaml") {
		raw, err := os.ReadFile(folder + f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := strings.Join(dotenv(t), "\n") + "\n"
	for _, files := range []string{"compose.yaml:rights.yaml", "compose.yaml:rights.yaml:identity.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(strings.Replace(env, "COMPOSE_FILE=compose.yaml:rights.yaml", "COMPOSE_FILE="+files, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "--profile", "server", "--profile", "agent", "config", "--services")
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || len(got) != 3 || !slices.Contains(got, "k3s-agent") {
			t.Errorf("%s: %v\n%s", files, err, out)
		}
	}
}
