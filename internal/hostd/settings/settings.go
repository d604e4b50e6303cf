// Package settings reads the host daemon's two files.
//
// /etc/regrade/host.yaml, every key but node and servers with a default:
//
//	node: n1                    # this host's Node, in lower case
//	servers:                    # API servers to try in this order, the other hosts' first
//	  - https://10.0.0.2:6443   # each is asked /readyz with the daemon's credential
//	namespace: github-runner-platform
//	actuator-configmap: fleet-role-actuators
//	label-prefix: github-runner.exadev.com/
//	kubeconfig: /etc/rancher/k3s/fleet-role-actuator.kubeconfig
//	period: 15s                 # 1s to 5m; how often an idle host looks and beats
//	operation-timeout: 300s     # 10s to 1h; a step-down's bound
//	lock: /var/lib/rancher/k3s/fleet-role.lock
//	k3s: /usr/local/bin/k3s
//	data-dir: /var/lib/rancher/k3s
//	server-unit: k3s.service
//	agent-unit: k3s-agent.service
//	server-config: /etc/rancher/k3s/server.yaml
//	agent-config: /etc/rancher/k3s/agent.yaml
//	allowed-flags: []           # server flags that may differ from the other servers'
//	min-free-mib: 2048          # free disk that a standby must have
//	log-format: text            # or json
//	log-level: info             # debug, info, warn, error
//	platform: systemd           # or docker: k3s in the containers of a Compose project; or command
//	docker:                     # where the platform is docker, all with defaults
//	  socket: /var/run/docker.sock
//	  project:                  # the Compose project's name; empty: the daemon's own container's, github-runner on a host
//	  server-service: k3s
//	  agent-service: k3s-agent
//	  k3s: /bin/k3s             # in the containers
//	  identity:                 # folders of a k3s container that go with the role, the node password's first
//	    - /etc/rancher/node
//	    - /var/lib/tailscale
//
//	command:                    # where the platform is command: native, and programs apply the levels
//	  levels: [/path/levels]    # prints the levels that the host has
//	  current-level: [/path/current]
//	  apply-level: [/path/apply] # is given the level, and restarts k3s into it
//	  timeout: 120s             # of apply-level
//	levels:                     # the level half: a server steps down under pressure; off
//	  enabled: false
//	  kubeconfig: /etc/rancher/k3s/fleet-level.kubeconfig
//	  voters: 3                 # as the controller's target
//	  step-up: manual           # or automatic
//	  lowest: etcd-only         # or control-plane
//	  window: 120s              # 10s to 1h: how long memory is short before a step down
//	  cooldown: 600s            # longer than the window: after a step, and of plenty before one up
//	  some: 20                  # percent of the last minute in which some task waited for memory
//	  full: 5                   # in which every task did; 0 for not judged
//	  floor-mib: 256            # available memory; 0 for not judged
//	  calm-some: 5              # what a step up asks for
//	  calm-full: 1
//	  calm-floor-mib: 640
//	  pressure:                 # the first of these that exists is read
//	    - /proc/pressure/memory
//	  runner-selector: actions-ephemeral-runner=True   # pods that no step cuts
//
// On docker the units and k3s's binary on the host have no meaning, and the data
// folder and the two configuration files are where the containers have them, mounted
// in the daemon's at the same paths.
//
// /etc/regrade/join.yaml is a map from each server's and eligible host's node
// name to its join URL, https://<host>:6443 (R-D1-13).
//
// Unknown keys are refused; a value that is wrong is named by its key, all of
// them at once, and nothing is done.
package settings

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/memory"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/native"
)

// Duration is "15s" or a whole number of seconds.
type Duration time.Duration

// UnmarshalJSON reads it.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		*d = Duration(time.Duration(n) * time.Second)
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%s: want a duration like 15s", raw)
	}
	*d = Duration(v)
	return nil
}

