package swap

import (
	"github.com/exadev/regrade/internal/status"
)

// Row is one line of the transition table: in state From, when If holds and no
// row above it did, Do is the next action and To the state it leads to. The
// last row of a state has no If, so that Next is total.
type Row struct {
	From State
	If   string // in words; empty: otherwise
	Do   Kind   // empty: wait
	To   State  // empty: From
	Code string // reason code, unique in the table

	when func(*view) bool
	act  func(*view) Action
	say  func(*view) string
	// waits are the findings behind a hold, published with it.
	waits func(*view) []status.Reason
}

// Table returns the whole transition table, state by state.
func Table() []Row {
	var rows []Row
	for _, part := range [][]Row{
		idleRows(), beginRows(), prepareRows(), waitRows(), drainInRows(), snapshotRows(), recheckRows(),
		promoteRows(), settleRows(), drainOutRows(), stepDownRows(), removeRows(), finishRows(), endRows(),
		rollbackRows(), restoreRows(), heldRows(),
	} {
		rows = append(rows, part...)
	}
	return rows
}

// say makes a sentence of fixed words.
func say(s string) func(*view) string { return func(*view) string { return s } }

// on makes an action on a node chosen from the view.
func on(k Kind, node func(*view) string) func(*view) Action {
	return func(v *view) Action { return Action{Kind: k, Node: node(v), Swap: v.rec.ID} }
}

func inNode(v *view) string  { return v.rec.In }
func outNode(v *view) string { return v.rec.Out }
