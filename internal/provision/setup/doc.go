// Package setup makes a native host one of regrade's and takes that back: which files
// and units a host needs, given what is on it and what the fleet says of it. Plan and
// Removal decide only; Carry makes the changes, or shows them, behind one gate. k3s itself
// is neither started, stopped nor restarted by any of it.
package setup
