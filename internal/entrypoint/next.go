package entrypoint

import (
	"fmt"
	"net"
	"net/url"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Facts is what one start is decided on.
type Facts struct {
	// Role is the container's: its argument.
	Role fleet.Role
	// Files are the role files and the datastore, with the server's join.
	Files rolefile.Files
	// Inventory is the role that the Compose project gives this host, which counts
	// only where there is no role file; empty for none (R-A-04).
	Inventory fleet.Role
	// URL is where this role joins, and JoinProblem why that cannot be told.
	URL         string
	JoinProblem string
	// Token: this role has one.
	Token bool
	// SQLite: the cluster is a single server without etcd.
	SQLite bool
	// Level is what a server takes at this start (R-112-15).
	Level fleet.Level
	// Labels are the Node's, KEY=VALUE (R-185-34).
	Labels []string
	// AgentURL is where the agent of this host joins: another server of the cluster,
	// also on the first one (R-228-14). AgentProblem says why it cannot be told.
	AgentURL, AgentProblem string
	// Part is in a folder of the identity that is not the host's yet; empty for none.
	Part string
	// First is a person's word that this host founds the cluster.
	First bool
	// Asked is the last question to a server in this start.
	Asked Asked
}

// Asked is what came of a question to a server.
type Asked struct {
	URL  string
	Says Says
	// Why is what Silent came from.
	Why string
}

// Says is what a server's port says.
type Says string

// What it may say.
const (
	Answers Says = "answers"
	// Nobody: the host is there and nothing serves on that port.
	Nobody Says = "nobody"
	// Itself: nobody, and it is this host's own address.
	Itself Says = "itself"
	// Silent is everything else: the host may be off, or the way to it.
	Silent Says = "silent"
)

// Kind of a decision.
type Kind string

// Kinds.
const (
	Exec   Kind = "exec"
	Idle   Kind = "idle"
	Refuse Kind = "refuse"
	Wait   Kind = "wait"
	// Ask is a wait too: nobody has said yet that there is no cluster.
	Ask Kind = "ask"
)

// Decision is what a start comes to.
type Decision struct {
	Kind Kind
	// Why is a sentence.
	Why string
	// Args are k3s's, of Exec.
	Args []string
	// URL and Address, host:port, are the server's that is asked, of Wait and Ask.
	URL, Address string
}

// Next decides. Guards come before anything else, and whether a role may start
// at all is rolefile's rule, the same as under systemd.
func Next(f Facts) Decision {
	files := rolefile.Presumed(f.Files, f.Inventory)
	if f.Role == fleet.RoleServer {
		if why := lacksJoin(f, files); why != "" {
			return Decision{Kind: Refuse, Why: why}
		}
	}
	switch a := rolefile.MayStart(files, f.Role); {
	case !a.May:
		return Decision{Kind: Idle, Why: a.Why} // R-A-05, R-A-06, X-02
	case f.Part != "" && (f.Role == fleet.RoleAgent || !files.WAL && !files.AllowJoin):
		// With half of an identity, or none, k3s makes itself another, and the cluster turns
		// it away (R-N-09). A member starts: it is known by its datastore.
		return Decision{Kind: Idle, Why: fmt.Sprintf("who this host is has not been copied here from the other role's volumes (%s): the daemon does that when it starts this role", f.Part)}
	case f.Role == fleet.RoleAgent:
		return agent(f, a.Why)
	default:
		return server(f, a.Why)
	}
}

// lacksJoin is the refusal of a host that may only join and has nothing to join
// with: a former member never founds a cluster, not even an empty sqlite one
// (R-A-11, R-X-04, safety rule 19). It is a refusal and no guard, because the
// missing thing may come: the restart policy looks again. Where the role file
// names the other role that guard comes first, unless a join is under way.
func lacksJoin(f Facts, files rolefile.Files) string {
	joining := files.JoiningNow() || files.AllowJoin
	former := ""
	switch {
	case files.WAL || files.Tombstone || files.RoleProblem != "" || files.Role == fleet.RoleAgent && !joining:
		return ""
	case files.Demoted:
		former = "its datastore was moved aside"
	case files.Identity.ClusterID != 0:
		former = fmt.Sprintf("it was in cluster %s and has no datastore", files.Identity.ClusterID)
	case joining:
		former = "it shall join"
	}
	switch {
	case f.JoinProblem != "":
		return f.JoinProblem
	case f.URL == "" && former != "":
		return fmt.Sprintf("this host only joins a cluster (%s), and there is no server to join: %s and %s are empty", former, fleet.FileJoinURL, container.EnvServerURL)
	case f.URL != "" && !f.Token:
		// k3s takes a server URL without a token for no etcd at all and starts an
		// empty sqlite (k3s-facts §3.2).
		return fmt.Sprintf("there is a server to join (%s) and no token: set %s or %s", f.URL, container.EnvToken, container.EnvTokenFile)
	}
	return ""
}

// server has passed the rule. With a datastore it starts at once: its vote may be
// the one that makes a quorum, so it waits for nobody.
func server(f Facts, why string) Decision {
	join := f.URL != "" && f.JoinProblem == "" && f.Token
	if join && !f.Files.WAL && (f.Asked.URL != f.URL || f.Asked.Says != Answers) {
		return Decision{Kind: Wait, URL: f.URL, Address: address(f.URL), Why: "the join host " + f.URL + " does not answer yet"} // R-A-09
	}
	args := begin(f)
	switch {
	case join:
		args = append(args, "--server="+f.URL)
	case mayFound(f):
		if d, not := notFirst(f); not {
			return d
		}
		args = append(args, "--cluster-init")
	}
	args = append(args, k3s.LevelFlags(f.Level)...)
	return Decision{Kind: Exec, Why: why, Args: args}
}

// mayFound says whether --cluster-init may stand there (R-A-10, R-A-12, R-X-04).
// k3s ignores it where there is a datastore.
func mayFound(f Facts) bool {
	return f.URL == "" && f.JoinProblem == "" && !f.Files.Former() && !f.SQLite
}

// notFirst keeps a server without a datastore from founding a cluster beside the one
// that is there: a second server whose .env is a copy of the founder's has no URL to
// join either. The server that its agent would join is asked. Only "nobody serves
// here" from a host that is there lets it found; silence may be a cluster that is
// down for the moment, and then a person has to say so. Without anybody to ask it
// founds (R-A-12).
func notFirst(f Facts) (Decision, bool) {
	set := fmt.Sprintf("set %s to join it", container.EnvServerURL)
	switch {
	case f.Files.WAL:
		return Decision{}, false
	case f.AgentProblem != "":
		return Decision{Kind: Refuse, Why: "there may be a cluster already, and nobody can be asked: " + f.AgentProblem}, true
	case f.AgentURL == "":
		return Decision{}, false
	case f.Asked.URL != f.AgentURL:
		return Decision{Kind: Ask, URL: f.AgentURL, Address: address(f.AgentURL), Why: "whether there is a cluster already is asked of " + f.AgentURL}, true
	case f.Asked.Says == Answers:
		return Decision{Kind: Refuse, Why: fmt.Sprintf("this host would found a cluster, and a server answers at %s (%s): %s", f.AgentURL, container.EnvAgentURL, set)}, true
	case f.Asked.Says == Nobody || f.First:
		return Decision{}, false
	case f.Asked.Says == Itself:
		return Decision{Kind: Refuse, Why: fmt.Sprintf("this host would found a cluster, and %s (%s) is its own address: name another server there; where there is a cluster, %s", container.EnvAgentURL, f.AgentURL, set)}, true
	}
	return Decision{Kind: Ask, URL: f.AgentURL, Address: address(f.AgentURL), Why: fmt.Sprintf(
		"whether there is a cluster already cannot be told, %s is silent (%s): where there is one, %s; where there is none, start that host or set %s=true", f.AgentURL, f.Asked.Why, set, container.EnvFirst)}, true
}

// agent does not wait: k3s's agent asks its servers for ever by itself
// (k3s-facts §10.1).
func agent(f Facts, why string) Decision {
	switch {
	case f.JoinProblem != "":
		return Decision{Kind: Refuse, Why: f.JoinProblem}
	case f.URL == "":
		// k3s would end at once, and say less (R-228-14).
		return Decision{Kind: Refuse, Why: fmt.Sprintf("there is no server to join: %s and %s are empty", fleet.FileAgentURL, container.EnvAgentURL)}
	}
	return Decision{Kind: Exec, Why: why, Args: append(begin(f), "--server="+f.URL)}
}

// begin are the arguments of both roles. An argument wins over the configuration
// file: the data folder is the volume that the guards have looked at, whatever
// stands there.
func begin(f Facts) []string {
	args := []string{string(f.Role), "--config=" + container.Config(f.Role), "--data-dir=" + fleet.DefaultDataDir}
	for _, l := range f.Labels {
		args = append(args, "--node-label="+l)
	}
	return args
}

// address is what is dialled: k3s takes 443 for a URL without a port.
func address(join string) string {
	u, err := url.Parse(join)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
