package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/deploy"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/status"
)

// Reason codes of refusals, beside those of package adopt.
const (
	CodeNoK3s     = "NoK3s"
	CodeTwoK3s    = "TwoK3s"
	CodeMasked    = "UnitMasked"
	CodeRole      = "RoleContradicts"
	CodeNotNeeded = "NotOfTheFleet"
	CodeNotEtcd   = "NotEtcd"
	CodeInTheWay  = "FileInTheWay"
	CodeElsewhere = "K3sElsewhere"
	CodeProgram   = "ProgramMissing"
	CodeNoKube    = "NoKubeconfig"
	CodeSettings  = "HostSettings"
	CodeConfig    = "ConfigUnreadable"
	CodePlatform  = "PlatformChanged"
	CodeOtherNode = "OtherNode"
	CodeOtherCA   = "OtherCluster"
)

// File is one that shall be. Only what differs from what is there is in a plan.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
	// Old is what is there now, nil for nothing.
	Old []byte
	// Secret: there are secrets in it, which are shown nowhere. Hidden: all of it is one.
	Secret bool
	Hidden bool
}

// Plan is what has to be done on a host, in this order: the role file before the start
// conditions that ask for it, the conditions before the second unit is enabled.
type Plan struct {
	Files []File
	// Reload: systemd has to read its units again.
	Reload bool
	// Enable are units to enable.
	Enable []string
	// Restart: the daemon has to be started, or started anew.
	Restart bool
	// Wants are the commands that the two k3s units shall have then, by role.
	Wants map[fleet.Role][]string
	// Record is what is written down first, Before what stands there; First: nothing does.
	Record Record
	Before Record
	First  bool
}

// Empty says that there is nothing to do.
func (p Plan) Empty() bool { return len(p.Files) == 0 && !p.Reload && len(p.Enable) == 0 && !p.Restart }

// Make decides what a host needs, or says everything that speaks against it.
func Make(s Seen, d Desired) (Plan, []status.Problem) {
	h, err := d.Settings()
	if err != nil {
		return Plan{}, problem(CodeSettings, "%v", err)
	}
	if h.Platform == settings.PlatformDocker || s.Record != nil && s.Record.Platform != "" {
		return Plan{}, problem(CodePlatform, "this host's k3s runs in containers, by the document or by %s: take the one off before the other is set up", fleet.FileInstalled)
	}
	// First of all: what follows would be another host's.
	if problems := Whose(s.Node, s.CA, d, h); len(problems) > 0 {
		return Plan{}, problems
	}
	role, problems := running(s, d)
	problems = append(problems, refusals(s, d, h)...)
	if len(problems) > 0 {
		return Plan{}, problems
	}
	keys, err := h.Keys()
	if err != nil {
		return Plan{}, problem(CodeSettings, "%v", err)
	}
	labels := d.labels(keys)
	found := adopt.Found{Unit: units[role], Commands: s.Units[role].Commands, Env: s.Units[role].Env, Files: s.Configs[role]}
	before := found
	if s.adopted(role) {
		// Its drop-ins are regrade's own: the server to join and the level of the moment.
		own, err := k3s.ParseConfig(s.Files[configs[role]])
		if err != nil {
			return Plan{}, problem(CodeConfig, "%s: %v", configs[role], err)
		}
		found.Files = []k3s.Config{own}
		before = found
	}
	split, problems := adopt.Of(found, adopt.Wanted{
		JoinURL: d.Other(h), Labels: labels, Server: d.Voter, Token: firstSecret(s.Token, d.Token), Names: names(d, h),
	})
	if len(problems) > 0 {
		return Plan{}, problems
	}
	if problems := adopt.Changes(before, split, configs[role], labels); len(problems) > 0 {
		return Plan{}, problems
	}
	_, runs, _ := before.Effective()
	if dir := runs.Get("data-dir"); dir != "" && dir != h.DataDir {
		return Plan{}, problem(CodeElsewhere, "k3s keeps its data in %s; write data-dir: %s into the host's settings", dir, dir)
	}
	return s.plan(d, role, split, labels)
}

