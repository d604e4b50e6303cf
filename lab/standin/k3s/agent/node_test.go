package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/host"
)

func values(t *testing.T, args ...string) config.Values {
	t.Helper()
	v, err := config.Parse(config.Agent, append([]string{"--config", "/nonexistent/config.yaml"}, args...), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// k3s facts §6.1: what the agent part writes at every start, and what it never clears.
func TestAgentReplacesItsAnnotationsAndNeverDropsLabels(t *testing.T) {
	h := host.Host{NodeName: "n1", IPs: []string{"10.0.0.1"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        "n1",
		Labels:      map[string]string{"old": "label", egressLabel: "cluster", "node-role.kubernetes.io/etcd": "true"},
		Annotations: map[string]string{externalIPAnnotation: "192.0.2.1"},
	}}
	m, err := nodeMetadata(node, h, values(t, "--node-label", "a=b"), nil, "agent", true)
	if err != nil {
		t.Fatal(err)
	}
	b := "b"
	if d := cmp.Diff(map[string]*string{"a": &b, egressLabel: nil}, m.Labels); d != "" {
		t.Error(d)
	}
	if _, touched := m.Annotations[externalIPAnnotation]; touched {
		t.Error("external-ip is not cleared when the flag is dropped")
	}
	if *m.Annotations[internalIPAnnotation] != "10.0.0.1" || *m.Annotations[hostnameAnnotation] != "n1" {
		t.Errorf("got %v", m.Annotations)
	}
	node.Annotations[hashAnnotation] = *m.Annotations[hashAnnotation]
	again, err := nodeMetadata(node, h, values(t, "--node-label", "a=b"), nil, "agent", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, written := again.Annotations[argsAnnotation]; written {
		t.Error("node-args is written although the hash is the same")
	}
	changed, err := nodeMetadata(node, h, values(t, "--node-label", "a=c"), nil, "agent", true)
	if err != nil {
		t.Fatal(err)
	}
	if changed.Annotations[argsAnnotation] == nil {
		t.Error("node-args is not written although the arguments changed")
	}
}

func TestNodeEnvironmentHidesSecrets(t *testing.T) {
	got := nodeEnv([]string{"K3S_TOKEN=hush", "K3S_URL=https://a:6443", "PATH=/bin"})
	if d := cmp.Diff(map[string]string{"K3S_TOKEN": "********", "K3S_URL": "https://a:6443"}, got); d != "" {
		t.Error(d)
	}
}

func TestTaintsAreReadWithTheirEffect(t *testing.T) {
	_, taints, err := registration(values(t, "--node-taint", "k=v:NoSchedule", "--node-taint", "bare:NoExecute"))
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}, {Key: "bare", Effect: corev1.TaintEffectNoExecute}}
	if d := cmp.Diff(want, taints); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"k=v", "k=v:Sometimes"} {
		if _, _, err := registration(values(t, "--node-taint", bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
