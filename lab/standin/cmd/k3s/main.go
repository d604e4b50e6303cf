// Command k3s is a stand-in for k3s, for tests: k3s's command line, files, ports, labels and membership behaviour,
// made of a real etcd, a real Kubernetes control plane and the hollow kubelet. It runs no containers.
//
// It is one binary; its components are child processes of the same file, found by the name they are started under.
// Package behaviour documents the switches for tests (K3S_STANDIN_*).
package main

import (
	"os"

	"github.com/exadev/regrade/lab/standin/k3s/cli"
	"github.com/exadev/regrade/lab/standin/parts"
)

func main() {
	if status, isComponent := parts.Dispatch(os.Args); isComponent {
		os.Exit(status)
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