// running is the role that k3s has on this host.
func running(s Seen, d Desired) (fleet.Role, []status.Problem) {
	var found []fleet.Role
	for _, role := range roles {
		if s.Units[role].Masked {
			return "", problem(CodeMasked, "%s is masked; unmask it first", units[role])
		}
		if s.Units[role].Loaded && (s.Units[role].Active || s.adopted(role) && s.Role == role) {
			found = append(found, role)
		}
	}
	found = slices.Compact(found)
	switch {
	case len(found) == 0:
		return "", problem(CodeNoK3s, "neither %s nor %s runs on this host: install k3s first, as a server or as an agent of the cluster", units[fleet.RoleServer], units[fleet.RoleAgent])
	case len(found) > 1:
		return "", problem(CodeTwoK3s, "both %s and %s run or are about to: stop and disable the one that does not belong here", units[fleet.RoleServer], units[fleet.RoleAgent])
	case s.Role != "" && s.Role != found[0]:
		return "", problem(CodeRole, "the recorded role is %s and k3s runs as %s: a swap may be under way, or it was changed by hand", s.Role, found[0])
	case s.Role == "" && d.Role != found[0]:
		return "", problem(CodeRole, "the fleet says that this host is set up as %s, and k3s runs as %s", d.Role, found[0])
	}
	return found[0], nil
}

// refusals are what speaks against a host whatever runs there.
func refusals(s Seen, d Desired, h settings.Host) []status.Problem {
	var out []status.Problem
	def := settings.Defaults()
	if d.Role == fleet.RoleAgent && !d.Eligible {
		out = append(out, problem(CodeNotNeeded, "an agent that is not eligible needs nothing of regrade")...)
	}
	if d.Role == fleet.RoleServer && !s.Datastore && s.Role == "" {
		out = append(out, problem(CodeNotEtcd, "the server has no embedded etcd datastore in %s (R-185-32)", h.DataDir)...)
	}
	if h.ServerUnit != def.ServerUnit || h.AgentUnit != def.AgentUnit || h.ServerConfig != def.ServerConfig || h.AgentConfig != def.AgentConfig {
		out = append(out, problem(CodeElsewhere, "other units or configuration files than %s, %s, %s and %s are set up by hand", def.ServerUnit, def.AgentUnit, def.ServerConfig, def.AgentConfig)...)
	}
	for _, role := range roles {
		if c := s.Units[role].Commands; len(c) == 1 && len(c[0]) > 0 && c[0][0] != h.K3s {
			out = append(out, problem(CodeElsewhere, "%s starts %s; write k3s: %s into the host's settings", units[role], c[0][0], c[0][0])...)
		}
		// The variable would win over the file that a role is given (k3s-facts §1.2).
		if v := s.Units[role].Env[envConfigFile]; v != "" {
			out = append(out, problem(CodeElsewhere, "%s in the environment of %s names %s; take it away, and put the file's content into /etc/rancher/k3s/config.yaml", envConfigFile, units[role], v)...)
		}
		if s.Files[configs[role]] != nil && s.Record == nil && !s.adopted(role) {
			out = append(out, problem(CodeInTheWay, "%s is there and is not regrade's; move it away", configs[role])...)
		}
	}
	if !s.Program {
		out = append(out, problem(CodeProgram, "%s is missing: the start conditions ask it", fileProgram)...)
	}
	if d.Kubeconfig.Reveal() == "" && s.Files[fleet.FileKubeconfig] == nil {
		out = append(out, problem(CodeNoKube, "no kubeconfig for the host daemon was given, and the host has none")...)
	}
	return out
}

// adopted says whether a unit of k3s has our start condition already.
func (s Seen) adopted(role fleet.Role) bool { return s.Files[unitDir+units[role]+dropIn] != nil }

