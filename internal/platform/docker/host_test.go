package docker

import (
	"context"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/platformtest"
)

func TestDockerConforms(t *testing.T) {
	for name, separate := range map[string]bool{"one identity for both services": false, "each service its own identity": true} {
		t.Run(name, func(t *testing.T) {
			platformtest.Run(t, func(t *testing.T) platformtest.Subject {
				e := newEngine(t)
				if separate {
					e.separate()
				}
				e.plant("/volumes/k3s-node/password", secretPassword)
				h := e.host()
				return platformtest.Subject{
					Host: h,
					Datastore: func() {
						e.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
						e.plant(fleet.DefaultDataDir+"/server/db/etcd/name", "n1-0123abcd")
					},
					Settle: func() { settle(t, h) },
				}
			})
		})
	}
}

// settle waits until no job runs.
func settle(t *testing.T, h *Host) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for len(h.running()) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("a job never ends")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func look(t *testing.T, h *Host) platform.Facts {
	t.Helper()
	f, err := h.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
