package cli_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/swap"
)

// Safety rule 21: a person's pass in the pod of the controller that runs is given the
// same FLEET_ROLE_SELF, and was taken for it in the middle of its swap.
func TestAPassInAControllersPodIsAnotherController(t *testing.T) {
	c := clustertest.New(well())
	c.Beating = true
	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := cli.Run(t.Context(), append(args, "--period", "1"), env.Env{Out: &out, Err: &errs, Now: time.Now, Getenv: func(name string) string {
			return map[string]string{"FLEET_ROLE_SELF": "pod"}[name]
		}}, cli.Deps{
			Look: 2 * time.Millisecond, Rules: controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove},
			Connect: func(kube.Access, kube.Options) (cli.Cluster, error) { return c, nil },
		})
		if code != fleet.ExitDone {
			t.Fatalf("%v: exit status %d: %s%s", args, code, out.String(), errs.String())
		}
		return errs.String()
	}
	run("swap", "n1", "n4")
	run("controller", "--once") // it takes the Lease
	if got := c.State().Lease.Annotations[fleet.LeaseController]; got != "pod-once" {
		t.Fatalf("the Lease names the controller %q", got)
	}
	c.Edit(func(s *clustertest.State) { s.Lease.Annotations[fleet.LeaseController] = "pod" })
	c.Calls()
	log := run("controller", "--once")
	calls := c.Calls()
	wrote := slices.ContainsFunc(calls, func(call string) bool {
		return strings.Contains(call, "Lease") && call != "Lease" || strings.HasPrefix(call, "PatchNode")
	})
	if wrote || strings.Contains(log, "action carried out") {
		t.Errorf("it went on with the other's swap: %v\n%s", calls, log)
	}
}