func (s Seen) plan(d Desired, role fleet.Role, split adopt.Split, labels map[string]string) (Plan, []status.Problem) {
	h, err := d.Settings()
	if err != nil {
		return Plan{}, problem(CodeSettings, "%v", err)
	}
	p := Plan{Wants: map[fleet.Role][]string{}}
	if s.Role == "" {
		p.add(s, File{Path: fleet.FileRole, Mode: readableMode, Content: []byte(string(role) + "\n")})
	}
	made := map[fleet.Role]k3s.Config{fleet.RoleServer: split.Server, fleet.RoleAgent: split.Agent}
	for _, r := range roles {
		content, problems := s.config(r, made[r], labels)
		if len(problems) > 0 {
			return Plan{}, problems
		}
		p.add(s, File{Path: configs[r], Mode: secretMode, Content: content, Secret: true})
	}
	host, err := yaml.Marshal(d.Host)
	if err != nil {
		return Plan{}, problem(CodeSettings, "%v", err)
	}
	join, err := yaml.Marshal(d.Join)
	if err != nil {
		return Plan{}, problem(CodeSettings, "%v", err)
	}
	p.add(s, File{Path: fleet.FileHostConfig, Mode: readableMode, Content: headed(host)})
	p.add(s, File{Path: fleet.FileJoinConfig, Mode: readableMode, Content: headed(join)})
	if k := d.Kubeconfig.Reveal(); k != "" {
		p.add(s, File{Path: fleet.FileKubeconfig, Mode: secretMode, Content: []byte(k), Secret: true, Hidden: true})
	}
	if k := d.LevelKubeconfig.Reveal(); k != "" {
		p.add(s, File{Path: fleet.FileLevelKube, Mode: secretMode, Content: []byte(k), Secret: true, Hidden: true})
	}
	for _, r := range roles {
		// What the other role's unit has beside k3s's own flags, such as a proxy: without it that
		// role would pull no image.
		if content := s.surroundings(role, r); content != nil {
			p.add(s, File{Path: unitDir + units[r] + envSuffix, Mode: secretMode, Content: content, Secret: true, Hidden: true})
		}
	}
	daemon := len(p.Files)
	for _, r := range roles {
		if !s.Units[r].Loaded || slices.Contains(s.created(), unitDir+units[r]) {
			content, err := UnitFile(r, h.K3s)
			if err != nil {
				return Plan{}, problem(CodeSettings, "%v", err)
			}
			p.add(s, File{Path: unitDir + units[r], Mode: readableMode, Content: content})
		}
		p.add(s, File{Path: unitDir + units[r] + dropIn, Mode: readableMode, Content: dropInFile(r, h.K3s)})
		p.Wants[r] = []string{h.K3s, string(r), "--config", configs[r]}
		if !s.Units[r].Enabled {
			p.Enable = append(p.Enable, units[r])
		}
	}
	unit, err := deploy.Unit(daemonUnit)
	if err != nil {
		return Plan{}, problem(CodeSettings, "%v", err)
	}
	p.add(s, File{Path: unitDir + daemonUnit, Mode: readableMode, Content: unit})
	// systemd may not have read what an interrupted setup wrote.
	p.Reload = len(p.Files) > daemon || !s.Daemon.Loaded || slices.ContainsFunc(roles, func(r fleet.Role) bool { return !same(s.Units[r], p.Wants[r]) })
	if !s.Daemon.Enabled {
		p.Enable = append(p.Enable, daemonUnit)
	}
	p.Restart = len(p.Files) > 0 || !s.Daemon.Active || s.Daemon.Outdated || s.Record != nil && s.Record.Pending
	p.Record, p.First = s.record(role, p.Files), s.Record == nil
	if s.Record != nil {
		p.Before = *s.Record
	}
	return p, nil
}

// config is a role's configuration file: the one that is there with the labels as they
// shall be, else the one that the split made.
func (s Seen) config(role fleet.Role, made k3s.Config, labels map[string]string) ([]byte, []status.Problem) {
	old := s.Files[configs[role]]
	if old != nil {
		c, err := k3s.ParseConfig(old)
		if err != nil {
			return nil, problem(CodeConfig, "%s: %v", configs[role], err)
		}
		after := adopt.Labelled(c["node-label"], labels)
		if slices.Equal(after, c["node-label"]) {
			return old, nil
		}
		made = maps.Clone(c)
		made["node-label"] = after
	}
	raw, err := adopt.Render(made, "k3s as "+string(role)+". Written by regrade from what this host ran with; yours from now on, but for regrade's labels.")
	if err != nil {
		return nil, problem(CodeConfig, "%s: %v", configs[role], err)
	}
	return raw, nil
}

