// Package doctor says what is wrong with a host or a fleet and how to put it right:
// findings, of what was read elsewhere. It decides nothing and changes nothing. What
// cannot be read is a finding too, never a reason to find nothing.
package doctor
