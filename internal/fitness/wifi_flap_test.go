package fitness_test

import (
	"testing"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
)

// A laptop that is docked every other moment: half of its window was on Wi-Fi.
func TestAStandbyThatWasOnWiFiForHalfOfItsWindowIsNotFit(t *testing.T) {
	f := fitnesstest.New(3, 1)
	f.Edit["n4"] = func(n int, s *fitness.Sample) {
		if n%2 == 0 {
			s.Link = fitness.Link{Kind: fitness.WiFi, Interface: "wlan0"}
		}
	}
	for n := 200; n < 202; n++ {
		v := fitness.Judge(f.HostsAt(n), fitness.DefaultPolicy())[3]
		t.Log(n, v.Fitness)
		if v.Fitness == fitness.Fit {
			t.Errorf("after %d samples: %s, link %s", n, v.Fitness, v.Link)
		}
	}
}
