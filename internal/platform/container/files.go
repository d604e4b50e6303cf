package container

import (
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/native"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Variables of the Compose project (R-A-08, R-228-14). k3s reads the tokens
// itself; the two URLs are ours.
const (
	EnvServerURL      = "K3S_JOIN_SERVER_URL"
	EnvAgentURL       = "K3S_AGENT_SERVER_URL"
	EnvToken          = "K3S_TOKEN"
	EnvTokenFile      = "K3S_TOKEN_FILE"
	EnvAgentToken     = "K3S_AGENT_TOKEN"
	EnvAgentTokenFile = "K3S_AGENT_TOKEN_FILE"
	// EnvFirst is k3s's own, and not passed on: here it is a person's word for the
	// one start in which a silent server leaves in doubt whether there is a cluster.
	EnvFirst = "K3S_CLUSTER_INIT"
)

// Identity are the folders that say who the host is, the node password's first: where each
// service has volumes of its own they are copied when the role changes (R-D2-05, R-N-09).
func Identity() []string { return []string{"/etc/rancher/node", "/var/lib/tailscale"} }

// Files are the files and variables of one host. k3s's data folder is always
// fleet.DefaultDataDir: it is a volume.
type Files struct {
	native *native.Files
	dir    rolefile.Dir
	getenv func(string) string
}

// New reads below a root; empty is the container itself.
func New(root string, getenv func(string) string) *Files {
	return &Files{native: native.New(native.Layout{Root: root}), dir: rolefile.Dir{Root: root}, getenv: getenv}
}

// SetBootID replaces how this boot's id is read, in tests.
func (f *Files) SetBootID(read func() (string, error)) { f.native.BootID = read }

// Disk is k3s's part.
func (f *Files) Disk() k3s.Disk { return f.native.Disk() }

// Config is a role's own k3s configuration file. An agent dies on a server's
// keys (k3s-facts §1.3).
func Config(role fleet.Role) string {
	if role == fleet.RoleServer {
		return fleet.FileServerConf
	}
	return fleet.FileAgentConf
}

// Role are the files that the start rule looks at, as native has them, with the
// join of a container.
func (f *Files) Role() (rolefile.Files, error) {
	files, err := f.native.Role()
	if err != nil {
		return rolefile.Files{}, err
	}
	// What cannot be read names nothing to join; a member starts all the same.
	files.JoinURL, files.Token = "", false
	if j, err := f.Join(fleet.RoleServer); err == nil {
		files.JoinURL, files.Token = j.URL, j.Token.Reveal() != ""
	}
	return files, nil
}

// Join is the URL and the token that a role starts with. The URL is the role
// folder's file when that is not empty, else the variable (R-A-08), else what
// k3s would find by itself in the role's configuration. K3S_URL counts for an
// agent only: both roles are given the same variables, and it would turn a plain
// server into one that joins (k3s-facts §1.1).
func (f *Files) Join(role fleet.Role) (k3s.Join, error) {
	env, variable := f.tokens(role), EnvServerURL
	if role == fleet.RoleAgent {
		env["K3S_URL"], variable = f.getenv("K3S_URL"), EnvAgentURL
	}
	j, err := f.Disk().ReadJoinWith(Config(role), env)
	if err != nil {
		return k3s.Join{}, fmt.Errorf("join of the %s: %w", role, err)
	}
	url, err := f.dir.JoinURL(role)
	if err != nil {
		return k3s.Join{}, fmt.Errorf("join of the %s: %w", role, err)
	}
	if url == "" {
		url = strings.TrimSpace(f.getenv(variable))
	}
	if url != "" {
		j.URL = url
	}
	if j.URL != "" {
		if err := k3s.CheckJoinURL(j.URL); err != nil {
			return k3s.Join{}, err
		}
	}
	return j, nil
}

// tokens are the variables that k3s is given its token by. Where the cluster has
// an agent token, it is the agent's: the server's would be turned away
// (k3s-facts §10.1).
func (f *Files) tokens(role fleet.Role) map[string]string {
	env := map[string]string{EnvToken: f.getenv(EnvToken), EnvTokenFile: f.getenv(EnvTokenFile)}
	if role == fleet.RoleAgent && (f.getenv(EnvAgentToken) != "" || f.getenv(EnvAgentTokenFile) != "") {
		env[EnvToken], env[EnvTokenFile] = f.getenv(EnvAgentToken), f.getenv(EnvAgentTokenFile)
	}
	return env
}

// Environ is k3s's environment for a role, made from the container's. What would
// override a decision that was made here is taken out: K3S_URL and
// K3S_CLUSTER_INIT decide between joining and founding, K3S_CONFIG_FILE would win
// over the role's own file (k3s-facts §1.2). So is an empty one, which Compose
// cannot leave out. Tokens stay variables: an argument is for everybody to read
// (safety rule 31).
func (f *Files) Environ(role fleet.Role, environ []string) []string {
	tokens := f.tokens(role)
	var out []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" && strings.HasPrefix(name, "K3S_") {
			continue
		}
		switch name {
		case "K3S_URL", "K3S_CLUSTER_INIT", "K3S_CONFIG_FILE", "K3S_DATA_DIR", EnvToken, EnvTokenFile:
		default:
			out = append(out, kv)
		}
	}
	for _, name := range []string{EnvToken, EnvTokenFile} {
		if tokens[name] != "" {
			out = append(out, name+"="+tokens[name])
		}
	}
	return out
}
