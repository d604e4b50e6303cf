package level

import (
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Observation is what the decision looks at.
type Observation struct {
	// At is the host's clock with its monotonic part, the one of Watch.
	At    time.Time   `json:"at"`
	Level fleet.Level `json:"level"`
	Watch Watch       `json:"watch"`

	// Date is the API server's, zero where none answered.
	Date time.Time `json:"date,omitzero"`
	// Ended is the Date at which the last step ended, zero for never.
	Ended time.Time `json:"ended,omitzero"`
	// SeenEnd is when this process saw it end, by At's clock; zero when it began later.
	SeenEnd time.Time `json:"seen_end,omitzero"`
}

// Codes of a decision.
const (
	CodeStepDown      = "StepDown"
	CodeStepUp        = "StepUp"
	CodeSteady        = "Steady"
	CodeUnknownMemory = "MemoryUnknown"
	CodePressed       = "PressureNotLasting"
	CodeLowest        = "AtTheLowestLevel"
	CodeCooldown      = "InCooldown"
	CodeNotCalm       = "NotCalmLongEnough"
	CodeByHand        = "StepUpByHand"
	CodeNoLevel       = "LevelUnknown"
)

// Decision is the level wanted now, the present one or one step from it, and why.
type Decision struct {
	Want     fleet.Level `json:"want"`
	Code     string      `json:"code"`
	Sentence string      `json:"sentence"`
	// Reasons are the limits that are broken now.
	Reasons []Reason `json:"reasons,omitempty"`
}

// Decide says which level a host shall be at. It moves at most one level, down under
// pressure that has lasted, up after calm that has lasted for the cooldown, and neither
// within the cooldown of the last step. What is not known moves nothing.
func Decide(o Observation, p Policy) Decision {
	stay := func(code, format string, args ...any) Decision {
		return Decision{Want: o.Level, Code: code, Sentence: fmt.Sprintf(format, args...), Reasons: o.Watch.Over}
	}
	if rank(o.Level) < 0 {
		return stay(CodeNoLevel, "the level %q is none", o.Level)
	}
	w := o.Watch
	// A reading that is not of now says nothing of now.
	if age := o.At.Sub(w.Last); w.Last.IsZero() || age < 0 || age > p.Gap {
		return stay(CodeUnknownMemory, "the memory has not been read lately")
	}
	if len(w.Missing) > 0 {
		return stay(CodeUnknownMemory, "%s", w.Missing[0].Sentence)
	}
	down, up := lasted(w.OverSince, o.At, p.Window), lasted(w.CalmSince, o.At, p.Cooldown)
	switch {
	case !w.OverSince.IsZero() && !Below(p.Lowest, o.Level):
		return stay(CodeLowest, "memory is short, and %s is the lowest level that pressure leads to", o.Level)
	case !w.OverSince.IsZero() && !down:
		return stay(CodePressed, "memory is short, for less than %s so far", p.Window)
	case w.OverSince.IsZero() && o.Level == fleet.LevelFull:
		return stay(CodeSteady, "the server is full and memory is not short")
	case w.OverSince.IsZero() && !up:
		return stay(CodeNotCalm, "the server is at %s; memory has to be plenty for %s before it steps up", o.Level, p.Cooldown)
	case up && p.StepUp != Automatic:
		return stay(CodeByHand, "the server is at %s and memory has been plenty for %s; step-up is manual: regrade level set full", o.Level, p.Cooldown)
	}
	if !o.cooled(p) {
		return stay(CodeCooldown, "the last step is less than %s ago", p.Cooldown)
	}
	if down {
		to := Toward(o.Level, p.Lowest)
		return Decision{Want: to, Code: CodeStepDown, Sentence: fmt.Sprintf("memory has been short for %s: from %s to %s", p.Window, o.Level, to), Reasons: w.Over}
	}
	to := Toward(o.Level, fleet.LevelFull)
	return Decision{Want: to, Code: CodeStepUp, Sentence: fmt.Sprintf("memory has been plenty for %s: from %s to %s", p.Cooldown, o.Level, to)}
}

// cooled says whether the cooldown of the last step is over. A process that saw it end
// goes by its own clock, which no step of a clock moves. A later one goes by the API's
// Date at both ends; a step that ended in the future, by a Date that has gone back
// since, is waited for by the own clock alone (safety rule 22).
func (o Observation) cooled(p Policy) bool {
	switch {
	case o.Ended.IsZero():
		return true
	case !o.SeenEnd.IsZero():
		return o.At.Sub(o.SeenEnd) >= p.Cooldown
	case o.Date.IsZero():
		return false
	case o.Ended.After(o.Date):
		return lasted(o.Watch.Begun, o.At, p.Cooldown)
	}
	return o.Date.Sub(o.Ended) >= p.Cooldown
}
