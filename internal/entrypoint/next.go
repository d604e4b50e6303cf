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
	// Reached is the URL whose host has answered in this start.
	Reached string
}

// Kind of a decision.
type Kind string

// Kinds.
const (
	Exec   Kind = "exec"
	Idle   Kind = "idle"
	Refuse Kind = "refuse"
	Wait   Kind = "wait"
)

// Decision is what a start comes to.
type Decision struct {
	Kind Kind
	// Why is a sentence.
	Why string
	// Args are k3s's, of Exec.
	Args []string
	// URL and Address, host:port, are the join host's, of Wait.
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
	if join && !f.Files.WAL && f.Reached != f.URL {
		return Decision{Kind: Wait, URL: f.URL, Address: address(f.URL), Why: "the join host " + f.URL + " does not answer yet"} // R-A-09
	}
	args := begin(f)
	switch {
	case join:
		args = append(args, "--server="+f.URL)
	case mayFound(f):
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
