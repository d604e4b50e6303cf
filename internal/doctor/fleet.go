package doctor

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/swap"
)

// Fleet is what was read of a cluster, looked at for long enough that a host which
// reports has been seen to.
type Fleet struct {
	swap.Observation
	Policy swap.Policy
	// ActuatorsMissing: there is no ConfigMap of reports.
	ActuatorsMissing bool
	// API is host and port of the API server that answered; Kubeconfig that which the
	// kubeconfig itself names, empty where something else does.
	API, Kubeconfig string
	// Started is how each Node's k3s was last started, by its own word.
	Started map[string]Started
	// Probes are the probes' heartbeats by node; ProbesProblem says why they were not read.
	Probes        map[string]Beat
	ProbesProblem string
	// Pods are regrade's own, in every namespace; PodsProblem says why they are not known.
	Pods        []Pod
	PodsProblem string
	// Written are the hosts of fleet.yaml, nil where there is none.
	Written []Written
	// Version is regrade's own, Versions those on the hosts that were asked.
	Version  string
	Versions map[string]string
}

// Started is the role that k3s was started in and the URL of the server that it was told
// to join, empty for none.
type Started struct {
	Role   fleet.Role
	Server string
}

// Beat is a heartbeat: Moved says that it was seen to, Age what its own clock says.
type Beat struct {
	Moved bool
	Age   time.Duration
}

// Pod is one of regrade's own.
type Pod struct {
	Namespace, Name, Component, Node, Image string
	Ready, Finished, Terminating            bool
	Restarts                                int
	// Waiting is why its container does not run, empty when it does.
	Waiting string
}

// Written is a host as fleet.yaml has it.
type Written struct {
	Name, Address, NodeIP string
	Takes                 bool
	Eligible, Pinned      bool
}
