package preflight_test

import (
	"os"
	"sync"
	"testing"

	"github.com/exadev/regrade/lab/preflight"
)

// Two tests that began in the same moment each took the other's probe for a
// machine that cannot run the lab.
func TestManyMayAskAtOnce(t *testing.T) {
	if os.Getenv("LAB") == "off" {
		t.Skip("LAB=off")
	}
	can, reason := preflight.CanRun()
	var asked sync.WaitGroup
	for range 16 {
		asked.Go(func() {
			if got, why := preflight.CanRun(); got != can {
				t.Errorf("asked beside others: %v (%s); asked alone: %v (%s)", got, why, can, reason)
			}
		})
	}
	asked.Wait()
}