// Host is host.yaml, with defaults.
type Host struct {
	Node             string   `json:"node"`
	Servers          []string `json:"servers"`
	Namespace        string   `json:"namespace"`
	ConfigMap        string   `json:"actuator-configmap"`
	Prefix           string   `json:"label-prefix"`
	Kubeconfig       string   `json:"kubeconfig"`
	Period           Duration `json:"period"`
	OperationTimeout Duration `json:"operation-timeout"`
	Lock             string   `json:"lock"`
	K3s              string   `json:"k3s"`
	DataDir          string   `json:"data-dir"`
	ServerUnit       string   `json:"server-unit"`
	AgentUnit        string   `json:"agent-unit"`
	ServerConfig     string   `json:"server-config"`
	AgentConfig      string   `json:"agent-config"`
	AllowedFlags     []string `json:"allowed-flags"`
	MinFreeMiB       uint64   `json:"min-free-mib"`
	LogFormat        string   `json:"log-format"`
	LogLevel         string   `json:"log-level"`
	Platform         Platform `json:"platform"`
	Docker           Docker   `json:"docker"`
	Levels           Levels   `json:"levels"`
	Command          Command  `json:"command"`

	// Join is join.yaml.
	Join map[string]string `json:"-"`
}

// Platform is what runs k3s on a host.
type Platform string

// Platforms.
const (
	PlatformSystemd Platform = "systemd"
	PlatformDocker  Platform = "docker"
	PlatformCommand Platform = "command"
)

// Command are the programs of a host whose owner applies its levels.
type Command struct {
	Levels       []string `json:"levels"`
	CurrentLevel []string `json:"current-level"`
	ApplyLevel   []string `json:"apply-level"`
	Timeout      Duration `json:"timeout"`
}

// Docker are the settings of a host whose k3s runs in containers.
type Docker struct {
	Socket        string   `json:"socket"`
	Project       string   `json:"project"`
	ServerService string   `json:"server-service"`
	AgentService  string   `json:"agent-service"`
	K3s           string   `json:"k3s"`
	Identity      []string `json:"identity"`
}

// Levels are the settings of the level half.
type Levels struct {
	Enabled        bool         `json:"enabled"`
	Kubeconfig     string       `json:"kubeconfig"`
	Voters         int          `json:"voters"`
	StepUp         level.StepUp `json:"step-up"`
	Lowest         fleet.Level  `json:"lowest"`
	Window         Duration     `json:"window"`
	Cooldown       Duration     `json:"cooldown"`
	Some           float64      `json:"some"`
	Full           float64      `json:"full"`
	FloorMiB       uint64       `json:"floor-mib"`
	CalmSome       float64      `json:"calm-some"`
	CalmFull       float64      `json:"calm-full"`
	CalmFloorMiB   uint64       `json:"calm-floor-mib"`
	Pressure       []string     `json:"pressure"`
	RunnerSelector string       `json:"runner-selector"`
}

// Policy is the rule that they are, with readings a period apart.
func (l Levels) Policy(period time.Duration) level.Policy {
	return level.Policy{
		Over:   level.Limits{SomeAvg60: l.Some, FullAvg60: l.Full, AvailableFloorBytes: l.FloorMiB << 20},
		Calm:   level.Limits{SomeAvg60: l.CalmSome, FullAvg60: l.CalmFull, AvailableFloorBytes: l.CalmFloorMiB << 20},
		Window: time.Duration(l.Window), Cooldown: time.Duration(l.Cooldown), StepUp: l.StepUp, Lowest: l.Lowest,
		Gap: 3 * period, // as everywhere: silent for longer than three periods is unknown
	}
}

func defaultLevels() Levels {
	p := level.DefaultPolicy()
	return Levels{
		Kubeconfig: fleet.FileLevelKube, Voters: 3, StepUp: p.StepUp, Lowest: p.Lowest, Window: Duration(p.Window), Cooldown: Duration(p.Cooldown),
		Some: p.Over.SomeAvg60, Full: p.Over.FullAvg60, FloorMiB: p.Over.AvailableFloorBytes >> 20,
		CalmSome: p.Calm.SomeAvg60, CalmFull: p.Calm.FullAvg60, CalmFloorMiB: p.Calm.AvailableFloorBytes >> 20,
		Pressure: []string{memory.DefaultPressure}, RunnerSelector: fleet.DefaultRunnerSelector,
	}
}

