// Package sim is a whole cluster in memory: the Kubernetes objects that
// regrade reads and writes, k3s's membership behaviour with its deliberate
// faults (k3s-facts §4-6 and §14.3), and hosts with the files of design §4.1
// that boot, crash, pause and lose their network. A virtual clock drives it and
// a seed decides what is left to chance, so that a run can be repeated.
//
// The real controller and the real host daemon run on it, one pass at a time,
// through the ports they declare themselves. Property tests let it fail between
// any two effects and hold the invariants of design §4 against it; the demo
// puts real etcd members behind it (Datastore) and shows a swap.
//
// It is a test tool: no shipped package imports it.
package sim
