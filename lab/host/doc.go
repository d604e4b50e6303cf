// Package host makes test hosts on one machine: each host is a Debian with a real systemd as its first process, in
// namespaces of its own (systemd-nspawn), with an address on the lab's private network.
//
// A [Lab] owns one network and the hosts on it. All of it lives in namespaces, cgroups and folders that carry the lab's
// name, so that a lab whose owner was killed can be taken down by name ([Sweep]). Nothing is added to the machine's own
// network: the lab's network is a namespace too, reached with [Lab.DialContext] or [Lab.Command].
//
// The commands the package runs (ip, iptables, mount, systemd-nspawn, nsenter) can be repeated by hand; with
// [Options.Trace] each one is printed.
package host
