package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

const id = fleet.SwapID("20261129T115900Z-n1-n4")

func held(holder string, age time.Duration) Lease {
	return Lease{
		Exists: true, Holder: holder, RenewTime: now.Add(-age), Duration: 900 * time.Second,
		Annotations: map[string]string{fleet.LeaseSwapID: string(id), fleet.LeaseSwapNodes: "n4, n1,"},
	}
}

// R-B-02: held means unexpired, by one rule for every reader.
func TestALeaseIsFreeHeldOrExpired(t *testing.T) {
	for name, tt := range map[string]struct {
		lease Lease
		want  State
	}{
		"a Lease that does not exist is free":             {Lease{}, Free},
		"a Lease without a holder is free":                {Lease{Exists: true, RenewTime: now}, Free},
		"a Lease renewed just now is held":                {held("fleet-role", 0), Held},
		"a Lease at its very end is held":                 {held("fleet-role", 900*time.Second), Held},
		"a Lease past its end has expired":                {held("fleet-role", 901*time.Second), Expired},
		"a holder without a renew time is held for ever":  {Lease{Exists: true, Holder: "n1", Duration: time.Second}, Held},
		"a holder without a duration is held for ever":    {Lease{Exists: true, Holder: "n1", RenewTime: now.Add(-time.Hour)}, Held},
		"a Lease renewed in the future is held, not free": {held("n1", -time.Hour), Held},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.lease.At(now); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// R-D1-19, R-216-04, R-X-07.
func TestAStepNeedsTheLeaseOfItsSwap(t *testing.T) {
	for name, tt := range map[string]struct {
		lease Lease
		id    fleet.SwapID
		want  bool
	}{
		"held by a controller for this swap":        {held(fleet.LeaseHolder, 0), id, true},
		"held by a controller for another swap":     {held(fleet.LeaseHolder, 0), "20261129T115900Z-n2-n4", false},
		"held by a level step with the same id":     {held("n1", 0), id, false},
		"expired":                                   {held(fleet.LeaseHolder, time.Hour), id, false},
		"not there":                                 {Lease{}, id, false},
		"no id is never the id of a swap":           {held(fleet.LeaseHolder, 0), "", false},
		"a Lease without annotations is of no swap": {Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: now, Duration: time.Hour}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.lease.HeldFor(tt.id, now); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// R-B-03, R-B-04, R-B-06, R-B-07.
func TestNodesThatRecoveryLeavesAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		lease Lease
		want  []string
	}{
		"the swap's nodes while held":           {held(fleet.LeaseHolder, 0), []string{"n1", "n4"}},
		"none once expired":                     {held(fleet.LeaseHolder, time.Hour), nil},
		"the holder too when it is a node name": {held("n2", 0), []string{"n1", "n2", "n4"}},
		"none when free":                        {Lease{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.lease.Exempt(now); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
