// Package parts runs the real components the stand-in k3s is made of: etcd (k3s's fork), kube-apiserver,
// kube-controller-manager, kube-scheduler, the hollow kubelet and a fake container runtime.
//
// Each component is a process of its own, started from the stand-in's own binary, as etcd's metrics and
// Kubernetes' flags are global to a process (k3s-facts §14.2). A child takes its part by argv[0]:
// main calls Dispatch before anything else.
//
// Children die with the stand-in (parent death signal), so that a SIGKILL of k3s leaves nothing behind.
// The one exception is the fake runtime: like k3s's pod shims it outlives the stand-in, so that pods
// survive a restart and a role switch (KillMode=process, k3s-facts §1.4).
//
// The package knows nothing of roles, tombstones, labels or joining. It reports what etcd did; the caller
// decides what that means.
package parts
