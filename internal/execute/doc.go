// Package execute carries out one swap.Action: it reads the Lease and the Node
// again, refuses when either is no longer as the decision saw it (safety rule
// 21), and makes one effect that is safe to repeat. A failed action leaves the
// swap where it was and is taken again in the next pass (R-228-21).
package execute
