// Package controller is the controller's loop: observe, decide, renew the
// Lease, carry out at most one action, publish. Pass is one turn and never
// sleeps; Run turns it whenever something changed, every two seconds while a
// swap is under way, at once after an action that succeeded, and else once a
// period (design §3, R-E2-14).
package controller
