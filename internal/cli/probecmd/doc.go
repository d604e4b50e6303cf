// Package probecmd is `regrade probe`: the loop of the DaemonSet fleet-role-probe,
// and check, which takes one reading and touches no cluster (R-185-08).
package probecmd
