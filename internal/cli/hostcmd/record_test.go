package hostcmd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
)

// bare is a host that has neither a role file nor anything that runs.
func bare(t *testing.T, change func(*platform.Facts)) *rig {
	r := newRig(t, "d")
	r.host.Change(func(f *platform.Facts) {
		*f = platform.Facts{Server: platform.Unit{State: platform.StateInactive}, Agent: platform.Unit{State: platform.StateInactive}}
		f.Files.BootID = "boot-1"
		change(f)
	})
	return r
}

func (r *rig) wrote() bool {
	return slices.ContainsFunc(r.host.Calls, func(c string) bool { return strings.HasPrefix(c, "role ") })
}

func TestTheRoleIsRecordedOnceAndNeverAgain(t *testing.T) { // R-C-03, R-C-08
	r := bare(t, func(*platform.Facts) {})
	r.noAPI = true // the first host of a cluster
	r.want(fleet.ExitDone, "role: agent, written", "record-role", "--inventory-role", "agent", "--eligible")
	if got := r.host.Facts().Files.Role; got != fleet.RoleAgent || !r.wrote() {
		t.Fatalf("recorded %q; %q", got, r.host.Calls)
	}
	r.want(fleet.ExitDone, "the role file says agent", "record-role", "--inventory-role", "server", "--eligible")
	if got := r.host.Facts().Files.Role; got != fleet.RoleAgent {
		t.Errorf("the inventory won: %q", got)
	}
}

func TestWhatAnInventoryIsRefused(t *testing.T) { // R-C-06, R-C-07, R-C-11, R-X-05
	runs := func(f *platform.Facts) { f.Agent.State, f.Agent.Process = platform.StateActive, true }
	r := bare(t, runs)
	r.want(fleet.ExitRefused, "the agent's k3s runs here and the inventory says server", "record-role", "--inventory-role", "server")
	if r.wrote() {
		t.Error("written all the same")
	}
	r = bare(t, runs)
	r.want(fleet.ExitDone, "its role is the inventory's", "record-role", "--inventory-role", "agent")
	if r.wrote() {
		t.Error("a host that is not eligible has a role file")
	}
	// The role folder is lost and the data is not: what was demoted is no server by an inventory's word.
	r = bare(t, func(f *platform.Facts) { f.Files.Demoted = true })
	r.want(fleet.ExitRefused, "was a member of a cluster and its role file is lost", "record-role", "--inventory-role", "server", "--eligible")
	if r.wrote() {
		t.Error("written all the same")
	}
	r = bare(t, func(*platform.Facts) {})
	r.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: r.now, Duration: time.Hour, Annotations: map[string]string{fleet.LeaseSwapID: string(id)}}
	r.want(fleet.ExitRefused, "nothing is changed before that ends", "record-role", "--inventory-role", "agent", "--eligible")
	r.want(fleet.ExitRefused, `inventory: role "both"`, "record-role", "--inventory-role", "both")
	if r.wrote() {
		t.Error("written all the same")
	}
}
