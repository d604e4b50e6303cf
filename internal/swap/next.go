package swap

import (
	"slices"
	"strconv"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

var table = Table()

// Next decides what to do now: zero or one action. It is total: every state
// has a row without a condition (R-228-02, R-E2-14).
func Next(o Observation, p Policy) Decision {
	v := newView(&o, p)
	for _, row := range table {
		if row.From != v.state || (row.when != nil && !row.when(v)) {
			continue
		}
		return v.decide(row)
	}
	// Unreachable: TestEveryStateHasALastRow holds the table to it. Holding is
	// the one safe answer all the same.
	return Decision{State: v.state, Code: "NoRow", Sentence: "no rule covers this observation; nothing is done"}
}

func (v *view) decide(row Row) Decision {
	d := Decision{State: v.state, Row: row.Code, Code: row.Code, Sentence: row.say(v)}
	if row.act != nil {
		d.Action = row.act(v)
	}
	if row.waits != nil {
		d.Waits = row.waits(v)
	}
	d.Facts = v.facts()
	d.Renew = v.leaseOurs() && v.state != TakeOverState && v.state != Contradiction && !v.drivenByOther()
	d.Swap = v.publish(row, d)
	return d
}

// facts are the values that every decision rests on.
func (v *view) facts() []status.Fact {
	fs := []status.Fact{{Name: "lease", Value: string(v.leaseState())}}
	if v.list.known {
		fs = append(fs,
			status.Fact{Name: "members", Value: describe(v.list.members)},
			status.Fact{Name: "voters", Value: strconv.Itoa(v.list.voters())},
			status.Fact{Name: "leader", Value: v.list.leader.String()})
	} else {
		fs = append(fs, status.Fact{Name: "members", Value: "unknown"})
	}
	if v.rec != nil {
		fs = append(fs, status.Fact{Name: "swap", Value: string(v.rec.ID)})
	}
	return fs
}

// publish is the swap as the status shows it. It carries the times from pass
// to pass; a lost status starts them anew.
func (v *view) publish(row Row, d Decision) *status.Swap {
	if v.state == Contradiction && v.o.Status != nil && v.o.Status.Swap != nil {
		s := *v.o.Status.Swap // its times stand until the marks can be read again
		s.Reasons = d.Waits
		return &s
	}
	if v.rec == nil || v.state == Idle || (v.state == End && v.ended()) {
		return nil
	}
	s := status.Swap{ID: v.rec.ID, StartedAt: v.rec.Started, StepSince: v.o.Now}
	if old := v.swapStatus(); old != nil {
		s = *old
		s.Steps = slices.Clone(old.Steps)
	}
	s.Out, s.In, s.Manual = v.rec.Out, v.rec.In, v.rec.Manual
	if s.Step != string(v.state) {
		s.Step, s.StepSince = string(v.state), v.o.Now
	}
	if !slices.ContainsFunc(s.Steps, func(t status.StepTime) bool { return t.Step == s.Step }) {
		s.Steps = append(s.Steps, status.StepTime{Step: s.Step, At: v.o.Now})
	}
	s.Deadline = v.deadline()
	if name := v.snapshotName(); name != "" {
		s.Snapshot = name
	}
	s.FailingSince = v.failing()
	if row.Code == "RemovalAskedAgain" {
		s.AskedAgain++
	}
	if d.Action.Step == fleet.StepRollback {
		s.Cause = append([]status.Reason{{Code: d.Code, Sentence: d.Sentence, Node: v.rec.In}}, d.Waits...)
	}
	s.Reasons = d.Waits
	return &s
}

func (v *view) failing() time.Time {
	if v.in == nil {
		return time.Time{}
	}
	return v.failingSince()
}

// deadline is when the state's own bound is over; zero where it has none.
func (v *view) deadline() time.Time {
	if v.faltersAtBegin() {
		return v.rec.Started.Add(status.JoinPatience)
	}
	bound := time.Duration(0)
	switch v.state {
	case Wait, DrainOut:
		bound = v.p.RunnerWait
	case DrainIn:
		bound = v.p.DrainTimeout
	case TakeSnapshot:
		bound = v.p.SnapshotTimeout
	case Recheck, StepDown, Remove, Settle:
		bound = v.p.OperationTimeout
	case Promote:
		bound = v.promoteBound()
	case Finish, Restore:
		bound = v.p.FinishTimeout
	case Rollback:
		bound = v.rollbackBound()
	}
	if bound == 0 {
		return time.Time{}
	}
	since := v.first(v.state)
	if v.state == StepDown && v.reached(Remove) {
		// k3s has taken its request back, done or not, and the marks are not there yet: it
		// is the removal that is overdue, or is not.
		since = v.first(Remove)
	}
	return since.Add(bound)
}
