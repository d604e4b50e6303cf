package doctor

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Host is what was read on one host, in one go.
type Host struct {
	Node string
	// SettingsProblem says why host.yaml or join.yaml cannot be used, Unseen why the host
	// cannot be looked at; with either of them the rest was not read.
	SettingsProblem, Unseen string

	API    API
	Clocks []Clock
	Files  Files
	// Units are k3s's two, by role. Managed says that systemd has them: masks, files
	// that it has not read and the like are asked of it alone.
	Units   map[fleet.Role]Unit
	Managed bool

	// Halts says, by a code, that the daemon does nothing before a person has looked.
	Halts *status.Problem
	// JournalProblem says why its note cannot be read.
	JournalProblem string

	Etcd *Etcd
	// Readiness are the problems on the way to the other role, or to serve on in this
	// one; nil where nothing was judged, and Toward says of what they are.
	Readiness []status.Problem
	Judged    bool
	Toward    string

	Disk      Disk
	Listeners []Listener
	// ListenersProblem says why they could not be read.
	ListenersProblem string
	JoinURLs         map[string]string
	Nodes            []Node
	Daemon, K3s      Program
	K3sOnDisk        string // what k3s's binary says of its version
	K3sRuns          string // what the Node says of it

	// Password is whether the host has a node password; PasswordProblem why an agent
	// with it would be turned away.
	Password        bool
	PasswordProblem string
	// Warnings are the platform's own.
	Warnings []status.Problem
}

// API is the way to it by the daemon's credential.
type API struct {
	Kubeconfig string
	// Missing: there is none. Mode are its permission bits.
	Missing bool
	Mode    uint32
	// Denied says that an API server answered and took the credential for none; Problem
	// that none answered. Both empty: one did.
	Denied, Problem string
	Server          string
	// NoNode: the API knows no Node of this name.
	NoNode bool
	// Swap is the swap that the Node's annotation names; SwapHeld that the Lease is held
	// for one or by a host that steps its level.
	Swap     fleet.SwapID
	SwapHeld bool
}

// answered says whether the Node and the Lease are known.
func (a API) answered() bool {
	return !a.Missing && a.Denied == "" && a.Problem == ""
}

// Clock is how far this host's clock is ahead of an API server's, by its Date. Whole
// seconds are all that a Date has.
type Clock struct {
	Server  string
	Ahead   time.Duration
	Problem string
}

// Files are the role files and what else decides which role may start.
type Files struct {
	Role                                         fleet.Role
	RoleProblem, IdentityProblem, JoiningProblem string
	Leaving, Joining                             fleet.SwapID
	AllowJoin                                    bool
	Datastore, WAL, Tombstone, SQLite            bool
	Level                                        fleet.Level
	// ServerJoin and AgentJoin are the URLs of the join drop-ins.
	ServerJoin, AgentJoin string
	// May are the answers of the start rule, by role, and Why its words.
	May map[fleet.Role]bool
	Why map[fleet.Role]string
}

// Unit is one of k3s's two units, or containers.
type Unit struct {
	Name string
	// Loaded to Stale are systemd's word.
	Loaded, Masked, Enabled, Stale bool
	// Conditioned: it asks role-is before each start; Problem says why not.
	Conditioned bool
	Problem     string
	Process     bool
	State       string
	// Level is what the running server was started with, empty when unknown.
	Level fleet.Level
}

// Etcd is the host's own member as it answers.
type Etcd struct {
	Linearizable bool
	Version      string
	Alarms       []string
	Error        string
}

// Disk is how long this host's disk takes to write something down for good: a p99,
// of etcd's WAL since it began, or measured. Zero is not known; Problem says why.
type Disk struct {
	Above, AtMost, Limit time.Duration
	Source               string
	Problem              string
}

// Listener is one socket that listens. PID is zero for a process that cannot be seen.
type Listener struct {
	Address string
	Port    int
	Inode   uint64
	PID     int
	// Name is the kernel's name of the process; Role what k3s it is, Regrade that it is
	// this host's daemon.
	Name    string
	Role    fleet.Role
	Regrade bool
}

// Node is one Node of the cluster.
type Node struct {
	Name, InternalIP string
	Voter, Eligible  bool
}

// Program is a process and its file.
type Program struct {
	// Looked: processes could be looked for. PID is zero where none runs.
	Looked bool
	PID    int
	// Replaced: the file that it runs from is there no more, or another.
	Replaced bool
}
