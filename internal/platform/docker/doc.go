// Package docker is the platform of hosts whose k3s runs in containers of a Docker
// engine: one for each role, services of one Compose project (R-X-01). Both
// containers exist already, made by Compose; regrade starts and stops them, and
// never makes or removes one. It talks to the engine alone, through its API, so the
// host needs no docker or compose program, and the daemon may itself be a container
// with the engine's socket.
//
// What a role may do is decided where it is decided on a native host: the files of
// design §4.1, which `regrade entrypoint server|agent` asks at every start of a
// container, restarts by the engine included. A container whose entrypoint said no
// idles: it runs and holds no k3s (R-A-05..07).
//
// Things that differ from a native host, and where they are dealt with:
//
//   - the engine's stop and restart end when they are done, not when they are asked
//     for: they are jobs of this process (jobs.go)
//   - a running container proves no running k3s: its processes are asked for, and a
//     running container without k3s waits or idles (unit.go)
//   - nothing in a container says with which level k3s was started (level.go)
//   - node password and mesh state may lie in volumes of each service (identity.go,
//     tree.go)
//   - two projects may have one name, and a container name may be taken (project.go)
package docker
