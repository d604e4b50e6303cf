// Package live holds tests that run the stand-in as small clusters on this machine: one network namespace, host name
// and set of mounts per host. They need root and the build tag live:
//
//	go test -tags live -timeout 10m ./k3s/live
//
// STANDIN_K3S names a binary built before; without it the test builds one.
package live
