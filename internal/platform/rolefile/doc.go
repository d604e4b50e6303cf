// Package rolefile holds the files that decide which of k3s's two units may
// start on a host, and the rule over them (design §4.1, safety rules 10-13, 18
// and 19). The rule is asked at every start, automatic restarts and reboots
// included, by `regrade host role-is` in the units' ExecCondition and by the
// Docker entrypoint.
//
// The files live in the role directory /etc/github-runner (role, leaving, joining,
// join-url, agent-join-url, cluster-id, member-id, voters) and, for what must not survive a
// reboot, in /run/regrade (joining, allow-join). Rule is pure; Dir reads and
// writes the files under a root.
package rolefile
