// Package entrypoint is `regrade entrypoint server|agent`: the program that a k3s
// container starts. It looks at the role files, the data volume and the
// variables, and then becomes k3s, or idles, or refuses (group A of the
// requirements).
//
// Next decides; it is pure. Start is the thin shell around it: read, decide, and
// one of
//
//   - exec k3s: the process becomes k3s, so that signals and exit status are
//     k3s's own, and k3s is PID 1 as in its own image (k3s-facts §12);
//   - idle: say why once, and do nothing until the container is stopped. A guard
//     never exits, since the restart policy would start the container again
//     (R-A-07);
//   - refuse: exit status 1 with a message (R-A-11). The restart policy tries
//     again later, which costs nothing: what is missing may have been put right;
//   - wait for the join host, then read and decide anew.
//
// An idle container stays idle when its reason goes away; whoever wants the role
// to run restarts the container. The daemon changes the role file in the middle
// of a step: before the datastore is aside, before the node password is copied
// (which needs both containers at rest), before the join URL is written. A
// container that woke up by itself would start k3s in between. One hand starts
// k3s on a host, as with systemd's units.
package entrypoint
