package controller

import (
	"encoding/json"
	"fmt"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/status"
)

// room is how large a status may get, with something to spare for what the
// executor adds at the end of a swap.
const room = status.MaxDocument - 16<<10

// How many reasons are kept of a host, and of a decision, where not all have room.
const (
	fewOfHost     = 4
	fewOfDecision = 16
)

// Fit leaves out of a status what can be spared until it has room in one
// document: over MaxDocument nobody reads it, and a fleet in trouble is the one that
// has the most to say. Outcome, history, cooldown and what each verdict comes to
// always stay.
func Fit(st *status.Status) {
	if size(st) <= room {
		return
	}
	for i := range st.Hosts {
		st.Hosts[i].Reasons = few(st.Hosts[i].Reasons, fewOfHost)
	}
	st.Next.Waits = few(st.Next.Waits, fewOfDecision)
	if a := st.Automatic; a != nil {
		shorter := *a
		shorter.Reasons = few(a.Reasons, fewOfDecision)
		st.Automatic = &shorter
	}
	rest := *st
	rest.Verdicts = nil
	st.Verdicts = fitness.Trim(st.Verdicts, max(0, room-size(&rest)))
}

func size(st *status.Status) int {
	raw, err := json.Marshal(st)
	if err != nil {
		return 0
	}
	return len(raw)
}

// few are the first reasons, and how many more there are.
func few(rs []status.Reason, most int) []status.Reason {
	if len(rs) <= most+1 {
		return rs
	}
	next := rs[most]
	next.Sentence = fmt.Sprintf("and %d more", len(rs)-most)
	return append(rs[:most:most], next)
}
