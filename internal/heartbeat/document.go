package heartbeat

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Protocol is the version of the document.
const Protocol = 1

// MaxDocument is the size above which a document is refused unread.
const MaxDocument = status.MaxDocument

// Document is fleet-health.json, written on every tick, healthy or not.
type Document struct {
	// Protocol is absent in a document of another program of the same form.
	Protocol int       `json:"protocol,omitempty"`
	At       time.Time `json:"at"` // the API server's Date, as far as one is known
	// Interval is after how many seconds the next one comes; absent where nobody knows.
	Interval int64 `json:"interval_seconds,omitempty"`

	Healthy bool `json:"healthy"`
	// Reasons say in sentences why the fleet is not vouched for.
	Reasons []string `json:"reasons"`
	// Checks are those that were asked for, in that order.
	Checks []Check `json:"checks,omitempty"`
	// Unread names what could not be read in this tick: nodes, status. What depends
	// on it is not known.
	Unread []string `json:"unread,omitempty"`

	// NodePressure and NotReady are null while the Nodes could not be read.
	NodePressure []Pressure `json:"node_pressure"`
	NotReady     []NotReady `json:"not_ready_nodes"`
	// More counts Nodes that are left out of NotReady, to keep the document small.
	More int `json:"not_ready_more,omitempty"`
	// RoleSwap is the swap of the controller's status, or null (R-F-01).
	RoleSwap *status.Swap `json:"role_swap"`
	// Voters is null while the Nodes could not be read, and where no Node has etcd.
	Voters *Voters `json:"etcd_voters"`
	// Carried is what the next document goes on from while Voters or NotReady is null.
	Carried *Carried `json:"carried,omitempty"`
}

// Check is one condition for vouching for the fleet.
type Check struct {
	Name   string    `json:"name"`
	OK     bool      `json:"ok"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of what is not OK
}

// Pressure are the pressure conditions of a Node. They never make a fleet unhealthy.
type Pressure struct {
	Node       string   `json:"node"`
	Conditions []string `json:"conditions"`
}

// NotReady is a Node whose Ready condition is not True.
type NotReady struct {
	Name string     `json:"name"`
	Role fleet.Role `json:"role"`
	// Since is when a document first said so.
	Since time.Time `json:"since,omitzero"`
	// Level is a level that regrading holds it at; NotReady is then as it should be
	// (R-X-09). Absent for none.
	Level fleet.Level `json:"regrade_level,omitempty"`
	// RoleSwap: it is a node of the swap under way (R-F-03).
	RoleSwap bool `json:"role_swap"`
	// Voter: it counts among the voters.
	Voter bool `json:"voter,omitempty"`
}

// How voters were counted.
const (
	ByMembers    = "members"    // by the member lists, as the controller's status has them
	ByConditions = "conditions" // by label and EtcdIsVoter
)

// Voters are etcd's voters (R-F-02).
type Voters struct {
	Count  int    `json:"count"`
	Target int    `json:"target"`
	By     string `json:"counted_by"`
	// Up are those of which nothing says that they are down; Down names the others.
	Up   int      `json:"up"`
	Down []string `json:"down,omitempty"`
	// Tolerance is how many more may fail.
	Tolerance int `json:"tolerance"`
	// EvenSince is since when their number is even, absent while it is odd;
	// NoToleranceSince since when none more may fail.
	EvenSince        time.Time `json:"even_since,omitzero"`
	NoToleranceSince time.Time `json:"no_tolerance_since,omitzero"`
}

// Carried are the times that outlast a document without Nodes.
type Carried struct {
	EvenSince        time.Time `json:"even_since,omitzero"`
	NoToleranceSince time.Time `json:"no_tolerance_since,omitzero"`
	NotReady         []Unready `json:"not_ready_nodes,omitempty"`
}

// Unready is since when a Node is not Ready.
type Unready struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
}

// Swapping says whether a swap is under way that is not past its bound at the time
// of the document, and what the bound is. A state without a bound of its own has
// the time it began for one: after that only the window of the alerts is left.
func (d *Document) Swapping() (running bool, deadline time.Time) {
	if d.RoleSwap == nil {
		return false, time.Time{}
	}
	return true, Deadline(d.RoleSwap)
}

// Deadline is when a swap's present state should be over.
func Deadline(s *status.Swap) time.Time {
	if !s.Deadline.IsZero() {
		return s.Deadline
	}
	return s.StepSince
}

// maxRead is how many Nodes that are not Ready are read, servers first: each may be an
// alert, and all that is told of has to fit into a state. Ours lists fewer.
const maxRead = 2 * maxListed

// Parse reads a document. One without a protocol is read as of this one: other
// programs write the same form.
func Parse(raw []byte) (Document, error) {
	var d Document
	if len(raw) == 0 {
		return d, fmt.Errorf("fleet health: the document is empty")
	}
	if len(raw) > MaxDocument {
		return d, fmt.Errorf("fleet health: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return Document{}, fmt.Errorf("fleet health: %w", err)
	}
	switch {
	case d.Protocol != 0 && d.Protocol != Protocol:
		return Document{}, fmt.Errorf("fleet health: protocol %d, this program speaks %d", d.Protocol, Protocol)
	case d.At.IsZero():
		return Document{}, fmt.Errorf("fleet health: no time")
	case d.Interval < 0:
		return Document{}, fmt.Errorf("fleet health: an interval below zero")
	case d.Voters != nil && (d.Voters.Count < 0 || d.Voters.Up < 0 || d.Voters.Tolerance < 0):
		return Document{}, fmt.Errorf("fleet health: a number of voters below zero")
	}
	for _, n := range d.NotReady {
		if err := fleet.CheckName(n.Name); err != nil {
			return Document{}, fmt.Errorf("fleet health: not_ready_nodes: %w", err)
		}
	}
	if more := len(d.NotReady) - maxRead; more > 0 {
		slices.SortStableFunc(d.NotReady, serversFirst)
		d.NotReady, d.More = d.NotReady[:maxRead], d.More+more
	}
	if v := d.Voters; v != nil {
		v.Down = v.Down[:min(len(v.Down), maxListed)]
		for _, name := range v.Down {
			if err := fleet.CheckName(name); err != nil {
				return Document{}, fmt.Errorf("fleet health: etcd_voters.down: %w", err)
			}
		}
	}
	if d.Carried != nil {
		d.Carried.NotReady = d.Carried.NotReady[:min(len(d.Carried.NotReady), maxListed)]
		for _, n := range d.Carried.NotReady {
			if err := fleet.CheckName(n.Name); err != nil {
				return Document{}, fmt.Errorf("fleet health: carried: %w", err)
			}
		}
	}
	return d, nil
}

// JSON is the document as published. What is least needed is left out until it is
// small enough to be read.
func (d *Document) JSON() ([]byte, error) {
	for cut := 0; ; cut++ {
		raw, err := json.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("fleet health: %w", err)
		}
		if len(raw) <= MaxDocument {
			return raw, nil
		}
		small := *d
		switch {
		case cut == 0 && d.RoleSwap != nil:
			swap := *d.RoleSwap
			swap.Reasons, swap.Cause, swap.Steps = nil, nil, nil
			small.RoleSwap = &swap
		case cut <= 1:
			small.NodePressure = []Pressure{}
		default:
			return nil, fmt.Errorf("fleet health: %d bytes are more than %d", len(raw), MaxDocument)
		}
		d = &small
	}
}
