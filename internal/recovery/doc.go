// Package recovery is the loop of `regrade recovery`: look at the Nodes, decide
// (internal/recover), write, say why. It keeps what it saw of how long a node is
// silent, for no clock but its own is trusted with that (safety rule 22); everything
// else is in the cluster.
package recovery
