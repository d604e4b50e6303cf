// Package systemd is the platform of native hosts: k3s runs as two systemd
// units, k3s.service and k3s-agent.service, as its install script names them.
// Units are driven over D-Bus. Starts and stops are jobs that are queued and
// looked at, never waited for: READY of a k3s server may never come
// (k3s-facts §3.7).
//
// Every k3s unit must ask `regrade host role-is server|agent` in an
// ExecCondition. That makes the files of design §4.1 the only thing that
// decides what starts, automatic restarts and reboots included.
package systemd
