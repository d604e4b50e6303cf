// Package decide turns verdicts into the swap that regrade would make, or every
// reason why it would make none (R-185-13, R-I-01). It is a function of what was
// observed; whether the decision is carried out, in a dry run or not, is the
// swap's own table.
package decide
