package parts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// KubeletConfig is what k3s tells its kubelet. Paths are absolute.
type KubeletConfig struct {
	// NodeName and NodeIP; NodeIP must be on an interface of this host and not on loopback. Without it the
	// kubelet resolves its own name, which takes seconds.
	NodeName, NodeIP string
	// Kubeconfig is …/agent/kubelet.kubeconfig, with a certificate for system:node:NAME of group
	// system:nodes.
	Kubeconfig string
	// ServingCert, ServingKey and ClientCA are …/agent/serving-kubelet.crt, .key and client-ca.crt. Without
	// a certificate the kubelet's port is closed.
	ServingCert, ServingKey, ClientCA string
	// Labels and Taints are set when the Node is registered. NodeRestriction refuses labels of
	// kubernetes.io that a kubelet may not set (node-role.kubernetes.io/…): give none of them.
	Labels map[string]string
	Taints []corev1.Taint
	// DataDir is k3s's (/var/lib/rancher/k3s): the pod shims' path starts with it.
	DataDir string
	// RuntimeSocket is the fake runtime's: /run/k3s/containerd/containerd.sock.
	RuntimeSocket string
	// RootDir is /var/lib/kubelet, StaticPods …/agent/pod-manifests, PodLogs /var/log/pods.
	RootDir, StaticPods, PodLogs string
	// Address and Port are where the kubelet listens; empty and 0 mean 0.0.0.0 and 10250.
	Address string
	Port    int
	// HealthzPort on loopback; 0 means 10248.
	HealthzPort int
	// MaxPods; 0 means 110. Cores and MemoryBytes are the Node's capacity; 0 means 4 and 8 GiB.
	MaxPods     int
	Cores       int
	MemoryBytes uint64

	Output `json:"-"`
}

// StartKubelet starts the hollow kubelet in a process of its own, and the fake runtime in another if none
// answers on the socket. The Node is registered and Ready in under a second once the API server can be
// reached; the kubelet waits for it without end. Its Lease is renewed every 10 s.
//
// The fake runtime outlives the kubelet and this process: pods go on running over a restart. It is found as
// the real shims are, by "k3s/data/<hash>/bin/containerd-shim" in its arguments, and when it is killed its
// containers are gone; the kubelet, if it runs, starts it again within a second and the pods anew.
//
// Containers run nothing. One whose command is "sleep N", "true" or "false" ends as that would (a
// runner pod that finishes); every other runs until it is stopped. Stopping takes no time.
func StartKubelet(ctx context.Context, cfg KubeletConfig) (*Process, error) {
	for _, needed := range []struct{ name, value string }{
		{"NodeName", cfg.NodeName}, {"Kubeconfig", cfg.Kubeconfig}, {"DataDir", cfg.DataDir},
		{"RuntimeSocket", cfg.RuntimeSocket}, {"RootDir", cfg.RootDir}, {"StaticPods", cfg.StaticPods}, {"PodLogs", cfg.PodLogs},
	} {
		if needed.value == "" {
			return nil, fmt.Errorf("kubelet configuration: %s is needed", needed.name)
		}
	}
	settings, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	cmd := Command(KubeletName, "--hostname-override="+cfg.NodeName)
	cmd.Stdin = bytes.NewReader(settings)
	cfg.Output.apply(cmd)
	return StartProcess(ctx, cmd)
}
