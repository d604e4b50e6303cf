package hostd

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Journal is the daemon's durable note of the step it is in or has settled: the
// part of its report that the host itself does not show. It is written before
// the step's first effect and lives on the host, so that a settled step is not
// taken again whatever happens to the API (R-216-09, R-216-10).
type Journal struct {
	Swap    fleet.SwapID `json:"swap,omitempty"`
	Step    fleet.Step   `json:"step,omitempty"`
	Phase   fleet.Phase  `json:"phase,omitempty"`
	Code    string       `json:"code,omitempty"`
	Message string       `json:"message,omitempty"`

	// Began is the API server's Date when the step began; its bound counts from
	// here. Zero where the step began without an API server.
	Began time.Time `json:"began,omitzero"`
	// BootID is the boot in which it began.
	BootID string `json:"boot_id,omitempty"`
	// ClusterID is the cluster that a promotion joins, as its record says: a host
	// that falls before its etcd has answered knows no other.
	ClusterID fleet.MemberID `json:"cluster_id,omitzero"`
	// StartedAt is when the new role was started, by the host's clock (R-D1-24,
	// R-228-41).
	StartedAt time.Time `json:"started_at,omitzero"`
	// Stopped: in a rollback or a finish, the server was seen gone.
	Stopped bool `json:"stopped,omitempty"`
	// Asked is the API server's Date when leadership was first handed over, since it was
	// last seen elsewhere.
	Asked time.Time `json:"asked,omitzero"`
	// Replaces is when the server was started that the step restarts into another
	// level, by the host's clock; written before it is asked to.
	Replaces time.Time `json:"replaces,omitzero"`
	// Snapshot is the base name of an etcd snapshot taken for the swap.
	Snapshot string `json:"snapshot,omitempty"`
	// Local marks an installer's own step (promote-local, demote-local).
	Local bool `json:"local,omitempty"`
}

// Is says whether the journal is of this step of this swap.
func (j Journal) Is(id fleet.SwapID, s fleet.Step) bool { return j.Swap == id && j.Step == s }

// Running says whether it is of this step of this swap, not settled.
func (j Journal) Running(id fleet.SwapID, s fleet.Step) bool {
	return j.Is(id, s) && j.Phase == fleet.PhaseRunning
}

// Ended says whether the step is not taken again. A way back that was refused is: an
// older daemon settled that, and its cause may have been put right since.
func (j Journal) Ended() bool {
	return j.Phase.Settled() && !(wayBack(j.Step) && j.Phase == fleet.PhaseRefused)
}

// wayBack says whether a step undoes another one.
func wayBack(s fleet.Step) bool { return s == fleet.StepStepUp || s == fleet.StepRollback }

// maxJournal bounds what is read back.
const maxJournal = 64 << 10

// ParseJournal reads a journal; no bytes are the empty journal. One that cannot
// be read is an error: taking it for none could repeat a settled step.
func ParseJournal(raw []byte) (Journal, error) {
	var j Journal
	if len(raw) == 0 {
		return j, nil
	}
	if len(raw) > maxJournal {
		return j, fmt.Errorf("journal: %d bytes are more than %d", len(raw), maxJournal)
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return Journal{}, fmt.Errorf("journal: %w", err)
	}
	if j.Phase != "" {
		if _, err := fleet.ParsePhase(string(j.Phase)); err != nil {
			return Journal{}, fmt.Errorf("journal: %w", err)
		}
	}
	if j.Step != "" {
		// A newer daemon's step, after a downgrade: nothing here knows how far it is.
		if _, err := fleet.ParseReported(string(j.Step)); err != nil {
			return Journal{}, fmt.Errorf("journal: %w", err)
		}
	}
	if j.Swap != "" {
		if _, err := fleet.ParseSwapID(string(j.Swap)); err != nil {
			return Journal{}, fmt.Errorf("journal: %w", err)
		}
	}
	return j, nil
}

// Bytes is what ParseJournal reads.
func (j Journal) Bytes() []byte {
	b, err := json.Marshal(j)
	if err != nil {
		return nil // the type has nothing that cannot be marshalled
	}
	return append(b, '\n')
}
