// Package platform runs the product's platform conformance suite on a real
// systemd: on a host of the lab.
package platform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exadev/regrade/lab/host"
	"github.com/exadev/regrade/lab/preflight"
)

func Test_systemd_conforms(t *testing.T) {
	if os.Getenv("LAB") == "off" {
		t.Skip("LAB=off")
	}
	if ok, reason := preflight.CanRun(); !ok {
		t.Fatal(reason)
	}
	binary := filepath.Join(t.TempDir(), "systemd.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "./internal/platform/systemd")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the suite: %v\n%s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	lab, err := host.New(t.Context(), host.Options{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	h, err := lab.AddHost(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile("/usr/local/bin/systemd.test", content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := lab.Boot(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	result, err := h.Exec(t.Context(), "env", "REGRADE_REAL_SYSTEMD=1", "/usr/local/bin/systemd.test", "-test.v", "-test.run", "TestRealSystemdConforms")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(result.Stdout)
	if result.Code != 0 || !strings.Contains(result.Stdout, "--- PASS: TestRealSystemdConforms/") {
		t.Errorf("exit status %d\n%s", result.Code, result.Stderr)
	}
}