// Defaults are the settings that a file need not name.
func Defaults() Host {
	l := native.Layout{}.Defaults()
	return Host{
		Namespace: fleet.DefaultNamespace, ConfigMap: fleet.ConfigMapActuators, Prefix: fleet.DefaultPrefix,
		Kubeconfig: fleet.FileKubeconfig, Period: Duration(15 * time.Second), OperationTimeout: Duration(300 * time.Second),
		Lock: fleet.FileHostLock, K3s: "/usr/local/bin/k3s", DataDir: l.DataDir, ServerUnit: l.ServerUnit, AgentUnit: l.AgentUnit,
		ServerConfig: l.ServerConfig, AgentConfig: l.AgentConfig, MinFreeMiB: 2048, LogFormat: "text", LogLevel: "info",
		Platform: PlatformSystemd,
		Docker: Docker{
			Socket: docker.DefaultSocket, ServerService: docker.DefaultServerService, AgentService: docker.DefaultAgentService,
			K3s: docker.DefaultK3s, Identity: docker.DefaultIdentity(),
		},
		Levels:  defaultLevels(),
		Command: Command{Timeout: Duration(120 * time.Second)},
	}
}

// Layout is where things are on the host.
func (h Host) Layout(root string) native.Layout {
	return native.Layout{Root: root, DataDir: h.DataDir, ServerUnit: h.ServerUnit, AgentUnit: h.AgentUnit, ServerConfig: h.ServerConfig, AgentConfig: h.AgentConfig}
}

// Keys are regrade's labels and annotations under the configured prefix.
func (h Host) Keys() (fleet.Keys, error) { return fleet.NewKeys(h.Prefix) }

// maxFile bounds a settings file.
const maxFile = 1 << 20

// Load reads both files below root.
func Load(root string) (Host, error) {
	raw, err := read(root, fleet.FileHostConfig)
	if err != nil {
		return Host{}, err
	}
	h, err := Parse(raw)
	if err != nil {
		return Host{}, fmt.Errorf("%s: %w", fleet.FileHostConfig, err)
	}
	raw, err = read(root, fleet.FileJoinConfig)
	if err != nil {
		return Host{}, err
	}
	if h.Join, err = ParseJoin(raw); err != nil {
		return Host{}, fmt.Errorf("%s: %w", fleet.FileJoinConfig, err)
	}
	return h, nil
}

// LoadLayout reads only what a start condition needs: no file is the defaults,
// and one that is wrong in other keys, whatever they hold, still says where
// things are: a typing error must not keep a voter from starting.
func LoadLayout(root string) (native.Layout, error) {
	d := Defaults()
	h := struct {
		DataDir      string `json:"data-dir"`
		ServerUnit   string `json:"server-unit"`
		AgentUnit    string `json:"agent-unit"`
		ServerConfig string `json:"server-config"`
		AgentConfig  string `json:"agent-config"`
	}{d.DataDir, d.ServerUnit, d.AgentUnit, d.ServerConfig, d.AgentConfig}
	raw, err := read(root, fleet.FileHostConfig)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return native.Layout{}, err
	default:
		if err := yaml.Unmarshal(raw, &h); err != nil {
			return native.Layout{}, fmt.Errorf("%s: %w", fleet.FileHostConfig, err)
		}
	}
	return native.Layout{
		Root: root, DataDir: h.DataDir, ServerUnit: h.ServerUnit, AgentUnit: h.AgentUnit, ServerConfig: h.ServerConfig, AgentConfig: h.AgentConfig,
	}, nil
}

func read(root, path string) ([]byte, error) {
	full := filepath.Join("/", root, path)
	info, err := os.Stat(full)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("settings: %s: %d bytes are more than %d", path, info.Size(), maxFile)
	}
	raw, err := os.ReadFile(full)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return raw, nil
}

