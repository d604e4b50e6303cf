package status

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Record is the identity of a swap, written on both Nodes and the Lease before
// anything is changed (safety rules 4 and 25). Everything later is judged
// against the ids in it, never against counts.
type Record struct {
	Protocol  int            `json:"protocol"`
	Prefix    string         `json:"prefix"`
	ID        fleet.SwapID   `json:"id"`
	Out       string         `json:"out"`
	In        string         `json:"in"`
	Manual    bool           `json:"manual,omitempty"`
	Started   time.Time      `json:"started_at"`
	ClusterID fleet.MemberID `json:"cluster_id"`
	// Voters are all voters the swap started with, OUT included, by node name.
	Voters    []RecordVoter  `json:"voters"`
	OutMember fleet.MemberID `json:"out_member"`
	// InMember is zero until the member lists show IN.
	InMember fleet.MemberID `json:"in_member,omitzero"`
	// Snapshot is the etcd snapshot's name once the cluster showed it as ready; the
	// object may be pruned while the swap goes on (safety rule 30).
	Snapshot string `json:"snapshot,omitempty"`
}

// RecordVoter is one voter a swap started with.
type RecordVoter struct {
	Node string         `json:"node"`
	ID   fleet.MemberID `json:"id"`
	Name string         `json:"name"`
}

// ParseRecord reads a role-record annotation. A record that cannot be read, or
// of another protocol, holds the swap: it is never taken for no record.
func ParseRecord(raw string) (Record, error) {
	var r Record
	if len(raw) > MaxDocument {
		return r, fmt.Errorf("record: %d bytes are more than %d", len(raw), MaxDocument)
	}
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return Record{}, fmt.Errorf("record: %w", err)
	}
	switch {
	case r.Protocol != Protocol:
		return Record{}, fmt.Errorf("record: protocol %d, this program speaks %d", r.Protocol, Protocol)
	case r.Out == "" || r.In == "" || r.Out == r.In:
		return Record{}, fmt.Errorf("record: out %q and in %q must be two nodes", r.Out, r.In)
	case !r.ID.Is(r.Out, r.In):
		return Record{}, fmt.Errorf("record: id %q is not of a swap of %s for %s", r.ID, r.Out, r.In)
	case r.ClusterID == 0 || r.OutMember == 0 || len(r.Voters) == 0:
		return Record{}, fmt.Errorf("record: cluster id, voters and the outgoing member must be there")
	}
	if _, err := fleet.ParseSwapID(string(r.ID)); err != nil {
		return Record{}, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

// String is the annotation's value.
func (r Record) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		return "" // the type has nothing that cannot be marshalled
	}
	return string(b)
}

// Voter is the recorded voter of a node.
func (r Record) Voter(node string) (RecordVoter, bool) {
	for _, v := range r.Voters {
		if v.Node == node {
			return v, true
		}
	}
	return RecordVoter{}, false
}
