package setup

import (
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
)

// Paths that a host of the fleet has, all absolute.
const (
	unitDir      = "/etc/systemd/system/"
	dropIn       = ".d/10-regrade.conf"
	envSuffix    = ".env"
	daemonUnit   = "regrade-host.service"
	fileProgram  = "/usr/local/bin/regrade"
	secretMode   = 0o600
	readableMode = 0o644
)

// units are k3s's, as its install script names them.
var units = map[fleet.Role]string{fleet.RoleServer: "k3s.service", fleet.RoleAgent: "k3s-agent.service"}

// roles in the order in which files are written.
var roles = []fleet.Role{fleet.RoleServer, fleet.RoleAgent}

var configs = map[fleet.Role]string{fleet.RoleServer: fleet.FileServerConf, fleet.RoleAgent: fleet.FileAgentConf}

// Unit is one unit as systemd has it.
type Unit struct {
	Loaded  bool
	Masked  bool
	Enabled bool
	// Stale: its files have changed since systemd read them.
	Stale bool
	// Active: it runs, starts or stops.
	Active bool
	// Outdated: it runs a program that has been replaced on the disk since.
	Outdated bool
	Commands [][]string
	Env      map[string]string
	// Conditions are the command lines of its ExecCondition.
	Conditions []string
}

// Seen is what is on a host before anything is changed.
type Seen struct {
	// Units are k3s's two; Daemon is regrade's.
	Units  map[fleet.Role]Unit
	Daemon Unit
	// Configs are the configuration files and drop-ins of each unit's k3s as it is
	// started now, in order.
	Configs map[fleet.Role][]k3s.Config
	// Files are those that a plan may write or take away, by path; absent ones are not
	// in it.
	Files map[string][]byte
	// Role is the recorded one, empty for none.
	Role fleet.Role
	// Datastore: a server has run here, with embedded etcd.
	Datastore bool
	// Token is the server token that k3s made or was given, on a server.
	Token k3s.Secret
	// Node is the one that k3s last ran as, CA its cluster's; empty where k3s has not said so.
	Node string
	CA   []byte
	// Program: this binary is where the units look for it.
	Program bool
	// Record is what an earlier setup wrote down, nil for none.
	Record *Record
}

// Record is what a setup found, so that it can be taken back: fleet.FileInstalled.
type Record struct {
	// Platform is docker in the record of a Docker host, which is another one (package
	// project); empty here.
	Platform string `json:"platform,omitempty"`
	// Role is the one that k3s ran in then.
	Role fleet.Role `json:"role"`
	// Unit is its unit, Command its command line then.
	Unit    string   `json:"unit"`
	Command []string `json:"command"`
	// Enabled are the k3s units that were enabled then.
	Enabled []string `json:"enabled"`
	// Created are the files that were not there, in the order in which they were written.
	Created []string `json:"created"`
	// Sums are the SHA-256 of what was last written into k3s's configuration files, hex.
	Sums map[string]string `json:"sums,omitempty"`
	// Pending: a setup has begun and not ended, so the daemon may run on old settings.
	Pending bool `json:"pending,omitempty"`
}

// Paths are the files that a plan may write, for whoever looks at a host.
func Paths() []string {
	out := []string{
		fleet.FileRole, fleet.FileServerConf, fleet.FileAgentConf, fleet.FileHostConfig, fleet.FileJoinConfig, fleet.FileKubeconfig, fleet.FileLevelKube,
		unitDir + daemonUnit,
	}
	for _, role := range roles {
		out = append(out, unitDir+units[role], unitDir+units[role]+dropIn, unitDir+units[role]+envSuffix)
	}
	return out
}
