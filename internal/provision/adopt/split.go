package adopt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/status"
)

// Wanted is what the fleet says of a host, and what another server lends it.
type Wanted struct {
	// JoinURL is another server's, which an agent on this host joins.
	JoinURL string
	// Labels are written into both files, over what they say now (R-185-34, R-185-35).
	Labels map[string]string
	// Server is a voter's configuration as it runs, which a standby's is made of; nil on
	// a server.
	Server k3s.Config
	// Token is the cluster's server token, where Server does not have it; on a server
	// the token that its agent is to use, where its own configuration has none.
	Token k3s.Secret
	// Names are further names and addresses for the certificates of an agent's server.
	Names []string
}

// Unfit says which flags of a k3s keep its host from changing its role, and from lending
// them to another.
func Unfit(runs k3s.Config) (problems []status.Problem) {
	for _, key := range slices.Sorted(maps.Keys(refused)) {
		if on(runs, key) {
			problems = append(problems, problem(CodeUnsupported, "%s is set: %s", key, refused[key])...)
		}
	}
	return problems
}

// Split is one configuration file for each role. The file of the role that runs gives
// k3s what it has now; flags that only variables give stay with the variables there.
type Split struct {
	Role   fleet.Role
	Server k3s.Config
	Agent  k3s.Config
	// Added is a flag that the running role has not been given so far, empty for none:
	// the token that it made itself.
	Added string
}

// refused are flags with which a host cannot change its role, each with the reason.
var refused = map[string]string{
	"with-node-id":               "the etcd member and the Node would have two names",
	"datastore-endpoint":         "the datastore is not embedded etcd (R-185-32)",
	"rootless":                   "a rootless k3s has no etcd",
	"disable-etcd":               "the server has no vote that could be placed",
	"disable-agent":              "the server has no Node to act on",
	"disable-apiserver":          "the server runs at a lower level; bring it up first",
	"disable-controller-manager": "the server runs at a lower level; bring it up first",
	"cluster-reset":              "a reset of the cluster is under way",
	"cluster-reset-restore-path": "a reset of the cluster is under way",
	"docker":                     "pods that Docker runs end with another way of stopping than regrade knows",
}

// own are the flags of one server that no other takes over.
var own = []string{
	"cluster-init", "advertise-address", "advertise-port", "apiserver-bind-address", "https-listen-port", "supervisor-port", "apiserver-port",
	"write-kubeconfig", "write-kubeconfig-mode", "write-kubeconfig-group", "write-kubeconfig-name", "etcd-snapshot-dir", "default-local-storage-path",
}

// tokens are how a role is told its secret.
var tokens = []string{"token", "token-file", "agent-token", "agent-token-file"}

// Of splits a host's configuration, or says everything that speaks against it.
func Of(f Found, w Wanted) (Split, []status.Problem) {
	role, runs, problems := f.Effective()
	if runs == nil {
		return Split{}, problems
	}
	problems = append(problems, Unfit(runs)...)
	if len(problems) > 0 {
		return Split{}, problems
	}
	mine := written(role, f)
	s := Split{Role: role}
	if role == fleet.RoleServer {
		s.Server = mine
		if runs.Get("token") == "" && runs.Get("token-file") == "" && w.Token.Reveal() != "" {
			// The token that k3s made itself: without one beside the server to join, a
			// former member would found a cluster of its own (k3s-facts §3.2).
			s.Server["token"] = one(w.Token.Reveal())
			s.Added = "token"
		}
		s.Agent, problems = agentOf(runs, w)
	} else {
		s.Agent = mine
		s.Server, problems = serverOf(runs, w)
	}
	for _, c := range []k3s.Config{s.Server, s.Agent} {
		c["node-label"] = Labelled(c["node-label"], w.Labels)
		if len(c["node-label"]) == 0 {
			delete(c, "node-label")
		}
	}
	return s, problems
}

// written is what files and command line say, in one file.
func written(role fleet.Role, f Found) k3s.Config {
	bare := f
	bare.Env = nil
	_, c, _ := bare.Effective()
	delete(c, "config")
	return c
}

// agentOf makes an agent's configuration of a server's: the flags that both know, the
// agent's secret, and another server to join.
func agentOf(server k3s.Config, w Wanted) (k3s.Config, []status.Problem) {
	c := k3s.Config{}
	for key, values := range server {
		if k3s.OfBoth(key) && !slices.Contains(tokens, key) && key != "server" && key != "config" {
			c[key] = slices.Clone(values)
		}
	}
	switch {
	case server.Get("agent-token-file") != "":
		c["token-file"] = one(server.Get("agent-token-file"))
	case server.Get("agent-token") != "":
		c["token"] = one(server.Get("agent-token"))
	case server.Get("token-file") != "":
		c["token-file"] = one(server.Get("token-file"))
	case server.Get("token") != "":
		c["token"] = one(server.Get("token"))
	case w.Token.Reveal() != "":
		c["token"] = one(w.Token.Reveal())
	default:
		return c, problem(CodeNoToken, "the server has no token in its configuration, so its agent would have none")
	}
	if err := k3s.CheckJoinURL(w.JoinURL); err != nil {
		return c, problem(CodeNoJoin, "no other server is known for the agent to join: %v", err)
	}
	c["server"] = one(w.JoinURL)
	return c, nil
}

