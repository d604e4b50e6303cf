package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/k3s"
)

func TestNodesAreReadAsFarAsTheirSetupGoes(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.34.2+k3s1", OSImage: "Debian GNU/Linux 13 (trixie)"},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
				{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
			},
		},
	}
	got, err := fakeClient(builder(n)).SetupNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []k3s.Node{{
		Name: "n1", Internal: []string{"10.0.0.1", "fd00::1"}, External: []string{"192.0.2.1"}, Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"c": "d"}, Version: "v1.34.2+k3s1", OSImage: "Debian GNU/Linux 13 (trixie)",
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
