// Package procs looks at a host's processes and sockets by /proc, for whoever wants to
// know who listens where and what runs from a file that is there no more. It changes
// nothing and keeps nothing.
package procs