// Parse reads host.yaml over the defaults and checks it.
func Parse(raw []byte) (Host, error) {
	h := Defaults()
	if err := yaml.UnmarshalStrict(raw, &h); err != nil {
		return Host{}, err
	}
	if err := h.validate(); err != nil {
		return Host{}, err
	}
	return h, nil
}

func (h Host) validate() error {
	var problems []error
	bad := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if err := fleet.CheckName(h.Node); err != nil {
		bad("node", "%v", err)
	}
	if len(h.Servers) == 0 {
		bad("servers", "want at least one API server, like https://10.0.0.1:6443")
	}
	for i, s := range h.Servers {
		if u, err := url.Parse(s); err != nil || u.Scheme != "https" || u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.User != nil {
			bad(fmt.Sprintf("servers[%d]", i), "%q is no URL like https://10.0.0.1:6443", s)
		}
	}
	if err := fleet.CheckNamespace(h.Namespace); err != nil {
		bad("namespace", "%v", err)
	}
	if err := fleet.CheckName(h.ConfigMap); err != nil {
		bad("actuator-configmap", "%v", err)
	}
	if _, err := fleet.NewKeys(h.Prefix); err != nil {
		bad("label-prefix", "%v", err)
	}
	for key, path := range map[string]string{"kubeconfig": h.Kubeconfig, "lock": h.Lock, "k3s": h.K3s, "data-dir": h.DataDir, "server-config": h.ServerConfig, "agent-config": h.AgentConfig} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			bad(key, "%q is no clean absolute path", path)
		}
	}
	for key, unit := range map[string]string{"server-unit": h.ServerUnit, "agent-unit": h.AgentUnit} {
		if !strings.HasSuffix(unit, ".service") || strings.ContainsAny(unit, "/ ") || unit == ".service" {
			bad(key, "%q is no unit name like k3s.service", unit)
		}
	}
	if h.ServerUnit == h.AgentUnit {
		bad("agent-unit", "is the server's too")
	}
	if h.ServerConfig == h.AgentConfig {
		// A server-only key makes `k3s agent` die (k3s-facts §1.3).
		bad("agent-config", "is the server's too: each role needs its own")
	}
	switch h.Platform {
	case PlatformSystemd:
	case PlatformDocker:
		h.validateDocker(bad)
	case PlatformCommand:
		h.validateCommand(bad)
	default:
		bad("platform", "%q is none of systemd, docker and command", h.Platform)
	}
	if p := time.Duration(h.Period); p < time.Second || p > 5*time.Minute {
		bad("period", "%s is not between 1s and 5m", p)
	}
	if o := time.Duration(h.OperationTimeout); o < 10*time.Second || o > time.Hour {
		bad("operation-timeout", "%s is not between 10s and 1h", o)
	}
	if h.MinFreeMiB > 1<<40 {
		bad("min-free-mib", "%d is more than any disk has", h.MinFreeMiB)
	}
	h.validateLevels(bad)
	if h.LogFormat != "text" && h.LogFormat != "json" {
		bad("log-format", "%q is neither text nor json", h.LogFormat)
	}
	switch h.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		bad("log-level", "%q is none of debug, info, warn, error", h.LogLevel)
	}
	return errors.Join(problems...)
}

