// Package lease is the one copy of the Lease rule: free, held or expired, by
// whom, for which swap, and which nodes others leave alone meanwhile
// (R-B-02..04, R-N-07, safety rule 21). Controller, host daemon, recovery and
// installer all ask here.
package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Lease is kube-system/fleet-regrade as it was read. The zero value is a Lease
// that does not exist.
type Lease struct {
	Exists      bool              `json:"exists,omitempty"`
	Holder      string            `json:"holder,omitempty"`
	RenewTime   time.Time         `json:"renew_time,omitzero"`
	AcquireTime time.Time         `json:"acquire_time,omitzero"`
	Duration    time.Duration     `json:"duration,omitempty"` // zero: never expires by itself
	Annotations map[string]string `json:"annotations,omitempty"`
}

// State is what the Lease says at a moment.
type State string

// States. A Lease without a holder is free, however old.
const (
	Free    State = "free"
	Held    State = "held"
	Expired State = "expired"
)

// At judges the Lease at now, which is the API server's Date. A holder with no
// renew time counts as held: nobody may take what cannot be dated.
func (l Lease) At(now time.Time) State {
	switch {
	case !l.Exists || l.Holder == "":
		return Free
	case l.RenewTime.IsZero() || l.Duration <= 0:
		return Held
	case now.After(l.RenewTime.Add(l.Duration)):
		return Expired
	}
	return Held
}

// SwapID is the id of the swap the Lease is held for, empty when it is not
// held by a controller (R-D1-06). A Lease that has expired still names it.
func (l Lease) SwapID() fleet.SwapID {
	if !l.Exists || l.Holder != fleet.LeaseHolder {
		return ""
	}
	return fleet.SwapID(l.Annotations[fleet.LeaseSwapID])
}

// HeldFor says whether a host may take a step that could add a member: the
// Lease is held now, by a controller, for this swap (R-D1-19, R-216-04).
func (l Lease) HeldFor(id fleet.SwapID, now time.Time) bool {
	return id != "" && l.At(now) == Held && l.SwapID() == id
}

// Exempt are the nodes that recovery leaves alone at now, sorted: the swap's
// nodes, and the holder when it is a node's name (R-B-03, R-B-04).
func (l Lease) Exempt(now time.Time) []string {
	if l.At(now) != Held {
		return nil
	}
	var nodes []string
	for n := range strings.SplitSeq(l.Annotations[fleet.LeaseSwapNodes], ",") {
		if n = strings.TrimSpace(n); n != "" {
			nodes = append(nodes, n)
		}
	}
	if l.Holder != fleet.LeaseHolder {
		nodes = append(nodes, l.Holder)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