// surroundings is the environment file of a unit that regrade makes, nil for none: the variables
// of the role that runs, but for those that k3s takes flags from, and for the server that a swap had
// this role join: it stands in a drop-in, which a file would outlive and overrule. One that is there
// stays.
func (s Seen) surroundings(runs, r fleet.Role) []byte {
	ours := !s.Units[r].Loaded || slices.Contains(s.created(), unitDir+units[r])
	if r == runs || !ours || s.Files[unitDir+units[r]+envSuffix] != nil {
		return nil
	}
	env := maps.Clone(s.Units[runs].Env)
	maps.DeleteFunc(env, func(key, _ string) bool { return strings.HasPrefix(key, "K3S_") || key == fleet.EnvJoinHost })
	if len(env) == 0 {
		return nil
	}
	return k3s.EnvFile(env)
}

// add puts a file into the plan when what is there differs.
func (p *Plan) add(s Seen, f File) {
	old, there := s.Files[f.Path]
	if there && bytes.Equal(old, f.Content) {
		return
	}
	f.Old = old
	p.Files = append(p.Files, f)
}

func (s Seen) created() []string {
	if s.Record == nil {
		return nil
	}
	return s.Record.Created
}

// record is what the host was like before the first setup.
func (s Seen) record(role fleet.Role, files []File) Record {
	r := Record{Role: role, Unit: units[role]}
	if s.Record != nil {
		r = *s.Record
		r.Created, r.Sums, r.Pending = slices.Clone(r.Created), maps.Clone(r.Sums), false
	} else {
		if c := s.Units[role].Commands; len(c) == 1 {
			r.Command = c[0]
		}
		for _, u := range roles {
			if s.Units[u].Enabled {
				r.Enabled = append(r.Enabled, units[u])
			}
		}
	}
	for _, f := range files {
		if f.Old == nil && !slices.Contains(r.Created, f.Path) {
			r.Created = append(r.Created, f.Path)
		}
		// Of a file that its owner has changed the sum stays that of what we wrote first.
		if f.Path == fleet.FileServerConf || f.Path == fleet.FileAgentConf {
			if r.Sums == nil {
				r.Sums = map[string]string{}
			}
			if f.Old == nil || sum(f.Old) == r.Sums[f.Path] {
				r.Sums[f.Path] = sum(f.Content)
			}
		}
	}
	return r
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// Encode is the record's file.
func (r Record) Encode() ([]byte, error) {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("what was found: %w", err)
	}
	return append(raw, '\n'), nil
}

// UnitFile is k3s's unit of a role without our additions, which the drop-in has: the
// install script may write the unit anew at any time.
func UnitFile(role fleet.Role, program string) ([]byte, error) {
	shipped, err := deploy.Unit(units[role])
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.SplitSeq(string(shipped), "\n") {
		switch {
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "ExecCondition="):
		case strings.HasPrefix(line, "ExecStart="):
			out = append(out, "ExecStart="+program+" "+string(role))
		default:
			out = append(out, line)
		}
	}
	return []byte("# Written by regrade, as k3s's install script would.\n" + strings.Join(out, "\n")), nil
}

func dropInFile(role fleet.Role, program string) []byte {
	return fmt.Appendf(nil, `# Written by regrade: the start condition, and the role's own configuration file.
[Service]
ExecCondition=%s host role-is %s
ExecStart=
ExecStart=%s %s --config %s
`, fileProgram, role, program, role, configs[role])
}

func headed(body []byte) []byte {
	return append([]byte("# Written by regrade.\n"), body...)
}

// names are what a standby's certificates must name beside what the voters' do.
func names(d Desired, h settings.Host) []string {
	u, err := url.Parse(d.Join[h.Node])
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return []string{u.Hostname()}
}

func firstSecret(a, b k3s.Secret) k3s.Secret {
	if a.Reveal() != "" {
		return a
	}
	return b
}

func problem(code, format string, args ...any) []status.Problem {
	return []status.Problem{{Code: code, Sentence: fmt.Sprintf(format, args...)}}
}