// validateLevels names what makes no sense of the levels, also where they are off: a
// mistake must not wait for the day on which they are switched on.
func (h Host) validateLevels(bad func(key, format string, args ...any)) {
	l := h.Levels
	const most = 1 << 30 // MiB, more than any host has
	period := time.Duration(h.Period)
	if !l.Enabled {
		period = time.Second // a slow daemon without levels needs no window
	}
	if l.FloorMiB > most || l.CalmFloorMiB > most {
		bad("levels.floor-mib", "%d, %d: more than any host has", l.FloorMiB, l.CalmFloorMiB)
	} else if err := l.Policy(period).Check(); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			key, why, _ := strings.Cut(line, ": ")
			bad("levels."+key, "%s", why)
		}
	}
	if l.Voters < 3 || l.Voters%2 == 0 || l.Voters > 99 {
		bad("levels.voters", "%d is no odd number of at least 3", l.Voters)
	}
	if !filepath.IsAbs(l.Kubeconfig) || filepath.Clean(l.Kubeconfig) != l.Kubeconfig {
		bad("levels.kubeconfig", "%q is no clean absolute path", l.Kubeconfig)
	}
	if l.Kubeconfig == h.Kubeconfig {
		bad("levels.kubeconfig", "is the daemon's too: the rights of the level half are its own")
	}
	if len(l.Pressure) == 0 {
		bad("levels.pressure", "want at least one file, like %s", memory.DefaultPressure)
	}
	for i, path := range l.Pressure {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			bad(fmt.Sprintf("levels.pressure[%d]", i), "%q is no clean absolute path", path)
		}
	}
	if strings.TrimSpace(l.RunnerSelector) == "" {
		bad("levels.runner-selector", "empty, which would match every pod")
	}
	if l.Enabled && h.Node == fleet.LeaseHolder {
		bad("node", "%q is the name under which a swap holds the Lease: no level could be told from one", h.Node)
	}
}

// What Compose takes for the name of a project, and of a service.
var (
	composeProject = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	composeService = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

func (h Host) validateCommand(bad func(key, format string, args ...any)) {
	for key, argv := range map[string][]string{"levels": h.Command.Levels, "current-level": h.Command.CurrentLevel, "apply-level": h.Command.ApplyLevel} {
		if len(argv) == 0 || !filepath.IsAbs(argv[0]) {
			bad("command."+key, "want a program by its absolute path, and its arguments")
		}
	}
	if t := time.Duration(h.Command.Timeout); t < time.Second || t > time.Duration(h.OperationTimeout) {
		bad("command.timeout", "%s is not between 1s and operation-timeout", t)
	}
}

func (h Host) validateDocker(bad func(key, format string, args ...any)) {
	d := h.Docker
	// In the containers the data folder is a volume at this path, and the entrypoint
	// reads the configuration files at theirs.
	for _, fixed := range []struct{ key, got, want string }{
		{"data-dir", h.DataDir, fleet.DefaultDataDir}, {"server-config", h.ServerConfig, fleet.FileServerConf}, {"agent-config", h.AgentConfig, fleet.FileAgentConf},
	} {
		if fixed.got != fixed.want {
			bad(fixed.key, "%q: on docker it is always %s", fixed.got, fixed.want)
		}
	}
	for key, path := range map[string]string{"docker.socket": d.Socket, "docker.k3s": d.K3s} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			bad(key, "%q is no clean absolute path", path)
		}
	}
	if d.Project != "" && !composeProject.MatchString(d.Project) {
		bad("docker.project", "%q is no name of a Compose project", d.Project)
	}
	for key, name := range map[string]string{"docker.server-service": d.ServerService, "docker.agent-service": d.AgentService} {
		if !composeService.MatchString(name) {
			bad(key, "%q is no name of a Compose service", name)
		}
	}
	if d.ServerService == d.AgentService {
		bad("docker.agent-service", "is the server's too")
	}
	if len(d.Identity) == 0 {
		bad("docker.identity", "want the node password's folder at least")
	}
	for i, path := range d.Identity {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
			bad(fmt.Sprintf("docker.identity[%d]", i), "%q is no clean absolute path of a folder", path)
		}
		for _, other := range append([]string{fleet.DefaultDataDir}, d.Identity[:i]...) {
			if path == other || strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/") {
				bad(fmt.Sprintf("docker.identity[%d]", i), "%q and %q lie in each other: each is copied as a whole", path, other)
			}
		}
	}
}

// ParseJoin reads join.yaml.
func ParseJoin(raw []byte) (map[string]string, error) {
	m := map[string]string{}
	if err := yaml.UnmarshalStrict(raw, &m); err != nil {
		return nil, err
	}
	var problems []error
	for node, u := range m {
		if err := fleet.CheckName(node); err != nil {
			problems = append(problems, fmt.Errorf("node %w", err))
		}
		if err := k3s.CheckJoinURL(u); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", node, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return m, nil
}
