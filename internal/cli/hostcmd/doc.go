// Package hostcmd is `regrade host`: the host daemon and its command forms
// (R-D1-14). Daemon and commands are one engine, hostd.Daemon, under one lock
// (R-216-13); a command is a daemon that takes one step and ends.
//
// Exit statuses: 0 done, 1 failed, 2 refused with nothing changed, 3 not yet
// (R-D1-15..18). role-is answers a unit's start condition: 0 the unit may start,
// 1 it is skipped.
package hostcmd
