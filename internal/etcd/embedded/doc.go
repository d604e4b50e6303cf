// Package embedded runs real etcd members for the demo: one process a member,
// on loopback, without TLS. Main is the child process, Process the parent's
// handle of one, Client speaks to them. The product never runs an etcd; k3s
// does that.
package embedded
