// Package hostd is the host daemon: it carries out on its own host what the
// controller orders on the host's Node, and reports (design §1, §4.1).
//
// One pass of the Daemon observes everything, decides, reports and has at most
// one effect. The decision, Next, is a pure function of the Facts: what the
// files, units and processes of the host show, what etcd and the API server
// say, and the Journal, the daemon's durable note of the step it is in. The
// stage of a step is never stored: it follows from the facts, so a daemon
// killed between any two effects goes on where the host stands.
//
// Orders and evidence:
//
//   - promote, step-down, step-up and rollback are ordered by the Node's
//     role-swap and role-step annotations, with the desired-role label beside
//     them, under a live Lease of that swap (R-216-02, R-216-04, R-216-12);
//   - snapshot is asked for by the snapshot-request annotation;
//   - finish-demote needs no order: it is taken on evidence that this host's
//     member is gone (safety rule 12): a tombstone, the own member id absent from
//     another voter's linearizable list of the same cluster, or role-member-gone
//     under a live Lease of the swap.
package hostd
