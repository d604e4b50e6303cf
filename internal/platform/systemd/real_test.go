package systemd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/native"
	"github.com/exadev/regrade/internal/platform/platformtest"
	"github.com/exadev/regrade/internal/platform/systemd"
)

// TestMain lets the test binary stand in for `regrade host role-is ROLE --root
// DIR` in a unit's ExecCondition.
func TestMain(m *testing.M) {
	if a := os.Args; len(a) == 6 && a[1] == "host" && a[2] == "role-is" && a[4] == "--root" {
		answer, _, err := native.New(native.Layout{Root: a[5]}).RoleIs(fleet.Role(a[3]))
		fmt.Println(answer.Why, err)
		if err != nil || !answer.May {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const unit = `[Unit]
Description=conformance: a k3s that sleeps

[Service]
Type=exec
KillMode=process
Restart=always
RestartSec=5s
ExecCondition=%s host role-is %s --root %s
ExecStart=%s infinity
`

// TestRealSystemdConforms runs the suite against a real systemd and its bus. It
// changes units of the host it runs on, so it runs only where the lab says so.
func TestRealSystemdConforms(t *testing.T) {
	if os.Getenv("REGRADE_REAL_SYSTEMD") == "" {
		t.Skip("REGRADE_REAL_SYSTEMD is not set: only on a host of the lab")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	bus := systemd.NewBus()
	platformtest.Run(t, func(t *testing.T) platformtest.Subject {
		root, err := os.MkdirTemp("/var/tmp", "conformance")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(root) })
		layout := native.Layout{Root: root, ServerUnit: "rgc-server.service", AgentUnit: "rgc-agent.service"}
		for role, name := range map[string]string{"server": layout.ServerUnit, "agent": layout.AgentUnit} {
			binary := filepath.Join(root, "k3s-"+role)
			plant(t, binary, string(sleep))
			plant(t, filepath.Join("/run/systemd/system", name), fmt.Sprintf(unit, self, role, root, binary))
		}
		if err := bus.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := systemd.New(systemd.Options{Layout: layout, Bus: bus})
		settle := func() {
			t.Helper()
			deadline := time.Now().Add(15 * time.Second)
			for {
				f, err := h.Observe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if still(f.Server) && still(f.Agent) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("never settled: %+v %+v", f.Server, f.Agent)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		t.Cleanup(func() {
			for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
				if err := h.Stop(context.Background(), role); err != nil { // the test's own context has ended
					t.Log(err)
				}
			}
			time.Sleep(300 * time.Millisecond)
		})
		return platformtest.Subject{
			Host: h,
			Datastore: func() {
				plant(t, filepath.Join(root, fleet.DefaultDataDir, "server/db/etcd/member/wal/0.wal"), "")
				plant(t, filepath.Join(root, fleet.DefaultDataDir, "server/db/etcd/name"), "n1-0123abcd")
			},
			Settle: settle,
		}
	})
}

func still(u platform.Unit) bool {
	return u.Job == platform.JobNone && (u.State == platform.StateActive && u.Process || u.Gone())
}
