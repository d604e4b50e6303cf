// Package swap decides the next step of a voter swap. Next is a pure, total
// and deterministic function: an Observation and a Policy in, zero or one
// Action out, with a reason code, a sentence and the facts used. It keeps
// nothing between passes: where a swap stands is read from the Nodes, the
// Lease, the member lists and the reports, so that any later controller goes
// on where another one stopped (R-228-02, safety rule 25).
//
// The transition table (table.go) is data. docs/swap-states.md holds a diagram
// made from it.
package swap
