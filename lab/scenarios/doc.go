// Package scenarios holds the promises regrade makes, each as a test on real
// hosts: the shipped unit files and binary, real systemd, etcd and
// kube-apiserver. `make lab RUN=name` runs the ones whose name matches.
//
// A scenario prints what it observed and ends by checking what must hold on
// every cluster that regrade leaves behind (check_test.go).
package scenarios
