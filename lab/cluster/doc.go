// Package cluster puts a k3s cluster on the lab's hosts the way an installer would: the shipped unit files, one k3s
// configuration file per role, tokens, labels, standbys that are staged as servers while they run as agents, regrade itself
// with its settings and the credentials that its manifests grant.
//
// k3s is the stand-in of lab/standin, or a real one named by LAB_K3S. LAB_KEEP=1 leaves the hosts of a test running.
package cluster
