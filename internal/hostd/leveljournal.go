package hostd

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// LevelJournal is the daemon's durable note of the step between two levels that it is
// in, or took last. It is written before the step's first effect. How far the step is
// is not in it: that follows from the Lease, the Node, the level file and the server.
type LevelJournal struct {
	From  fleet.Level `json:"from,omitempty"`
	To    fleet.Level `json:"to,omitempty"`
	Phase fleet.Phase `json:"phase,omitempty"`
	// By is what asked for it: ByPressure or ByHand.
	By string `json:"by,omitempty"`
	// Why it was begun, and Code and Message what it came to.
	Why     string `json:"why,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`

	// Began is the API server's Date when the step began: its bound counts from here,
	// and it is the acquire time of the Lease that is taken for it, by which a daemon
	// that was killed knows its own Lease from an older one.
	Began time.Time `json:"began,omitzero"`
	// Asked is when leadership was first handed over.
	Asked time.Time `json:"asked,omitzero"`
	// Replaces is when the server was started that the step restarts.
	Replaces time.Time `json:"replaces,omitzero"`
	// Back: the step is being taken back. Code and Message say why.
	Back bool `json:"back,omitempty"`
	// Ended is the API server's Date when the last step that was not refused was settled: a
	// cooldown counts from here.
	Ended time.Time `json:"ended,omitzero"`
}

// maxLevelMessage is how much of what others say is kept, such as the holder of a Lease or
// the last line of a program: a note that is too long to be read back holds every step.
const maxLevelMessage = 2 << 10

// What asks for a step.
const (
	ByPressure = "pressure"
	ByHand     = "hand"
)

// Running says whether the step is not settled.
func (j LevelJournal) Running() bool { return j.Phase == fleet.PhaseRunning }

// Down says whether it gives something up.
func (j LevelJournal) Down() bool { return j.To != fleet.LevelFull && j.From != fleet.LevelEtcdOnly }

// Restarts says whether the server has to be restarted for it: control-plane and full
// are one set of k3s's flags.
func (j LevelJournal) Restarts() bool { return !sameFlags(j.From, j.To) }

func sameFlags(a, b fleet.Level) bool {
	return (a == fleet.LevelEtcdOnly) == (b == fleet.LevelEtcdOnly)
}

// ParseLevelJournal reads one; no bytes are the empty one. One that cannot be read is an
// error: a step may be under way.
func ParseLevelJournal(raw []byte) (LevelJournal, error) {
	var j LevelJournal
	if len(raw) == 0 {
		return j, nil
	}
	if len(raw) > maxJournal {
		return j, fmt.Errorf("level journal: %d bytes are more than %d", len(raw), maxJournal)
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return LevelJournal{}, fmt.Errorf("level journal: %w", err)
	}
	if _, err := fleet.ParsePhase(string(j.Phase)); err != nil {
		return LevelJournal{}, fmt.Errorf("level journal: %w", err)
	}
	for _, l := range []fleet.Level{j.From, j.To} {
		if _, err := fleet.ParseLevel(string(l)); err != nil || l == "" {
			return LevelJournal{}, fmt.Errorf("level journal: level %q", l)
		}
	}
	return j, nil
}

// Bytes is what ParseLevelJournal reads.
func (j LevelJournal) Bytes() []byte {
	b, err := json.Marshal(j)
	if err != nil {
		return nil // the type has nothing that cannot be marshalled
	}
	return append(b, '\n')
}
