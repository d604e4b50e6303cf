// Package fleetcmd holds the commands that work on a whole fleet by its file, fleet.yaml:
// `regrade init` writes one from a running cluster.
package fleetcmd
