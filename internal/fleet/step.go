package fleet

import "fmt"

// Step is one order to a host in a swap, written on its Node as the role-step
// annotation (R-D1-03; step-up is design §4.1).
type Step string

// Steps. StepFinishDemote and StepSnapshot are never annotations: the first is
// taken on evidence that the member is gone, the second is asked for by the
// snapshot-request annotation. Both are names in reports.
const (
	StepPromote      Step = "promote"
	StepStepDown     Step = "step-down"
	StepStepUp       Step = "step-up"
	StepRollback     Step = "rollback"
	StepFinishDemote Step = "finish-demote"
	StepSnapshot     Step = "snapshot"
)

// ParseStep reads a role-step annotation.
func ParseStep(s string) (Step, error) {
	switch st := Step(s); st {
	case StepPromote, StepStepDown, StepStepUp, StepRollback:
		return st, nil
	}
	return "", fmt.Errorf("role step %q: want promote, step-down, step-up or rollback", s)
}

// ParseReported reads the step of a report or a host's note: an order, or one that
// a host takes without one. A new step is a new protocol: who does not know it
// cannot tell what the host is at.
func ParseReported(s string) (Step, error) {
	switch st := Step(s); st {
	case StepFinishDemote, StepSnapshot:
		return st, nil
	}
	if st, err := ParseStep(s); err == nil {
		return st, nil
	}
	return "", fmt.Errorf("step %q: want promote, step-down, step-up, rollback, finish-demote or snapshot", s)
}

// DesiredRole is the desired-role label that must stand beside the step
// (R-216-12): a host refuses a step whose label says otherwise.
func (s Step) DesiredRole() Role {
	switch s {
	case StepPromote, StepStepUp:
		return RoleServer
	default:
		return RoleAgent
	}
}

// Phase is how far a host is with a step (R-D1-08).
type Phase string

// Phases of a report.
const (
	PhaseRunning Phase = "running"
	PhaseDone    Phase = "done"
	PhaseFailed  Phase = "failed"
	PhaseRefused Phase = "refused"
)

// ParsePhase reads a report's phase.
func ParsePhase(s string) (Phase, error) {
	switch p := Phase(s); p {
	case PhaseRunning, PhaseDone, PhaseFailed, PhaseRefused:
		return p, nil
	}
	return "", fmt.Errorf("phase %q: want running, done, failed or refused", s)
}

// Settled says whether the host has nothing left to do for the step.
func (p Phase) Settled() bool { return p == PhaseDone || p == PhaseFailed || p == PhaseRefused }

// Outcome is how a swap ended (R-E2-30).
type Outcome string

// Outcomes. Abandoned changed nothing on a host; rolled back undid a promotion.
const (
	OutcomeCompleted  Outcome = "completed"
	OutcomeRolledBack Outcome = "rolled-back"
	OutcomeAbandoned  Outcome = "abandoned"
)
