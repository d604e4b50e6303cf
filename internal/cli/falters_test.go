package cli_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Servers to join that cannot say who the members are pass by themselves: the command
// waits for them for a minute, with nothing recorded, and only then refuses.
func TestASwapCommandWaitsForServersToJoinThatFalter(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		code  int
	}{
		"and the request is accepted when they can": {20 * time.Second, fleet.ExitDone},
		"and then it is refused":                    {time.Hour, fleet.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(when))
				began, recorded := time.Now(), time.Duration(0)
				say := func(cl *clustertest.Cluster, p status.Preflight, n uint64) {
					cl.Edit(func(s *clustertest.State) {
						r, err := status.ParseReport([]byte(s.Maps[fleet.ConfigMapActuators].Data["n4"]))
						if err != nil {
							t.Fatal(err)
						}
						r.Preflight, r.Counter = &p, n
						put(s, fleet.ConfigMapActuators, "n4", text(r))
						b := s.Beats["n4"]
						b.Counter = "2"
						s.Beats["n4"] = b
					})
				}
				first, healed := true, false
				code, out, errs := runOn(context.Background(), func(cl *clustertest.Cluster, call string) {
					time.Sleep(50 * time.Millisecond) // no more looks than a real API server allows
					switch {
					case first:
						first = false
						say(cl, status.Preflight{Problems: []status.Problem{{Code: status.CodeJoinHostFalters, Sentence: "/db/info says status 500"}}}, 2)
					case !healed && time.Since(began) >= c.lasts:
						healed = true
						say(cl, status.Preflight{OK: true}, 2)
					case strings.HasPrefix(call, "PatchConfigMap"):
						recorded = time.Since(began)
					}
				}, "swap", "n1", "n4", "--period", "1")
				took := time.Since(began)
				if code != c.code || !strings.Contains(out, "waited for up to 1m0s") {
					t.Errorf("exit status %d: %s%s", code, out, errs)
				}
				switch {
				case code == fleet.ExitDone && recorded < c.lasts:
					t.Errorf("recorded after %s", recorded)
				case code != fleet.ExitDone && (recorded != 0 || took < status.JoinPatience || took > status.JoinPatience+10*time.Second || !strings.Contains(errs, status.CodeJoinHostFalters)):
					t.Errorf("refused after %s, recorded after %s: %s", took, recorded, errs)
				}
			})
		})
	}
}