// serverOf makes a standby's server configuration of a voter's and of its own agent's.
func serverOf(agent k3s.Config, w Wanted) (k3s.Config, []status.Problem) {
	if w.Server == nil {
		return k3s.Config{}, problem(CodeNoVoter, "no voter's configuration is known to make a standby's of")
	}
	c := Shared(w.Server)
	for key, values := range agent {
		if k3s.OfBoth(key) && !slices.Contains(tokens, key) && key != "server" && key != "config" {
			c[key] = slices.Clone(values)
		}
	}
	for _, name := range w.Names {
		if !slices.Contains(c["tls-san"], name) {
			c["tls-san"] = append(c["tls-san"], name)
		}
	}
	secret := w.Token.Reveal()
	if secret == "" {
		secret = w.Server.Get("token")
	}
	if secret == "" {
		return c, problem(CodeNoToken, "the voter has no token in its configuration, so the standby could not join etcd")
	}
	c["token"] = one(secret)
	// The agents' secret is one of the whole cluster: a server without it would refuse them.
	if a := w.Server.Get("agent-token"); a != "" {
		c["agent-token"] = one(a)
	}
	if w.Server.Get("agent-token-file") != "" {
		return c, problem(CodeNoToken, "the voter reads the agents' token from a file, agent-token-file; put it into agent-token on the servers")
	}
	join := agent.Get("server")
	if err := k3s.CheckJoinURL(join); err != nil {
		return c, problem(CodeNoJoin, "the agent names no server to join: %v", err)
	}
	c["server"] = one(join)
	return c, nil
}

// Shared are the flags of a voter's configuration that every server has: those of the
// server role, but for what is the voter's own and for tokens.
func Shared(voter k3s.Config) k3s.Config {
	c := k3s.Config{}
	for key, values := range voter {
		if k3s.OfServer(key) && !slices.Contains(own, key) && !slices.Contains(tokens, key) {
			c[key] = slices.Clone(values)
		}
	}
	return c
}

// Labelled puts labels over a list of key=value, those that were there first.
func Labelled(have []string, labels map[string]string) []string {
	var out []string
	for _, l := range have {
		for part := range strings.SplitSeq(l, ",") {
			key, _, _ := strings.Cut(part, "=")
			if _, ours := labels[key]; !ours && part != "" {
				out = append(out, part)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return out
}

// Changes are the flags with which k3s would run otherwise than now by the file of its
// own role, labels of ours apart, as sentences without values.
func Changes(f Found, s Split, path string, labels map[string]string) []status.Problem {
	role, now, problems := f.Effective()
	if now == nil {
		return problems
	}
	next := f
	next.Commands = [][]string{{f.Commands[0][0], string(role), "--config", path}}
	next.Files = []k3s.Config{s.Server}
	if role == fleet.RoleAgent {
		next.Files = []k3s.Config{s.Agent}
	}
	_, then, more := next.Effective()
	problems = append(problems, more...)
	now["node-label"], then["node-label"] = Labelled(now["node-label"], labels), Labelled(then["node-label"], labels)
	keys := map[string]bool{}
	for _, c := range []k3s.Config{now, then} {
		for key := range c {
			keys[key] = key != "config"
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] && key != s.Added && !slices.Equal(now[key], then[key]) {
			problems = append(problems, problem(CodeFlagsChange, "k3s %s would run with another %s than now", role, key)...)
		}
	}
	return problems
}

func on(c k3s.Config, key string) bool {
	v := c.Get(key)
	return v != "" && v != "false"
}

func one(s string) []string { return []string{s} }

// Render writes a configuration file, sorted by key, values as text.
func Render(c k3s.Config, heading string) ([]byte, error) {
	m := map[string]any{}
	for key, values := range c {
		// Of the agent alone there is no list.
		if f, _ := k3s.FlagOf(fleet.RoleServer, key); f.Kind != k3s.FlagList && len(values) > 0 {
			m[key] = values[len(values)-1]
			continue
		}
		m[key] = values
	}
	body, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("k3s configuration: %w", err)
	}
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(heading), "\n") {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	b.Write(body)
	return []byte(b.String()), nil
}
