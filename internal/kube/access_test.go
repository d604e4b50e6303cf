package kube_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/kube"
)

func TestWhoNamesNoClusterIsToldHow(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	_, err := kube.Connect(kube.Access{})
	if err == nil {
		t.Fatal("connected to nothing")
	}
	for _, want := range []string{"--kubeconfig", "KUBECONFIG", "/etc/rancher/k3s/k3s.yaml"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %s", err, want)
		}
	}
}
