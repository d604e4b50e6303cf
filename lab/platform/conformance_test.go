// Package platform runs the product's platform conformance suites on a real
// systemd and on a real Docker engine: on hosts of the lab.
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
	conforms(t, "platform/systemd", nil, "REGRADE_REAL_SYSTEMD=1", "TestRealSystemdConforms")
}

func Test_docker_conforms(t *testing.T) {
	conforms(t, "platform/docker", host.EnginePackages, "REGRADE_REAL_DOCKER=1", "TestRealDockerConforms|TestARealHostGoesThereAndBack|TestARealNetworkThatIsStartedAnew")
}

func Test_a_docker_host_is_set_up(t *testing.T) {
	conforms(t, "provision/project", host.EnginePackages, "REGRADE_REAL_DOCKER=1", "TestARealHostIsSetUpAndTakenBack")
}

// conforms runs the tests of a package, by name, in a host.
func conforms(t *testing.T, folder string, packages []string, env, tests string) {
	t.Helper()
	if os.Getenv("LAB") == "off" {
		t.Skip("LAB=off")
	}
	if ok, reason := preflight.CanRun(); !ok {
		t.Fatal(reason)
	}
	binary := filepath.Join(t.TempDir(), "platform.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", binary, "./internal/"+folder)
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the suite: %v\n%s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	lab, err := host.New(t.Context(), host.Options{Packages: packages, Logf: t.Logf})
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
	if err := h.WriteFile("/usr/local/bin/platform.test", content, 0o755); err != nil {
		t.Fatal(err)
	}
	if len(packages) > 0 {
		if err := h.ReadyForEngine(); err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.Boot(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	result, err := h.Exec(t.Context(), "env", env, "/usr/local/bin/platform.test", "-test.v", "-test.run", tests)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(result.Stdout)
	first, _, _ := strings.Cut(tests, "|")
	if result.Code != 0 || !strings.Contains(result.Stdout, "--- PASS: "+first) || strings.Contains(result.Stdout, "--- SKIP") {
		t.Errorf("exit status %d\n%s", result.Code, result.Stderr)
	}
}
