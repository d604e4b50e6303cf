// Package recoverycmd is `regrade recovery`: the loop of the Deployment
// fleet-node-recovery, and status, which looks once and changes nothing.
package recoverycmd
